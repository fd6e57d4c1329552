package target

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

func rename(from, to string) error {
	err := unix.RenamexNp(from, to, unix.RENAME_EXCL)
	if err == nil {
		return nil
	}
	if err == unix.EINVAL || err == unix.ENOTSUP {
		return errors.ErrUnsupported
	}
	return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
}
