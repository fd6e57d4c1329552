//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package dispatch

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"thread/lock"
)

// There is no exact way here to find the processes of a handler: their end is
// waited for, which the tree lock tells. A healthy handler goes on, too.

func adoptOrphans()     {}
func reapOrphans()      {}
func countOrphans() int { return 0 }

type remains struct {
	runID   string
	leader  int
	orphans *orphanScope
	began   uint64
}

func (r *dispatcher) evict(context.Context, string, remains, time.Duration) error { return nil }

// lockTree takes the consumer's tree lock. While it is held, a handler has not ended.
func (r *dispatcher) lockTree(ctx context.Context, consumer string, _ remains, _ time.Duration) (*treeLock, error) {
	path := r.treeLockPath(consumer)
	l, err := lock.Open(ctx, path, lock.Exclusive)
	if err != nil {
		return nil, err
	}
	return &treeLock{path: path, lock: l}, nil
}

// leader is the first process of a handler whose supervisor was killed; it cannot
// be told from another one here.
type leader struct {
	p       *os.Process
	elapsed time.Duration
}

func findLeader(*record) *leader { return nil }
func (l *leader) wait()          {}
func (l *leader) terminate()     {}
func (l *leader) kill()          {}

func reopenOutput(*record) *os.File { return nil }
func (o *output) inode() uint64     { return 0 }

func beganAt(int) uint64 { return 0 }

// endedBySignal is not asked before the process is waited for: nothing is evicted here.
func endedBySignal(int) bool { return false }

// awaitExit returns when the process, a child or the parent, has ended, and
// leaves a child to be waited for: until then, its process group's number is not
// given to anybody else.
func awaitExit(pid int) {
	queue, err := unix.Kqueue()
	if err != nil {
		return // the caller waits as well
	}
	defer unix.Close(queue)
	unix.CloseOnExec(queue)
	var watch unix.Kevent_t
	unix.SetKevent(&watch, pid, unix.EVFILT_PROC, unix.EV_ADD|unix.EV_ONESHOT)
	watch.Fflags = unix.NOTE_EXIT
	var events [1]unix.Kevent_t
	for {
		// ESRCH: it has ended already.
		if _, err := unix.Kevent(queue, []unix.Kevent_t{watch}, events[:], nil); err != unix.EINTR {
			return
		}
	}
}
