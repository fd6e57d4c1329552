// Package durable makes names durable: a file or directory that was given one must
// be there under it after a loss of power, with all its bytes.
package durable

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// Rename gives the durable file from the name to, by os.Rename or a similar
// function, and returns when that is durable. Renamed tells whether it has the name; an error then
// means that it may lose it.
//
// On FAT the size of a file is in its directory entry, and a rename makes a new
// entry that is written with the file, not with the directory: unless the file is
// synced once more, a loss of power leaves it empty. And while that entry still
// names the pages of the file that was replaced, those must not be given away: it
// is kept open.
func Rename(from, to string, rename func(from, to string) error) (renamed bool, err error) {
	if old, err := os.Open(to); err == nil {
		defer old.Close()
	}
	if err := rename(from, to); err != nil {
		return false, err
	}
	return true, Named(to)
}

// Named makes the name durable that a file was given by a rename.
func Named(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// copyStep is how much Copy writes between two syncs.
const copyStep = 4 << 20

// Copy copies src to dst and syncs every few MiB: one long sync would hold up all others on
// the disk. Where the file system can, two files share their blocks.
func Copy(ctx context.Context, dst interface {
	io.Writer
	Sync() error
}, src io.Reader) error {
	for {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		n, err := io.CopyN(dst, src, copyStep)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if n > 0 {
			if err := dst.Sync(); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
	}
}

// NamedDir makes the name durable that a directory was given by a rename. On FAT the new entry says
// where the directory begins only when the directory itself is synced after the rename.
func NamedDir(path string) error {
	if err := SyncDir(path); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// MkdirAll is os.MkdirAll, and the names of the directories that it makes are durable.
func MkdirAll(dir string, mode os.FileMode) error {
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		return os.MkdirAll(dir, mode) // nothing, or what is wrong with it
	}
	above := filepath.Dir(dir)
	if err := MkdirAll(above, mode); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, mode); err != nil { // another process may be faster
		return err
	}
	return SyncDir(above)
}

// SyncDir makes new names in dir durable. Some file systems cannot, and say so.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		if errors.Is(err, os.ErrPermission) {
			return nil // a parent that we may pass but not read was not made by us
		}
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}
