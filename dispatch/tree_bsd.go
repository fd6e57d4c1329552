//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package dispatch

import (
	"context"

	"golang.org/x/sys/unix"

	"thread/lock"
)

// takeTree takes the consumer's tree lock. When it is held, a handler has
// not ended by itself, and the end of what is left of it is waited for: there is no exact way to
// find its processes here.
func (r *room) takeTree(ctx context.Context, consumer string) (*tree, error) {
	path := r.treePath(consumer)
	l, err := lock.Open(ctx, path, lock.Exclusive)
	if err != nil {
		return nil, err
	}
	return &tree{path: path, lock: l}, nil
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
