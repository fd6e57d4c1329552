//go:build unix

package bolt

import (
	"fmt"
	"os"
	"syscall"

	"thread/internal/store"
)

// keepOwner gives f, which replaces a file, the owner, the group and the mode of that one:
// who could use the thread continues to. Only root can give a file to another account. A
// group that may do nothing with the file need not be kept.
func keepOwner(f *os.File, replaced os.FileInfo) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	is, ok := info.Sys().(*syscall.Stat_t)
	was, ok2 := replaced.Sys().(*syscall.Stat_t)
	if ok && ok2 && (is.Uid != was.Uid || is.Gid != was.Gid) {
		uid := -1
		if is.Uid != was.Uid {
			uid = int(was.Uid)
		}
		if err := f.Chown(uid, int(was.Gid)); err != nil && (uid >= 0 || replaced.Mode().Perm()&0o070 != 0) {
			return fmt.Errorf("%w: uid %d and group %d of %s could not be kept", store.ErrOwner, was.Uid, was.Gid, DatabaseName)
		}
	}
	return f.Chmod(replaced.Mode().Perm())
}

// foreign reports whether a file that was there is not to be given away: it is another
// account's, or may be a link to what its owner must not get.
func foreign(f *os.File, replaced os.FileInfo) bool {
	info, err := f.Stat()
	if err != nil {
		return true
	}
	is, ok := info.Sys().(*syscall.Stat_t)
	was, ok2 := replaced.Sys().(*syscall.Stat_t)
	return ok && ok2 && (is.Nlink > 1 || info.Size() > 0 && is.Uid != was.Uid)
}
