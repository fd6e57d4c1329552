package command

import (
	"time"

	"golang.org/x/sys/unix"
)

// EndedBySignal reports whether a child that has ended, and was not waited for, was killed by
// a signal.
func EndedBySignal(pid int) bool {
	var info unix.Siginfo
	for unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	return info.Code == cldKilled || info.Code == cldDumped
}

// The values of siginfo.si_code for SIGCHLD.
const (
	cldKilled = 2
	cldDumped = 3
)

// AwaitExit returns when the process, a child or the parent, has ended, and
// leaves a child to be waited for: until then, its process group's number is not
// given to anybody else.
func AwaitExit(pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil { // Linux before 5.3
		for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
		}
		return
	}
	defer unix.Close(fd)
	AwaitReadable(fd, time.Time{})
}

// AwaitReadable waits until the descriptor can be read from, or the time; for ever
// with the zero time.
func AwaitReadable(fd int, until time.Time) {
	for {
		ms := -1
		if !until.IsZero() {
			ms = max(0, int(time.Until(until).Milliseconds())+1)
		}
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, ms); err != unix.EINTR {
			return
		}
	}
}
