package target

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

func rename(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if err == nil {
		return nil
	}
	if err == unix.EINVAL || err == unix.ENOSYS { // the file system, or a kernel before 3.15
		return errors.ErrUnsupported
	}
	return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
}
