//go:build !unix

package lock

import (
	"errors"
	"os"
)

// Create opens the file at path with flag, or creates it with mode 0600.
func Create(path string, flag int) (*os.File, error) {
	return os.OpenFile(path, flag|os.O_CREATE, 0o600)
}

// Mkdir creates the directory at path, if it is not there.
func Mkdir(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}
