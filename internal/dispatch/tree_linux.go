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

	"thread/internal/command"
	"thread/lock"
)

// adoptOrphans makes this process the one that gets the orphans of those below
// it: a handler's process cannot get away by ending its parent. All that it starts
// it must start with [command.StartOwn], as what else ends here is waited for and forgotten.
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

// orphans returns the child processes that this process has not started.
func orphans() []int {
	if !children.adopts {
		return nil
	}
	return command.Others(func() (list []int) {
		tasks, _ := filepath.Glob("/proc/self/task/*/children") // a kernel without it: they stay until we end
		for _, path := range tasks {
			text, _ := os.ReadFile(path)
			for _, word := range strings.Fields(string(text)) {
				if pid, err := strconv.Atoi(word); err == nil {
					list = append(list, pid)
				}
			}
		}
		return list
	})
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

// lockTree takes the consumer's tree lock. Who holds it is of a handler that has
// not ended by itself; what is left of that is ended, and has ended when lockTree
// returns. Who holds it and cannot be found is waited for.
func (r *dispatcher) lockTree(ctx context.Context, consumer string, q *command.Left, grace time.Duration) (*treeLock, error) {
	t := &treeLock{path: r.treeLockPath(consumer)}
	for waits := false; ; waits = true {
		l, err := lock.Try(t.path, lock.Exclusive)
		if errors.Is(err, lock.ErrHeld) {
			if err := r.evict(ctx, consumer, q, grace); err != nil {
				return nil, err
			}
			limited, cancel := context.WithTimeout(ctx, command.EndPause)
			l, err = lock.Open(limited, t.path, lock.Exclusive)
			cancel()
			switch {
			case err == nil:
			case waits:
				wait(ctx, time.Second)
			default:
				r.log.Warn("supervise: consumer=%s waits for a process of the handler before, which cannot be found", consumer)
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
	p, _ := os.FindProcess(pid) // on Unix it finds every number
	stat, ok := command.ReadStat(pid)
	id, marked := command.RunOf(pid)
	waitable := p.WithHandle(func(uintptr) {}) == nil // from Linux 5.3 on
	if !ok || stat.Began != began || marked && id != rec.RunID || !waitable {
		p.Release()
		return nil
	}
	l := &leader{p: p}
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) == nil {
		l.elapsed = max(0, time.Duration(now.Nano())-time.Duration(stat.Began)*10*time.Millisecond) // 100 ticks a second, everywhere
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
		if id, _ := command.RunOf(n); id == "" || id != rec.RunID {
			continue
		}
		p, ok := command.ReadStat(n)
		if !ok || p.Session != n || pid != 0 && p.Began >= began {
			continue
		}
		if id, _ := command.RunOf(p.Parent); id != rec.RunID {
			pid, began = n, p.Began
		}
	}
	return pid, began
}

// wait returns when the process has ended.
func (l *leader) wait() {
	_ = l.p.WithHandle(func(fd uintptr) { command.AwaitReadable(int(fd), time.Time{}) })
}

// signal reaches its group, which has that number as long as it runs.
func (l *leader) signal(sig unix.Signal) {
	if l.p.Signal(sig) == nil {
		_ = unix.Kill(-l.p.Pid, sig)
	}
}

func (l *leader) terminate() { l.signal(unix.SIGTERM) }
func (l *leader) kill()      { l.signal(unix.SIGKILL) }

// beganAt returns what tells a process from a later one of the same number.
func beganAt(pid int) uint64 {
	p, _ := command.ReadStat(pid)
	return p.Began
}

// reopenOutput opens the pipe that a handler prints into, when no process is left that
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

// inode is the inode of the pipe.
func (o *output) inode() uint64 {
	info, err := o.reader.Stat()
	if err != nil {
		return 0
	}
	return info.Sys().(*syscall.Stat_t).Ino
}
