//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package dispatch

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"thread/lock"
)

// There is no exact way here to find the processes of a handler: their end is
// waited for, which the tree lock tells. A healthy handler goes on, too.

// lockTree takes the consumer's tree lock. While it is held, a handler has not ended.
func (r *dispatcher) lockTree(ctx context.Context, consumer string, _ remains, _ time.Duration) (*treeLock, error) {
	path := r.treeLockPath(consumer)
	l, err := lock.Open(ctx, path, lock.Exclusive)
	if err != nil {
		return nil, err
	}
	return &treeLock{path: path, lock: l}, nil
}

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
