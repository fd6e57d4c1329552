package lock

import (
	"os"

	"golang.org/x/sys/windows"
)

// Windows has neither flag; making a symbolic link takes a privilege there.
const (
	NoFollow = 0
	NoWait   = 0
)

// The locked byte lies far behind any content, because Windows locks keep
// others from reading what they cover.
const lockOffsetHigh = 1 << 30

func (m Mode) flag() uint32 {
	if m == Exclusive {
		return windows.LOCKFILE_EXCLUSIVE_LOCK
	}
	return 0
}

func try(fd uintptr, m Mode) error {
	return lockFile(fd, m.flag()|windows.LOCKFILE_FAIL_IMMEDIATELY)
}
func wait(fd uintptr, m Mode) error { return lockFile(fd, m.flag()) }

func unlock(fd uintptr) error {
	at := windows.Overlapped{OffsetHigh: lockOffsetHigh}
	return os.NewSyscallError("UnlockFileEx", windows.UnlockFileEx(windows.Handle(fd), 0, 1, 0, &at))
}

func lockFile(fd uintptr, flags uint32) error {
	at := windows.Overlapped{OffsetHigh: lockOffsetHigh}
	switch err := windows.LockFileEx(windows.Handle(fd), flags, 0, 1, 0, &at); err {
	case nil:
		return nil
	case windows.ERROR_LOCK_VIOLATION:
		return ErrHeld
	default:
		return os.NewSyscallError("LockFileEx", err)
	}
}
