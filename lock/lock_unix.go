//go:build unix

package lock

import (
	"os"
	"syscall"
)

// How files in a thread directory are opened, in addition to the flags of package os: a
// symbolic link is not followed, and a named pipe is not waited for.
const (
	NoFollow = syscall.O_NOFOLLOW
	NoWait   = syscall.O_NONBLOCK
)

func (m Mode) flag() int {
	if m == Exclusive {
		return syscall.LOCK_EX
	}
	return syscall.LOCK_SH
}

func try(fd uintptr, m Mode) error  { return flock(fd, m.flag()|syscall.LOCK_NB) }
func wait(fd uintptr, m Mode) error { return flock(fd, m.flag()) }

func unlock(fd uintptr) error { return flock(fd, syscall.LOCK_UN) }

func flock(fd uintptr, how int) error {
	for {
		switch err := syscall.Flock(int(fd), how); err {
		case nil:
			return nil
		case syscall.EINTR:
		case syscall.EWOULDBLOCK:
			return ErrHeld
		default:
			return os.NewSyscallError("flock", err)
		}
	}
}
