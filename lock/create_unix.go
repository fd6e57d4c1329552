//go:build unix

package lock

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// What root creates in a directory of another account belongs to that account:
// it has to continue to use the thread when root has pushed into it.

// Create opens the file at path with flag, or creates it with mode 0600. A flag
// without O_NOFOLLOW must not be used on a link to nothing.
func Create(path string, flag int) (*os.File, error) {
	if os.Geteuid() != 0 {
		return os.OpenFile(path, flag|os.O_CREATE, 0o600)
	}
	// Only what is surely new is given away. A file that is there may be a link to
	// one that its owner must not get.
	for {
		if flag&os.O_EXCL == 0 {
			if f, err := os.OpenFile(path, flag, 0); !errors.Is(err, os.ErrNotExist) {
				return f, err
			}
		}
		f, err := os.OpenFile(path, flag|os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			if err = give(path, f); err != nil {
				f.Close()
				return nil, err
			}
			return f, nil
		}
		if flag&os.O_EXCL != 0 || !errors.Is(err, os.ErrExist) {
			return nil, err
		}
	}
}

// Mkdir creates the directory at path with mode 0700 whatever the umask, if it is
// not there.
func Mkdir(path string) error {
	err := os.Mkdir(path, 0o700)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if os.Geteuid() == 0 {
		d, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY|NoFollow, 0)
		if err != nil {
			return err
		}
		defer d.Close()
		if err := give(path, d); err != nil {
			return err
		}
	}
	return os.Chmod(path, 0o700)
}

// give gives f, which root has just created, to the owner of the directory that
// it is in. What cannot be given goes, as its owner could not use it.
func give(path string, f *os.File) (err error) {
	defer func() {
		if err != nil {
			_ = os.Remove(path)
		}
	}()
	above, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return err
	}
	to, ok := above.Sys().(*syscall.Stat_t)
	info, err := f.Stat()
	if err != nil {
		return err
	}
	is, ok2 := info.Sys().(*syscall.Stat_t)
	if !ok || !ok2 || is.Uid == to.Uid {
		return nil // as on a file system that has one owner for all
	}
	return f.Chown(int(to.Uid), int(to.Gid))
}
