package dispatch

import (
	"errors"
	"os"
	"path/filepath"

	"thread/lock"
)

// Served reports whether a server has the thread directory dir. It creates nothing.
func Served(dir string) bool {
	path := filepath.Join(dir, "run", ".serve")
	if _, err := os.Lstat(path); err != nil {
		return false
	}
	l, err := lock.Try(path, lock.Shared)
	if err != nil {
		return errors.Is(err, lock.ErrHeld)
	}
	_ = l.Close()
	return errors.Is(err, lock.ErrHeld)
}
