//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package command

import "golang.org/x/sys/unix"

// AwaitExit returns when the process, a child or the parent, has ended, and
// leaves a child to be waited for: until then, its process group's number is not
// given to anybody else.
func AwaitExit(pid int) {
	queue, err := unix.Kqueue()
	if err != nil {
		return // a caller that needs the end waits for it
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
