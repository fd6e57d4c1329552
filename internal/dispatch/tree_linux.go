package dispatch

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"thread/lock"
)

// evictPause is how long the kernel may take to end killed processes before
// others are searched for.
const evictPause = 100 * time.Millisecond

// adoptOrphans makes this process the one that gets the orphans of those below
// it: a handler's process cannot get away by ending its parent. All that it starts
// it must start with startChild, as what else ends here is waited for and forgotten.
func adoptOrphans() {
	if unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != nil {
		return // they go to init, and are found by the name of their run
	}
	children.Lock()
	children.adopts = true
	children.Unlock()
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	go func() {
		for range ended {
			reapOrphans()
		}
	}()
}

// orphans returns the child processes that are not in children, which the caller has locked.
func orphans() (list []int) {
	if !children.adopts {
		return nil
	}
	tasks, _ := filepath.Glob("/proc/self/task/*/children") // a kernel without it: they stay until we end
	for _, path := range tasks {
		text, _ := os.ReadFile(path)
		for _, word := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(word); err == nil && !children.pids[pid] {
				list = append(list, pid)
			}
		}
	}
	return list
}

func reapOrphans() {
	children.Lock()
	defer children.Unlock()
	for _, pid := range orphans() {
		_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
	}
}

func countOrphans() int {
	reapOrphans()
	children.Lock()
	defer children.Unlock()
	return len(orphans())
}

// remains says by what the processes of a handler are known. A process is one of
// them if it, or else the nearest of its parents that has a mark, has theirs:
//
//   - the run id in its environment; an empty one says that it is nobody's
//   - the session of the handler's first process, while that is not waited for
//   - a descriptor by which the tree lock is held: a mere descriptor of that
//     file is that of a bystander
//   - our child, and no child of ours: an orphan, see orphanScope
type remains struct {
	runID   string
	leader  int // a child of ours that has ended and is not waited for; 0: there is none
	orphans *orphanScope
	began   uint64 // orphans of before are others'
	tree    string // "": nobody holds it
}

// find returns the processes that are left, each pinned.
func (q *remains) find() (left []*os.Process) {
	all := map[int]procStat{}
	names, _ := filepath.Glob("/proc/[0-9]*")
	for _, name := range names {
		if pid, err := strconv.Atoi(filepath.Base(name)); err == nil {
			if p, ok := readProcStat(pid); ok {
				all[pid] = p
			}
		}
	}
	certain := q.orphans != nil && q.orphans.certain()
	var tree unix.Stat_t
	if q.tree != "" && unix.Stat(q.tree, &tree) != nil {
		q.tree = ""
	}
	known := map[int]bool{0: false, 1: false, os.Getpid(): false}
	var ours func(pid int) bool
	ours = func(pid int) bool {
		if is, ok := known[pid]; ok {
			return is
		}
		known[pid] = false
		p, ok := all[pid]
		if !ok {
			return false
		}
		id, marked := runOf(pid)
		is := false
		switch {
		case marked:
			is = id == q.runID && id != ""
		case q.leader != 0 && p.session == q.leader:
			is = true
		case isChild(pid):
		case q.tree != "" && holds(pid, &tree):
			is = true
		case p.parent == os.Getpid():
			is = certain && p.began >= q.began
		default:
			is = ours(p.parent)
		}
		known[pid] = is
		return is
	}
	for pid, p := range all {
		if !ours(pid) {
			continue
		}
		process, err := os.FindProcess(pid)
		if err != nil {
			continue
		}
		// Pinned now; it is the one that was looked at if it was started then.
		if again, ok := readProcStat(pid); ok && again.began == p.began {
			left = append(left, process)
		} else {
			process.Release()
		}
	}
	return left
}

// evict ends what is left of a handler, and returns when it has ended: with SIGTERM,
// and SIGKILL when grace is over. Two searches in a row have to find nobody, as one
// may miss a process that is started and whose parent ends meanwhile.
func (r *dispatcher) evict(ctx context.Context, consumer string, q remains, grace time.Duration) error {
	deadline := time.Now().Add(grace)
	said := map[int]bool{}
	for nobody, pause := 0, evictPause; nobody < 2; {
		if err := ctx.Err(); err != nil {
			return err
		}
		left := q.find() // model: evict
		if len(left) == 0 {
			nobody++
			continue
		}
		nobody = 0
		sig, until := unix.SIGKILL, time.Now().Add(pause)
		if time.Now().Before(deadline) {
			sig, until = unix.SIGTERM, deadline
		} else {
			pause = min(2*pause, time.Second)
		}
		for _, p := range left {
			err := p.Signal(sig)
			if !said[p.Pid] {
				said[p.Pid] = true
				r.log.Warn("supervise: consumer=%s ends pid=%d, left of the handler before%s", consumer, p.Pid, suffix(err))
			}
		}
		for _, p := range left {
			// Without a pidfd (Linux before 5.3) there is nothing to wait with.
			if p.WithHandle(func(fd uintptr) { awaitReadable(int(fd), until) }) != nil {
				wait(ctx, parentPause)
			}
			p.Release()
		}
		reapOrphans()
	}
	return nil
}

func suffix(err error) string {
	if err == nil || errors.Is(err, os.ErrProcessDone) {
		return ""
	}
	return ": " + err.Error()
}

// lockTree takes the consumer's tree lock. Who holds it is of a handler that has
// not ended by itself; what is left of that is ended, and has ended when lockTree
// returns. Who holds it and cannot be found is waited for.
func (r *dispatcher) lockTree(ctx context.Context, consumer string, q remains, grace time.Duration) (*treeLock, error) {
	t := &treeLock{path: r.treeLockPath(consumer)}
	for waits := false; ; waits = true {
		l, err := lock.Try(t.path, lock.Exclusive)
		if errors.Is(err, lock.ErrHeld) {
			q.tree = t.path
			if err := r.evict(ctx, consumer, q, grace); err != nil {
				return nil, err
			}
			limited, cancel := context.WithTimeout(ctx, evictPause)
			l, err = lock.Open(limited, t.path, lock.Exclusive)
			cancel()
			if err != nil && !waits {
				r.log.Warn("supervise: consumer=%s waits for a process of the handler before, which cannot be found", consumer)
			}
			if waits {
				wait(ctx, time.Second)
			}
		}
		if err == nil {
			t.lock = l
			return t, nil
		}
		if !errors.Is(err, lock.ErrHeld) || ctx.Err() != nil {
			return nil, err
		}
	}
}

// leader is the first process of a handler whose supervisor was killed.
type leader struct {
	p       *os.Process
	elapsed time.Duration // since its start
}

// findLeader returns the handler's first process if it still runs: the one that
// was noted, by its number and its start, unless the environment names another run.
func findLeader(rec *record) *leader {
	pid, began := rec.PID, rec.Began
	if pid == 0 {
		pid, began = unnotedLeader(rec)
	}
	if pid == 0 {
		return nil
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		return nil
	}
	stat, ok := readProcStat(pid)
	if id, marked := runOf(pid); !ok || stat.began != began || marked && id != rec.RunID {
		p.Release()
		return nil
	}
	if p.WithHandle(func(uintptr) {}) != nil {
		p.Release()
		return nil // Linux before 5.3: nothing to wait with
	}
	l := &leader{p: p}
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) == nil {
		l.elapsed = max(0, time.Duration(now.Nano())-time.Duration(stat.began)*10*time.Millisecond) // 100 ticks a second, everywhere
	}
	return l
}

// unnotedLeader finds the first process of a handler whose supervisor was killed
// before it could note which that is: of those with the run's id the first that leads
// a session, and has lost its parent.
func unnotedLeader(rec *record) (pid int, began uint64) {
	if rec.Manual || rec.Consumer == "" {
		return 0, 0 // not of a supervisor that notes it
	}
	names, _ := filepath.Glob("/proc/[0-9]*")
	for _, name := range names {
		n, _ := strconv.Atoi(filepath.Base(name))
		if id, _ := runOf(n); id == "" || id != rec.RunID {
			continue
		}
		p, ok := readProcStat(n)
		if !ok || p.session != n || pid != 0 && p.began >= began {
			continue
		}
		if id, _ := runOf(p.parent); id != rec.RunID {
			pid, began = n, p.began
		}
	}
	return pid, began
}

// wait returns when the process has ended.
func (l *leader) wait() {
	_ = l.p.WithHandle(func(fd uintptr) { awaitReadable(int(fd), time.Time{}) })
}

// signal reaches its group, which has that number as long as it runs.
func (l *leader) signal(sig unix.Signal) {
	if l.p.Signal(sig) == nil {
		_ = unix.Kill(-l.p.Pid, sig)
	}
}

func (l *leader) terminate() { l.signal(unix.SIGTERM) }
func (l *leader) kill()      { l.signal(unix.SIGKILL) }

// reopenOutput opens the pipe that a handler prints into, when nobody is left who
// reads it. It is known by its inode: the handler may have redirected its output.
func reopenOutput(pid int, pipe uint64) *os.File {
	for _, fd := range []string{"1", "2"} {
		path := "/proc/" + strconv.Itoa(pid) + "/fd/" + fd
		var stat unix.Stat_t
		if unix.Stat(path, &stat) != nil || stat.Mode&unix.S_IFMT != unix.S_IFIFO || stat.Ino != pipe {
			continue
		}
		if f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0); err == nil {
			return f
		}
	}
	return nil
}

// inode is that of the pipe.
func (o *output) inode() uint64 {
	info, err := o.reader.Stat()
	if err != nil {
		return 0
	}
	return info.Sys().(*syscall.Stat_t).Ino
}
