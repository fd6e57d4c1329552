package command

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// find returns the processes that are left, each pinned.
func (q *Left) find() (left []*os.Process) {
	all := map[int]Stat{}
	names, _ := filepath.Glob("/proc/[0-9]*")
	for _, name := range names {
		if pid, err := strconv.Atoi(filepath.Base(name)); err == nil {
			if p, ok := ReadStat(pid); ok {
				all[pid] = p
			}
		}
	}
	ours := q.judge(all)
	for pid, p := range all {
		if !ours(pid) {
			continue
		}
		process, err := os.FindProcess(pid)
		if err != nil {
			continue
		}
		// Pinned now; it is the one that was looked at if it was started then.
		if again, ok := ReadStat(pid); ok && again.Began == p.Began {
			left = append(left, process)
		} else {
			process.Release()
		}
	}
	return left
}

// judge returns the function that says which of the processes are left.
func (q *Left) judge(all map[int]Stat) (ours func(pid int) bool) {
	trees, supervisors := stats(q.Trees...), stats(q.Supervisor)
	known := map[int]bool{0: false, 1: false, os.Getpid(): false}
	ours = func(pid int) bool {
		if is, ok := known[pid]; ok {
			return is
		}
		known[pid] = false
		p, ok := all[pid]
		if !ok {
			return false
		}
		env := environmentOf(pid)
		id, marked := env.get(EnvRun)
		if dir, _ := env.get(envDir); q.Dir != "" && dir != q.Dir && id == q.RunID {
			id = dir // a run of another thread, which may have the same id
		}
		is := false
		switch {
		case holds(pid, supervisors, "READ"):
		case marked && id == "": // of no run
		case marked && id == q.RunID:
			is = true
		case holds(pid, trees, "WRITE"):
			is = true
		case marked:
		case q.Leader != 0 && p.Session == q.Leader:
			is = true
		case q.Child != nil && q.Child(pid):
		case q.Orphan != nil && p.Parent == os.Getpid():
			is = q.Orphan(p)
		default:
			is = ours(p.Parent)
		}
		known[pid] = is
		return is
	}
	return ours
}

func stats(paths ...string) (list []unix.Stat_t) {
	for _, path := range paths {
		var s unix.Stat_t
		if unix.Stat(path, &s) == nil {
			list = append(list, s)
		}
	}
	return list
}

// End ends what is left, and returns when it has ended: with SIGTERM, and SIGKILL when the
// grace has passed. Two searches in a row have to find nothing, as one may miss a process that
// is started and whose parent ends meanwhile. said is called once for each process that is
// ended; it may be nil.
func (q *Left) End(ctx context.Context, grace time.Duration, said func(pid int, err error)) error {
	deadline := time.Now().Add(grace)
	known := map[int]bool{}
	for none, pause := 0, EndPause; none < 2; {
		if err := ctx.Err(); err != nil {
			return err
		}
		left := q.find() // model: evict
		if len(left) == 0 {
			none++
			continue
		}
		none = 0
		sig, until := unix.SIGKILL, time.Now().Add(pause)
		if time.Now().Before(deadline) {
			sig, until = unix.SIGTERM, deadline
		} else {
			pause = min(2*pause, time.Second)
		}
		for _, p := range left {
			err := p.Signal(sig)
			if !known[p.Pid] && said != nil {
				said(p.Pid, err)
			}
			known[p.Pid] = true
		}
		for _, p := range left {
			// Without a pidfd (Linux before 5.3) there is nothing to wait with.
			if p.WithHandle(func(fd uintptr) { AwaitReadable(int(fd), until) }) != nil {
				time.Sleep(endPoll)
			}
			p.Release()
		}
		if q.Reap != nil {
			q.Reap()
		}
	}
	return nil
}
