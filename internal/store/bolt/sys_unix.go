//go:build unix

package bolt

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"thread/internal/store"
)

// changeIdentity returns text that is different for each file, and for one file after
// each change of it.
func changeIdentity(f *os.File) (id string, err error) {
	var st unix.Stat_t
	err = unix.Fstat(int(f.Fd()), &st)
	return fmt.Sprint(st.Dev, st.Ino, st.Size, st.Ctim), err
}

// How files in a thread directory are opened: a symbolic link is not followed,
// and a named pipe in the place of events.db is not waited for.
const (
	OpenNoFollow = syscall.O_NOFOLLOW
	OpenNoWait   = syscall.O_NONBLOCK
)

// canLeaveWrites: an open file can be renamed (pendingwrite.go).
const canLeaveWrites = true

// freedAtOnce is how many bytes of a file that has no name any more are given back in one step.
const freedAtOnce = 32 << 20

// freeSlowly gives the space of a file that was replaced back, from its end, a part at a
// time. At once it would be one transaction of the file system, for which every sync next to it
// waits. A file that has another name stays as it is, and so does one that is not open for
// writing. No process reads it: who locks a file looks then whether it is still the database.
//
// The new name in dir must be durable, which is looked at here again, without exceptions
// for file systems that cannot sync a directory: after a loss of power the old file could
// have its name back, and must have its pages then.
func freeSlowly(f *os.File, dir string) {
	d, err := os.Open(dir)
	if err != nil {
		return
	}
	err = d.Sync()
	d.Close()
	if err != nil {
		return
	}
	info, err := f.Stat()
	if err != nil {
		return
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Nlink != 0 {
		return
	}
	for size := info.Size() - freedAtOnce; size > 0; size -= freedAtOnce {
		if f.Truncate(size) != nil || f.Sync() != nil {
			return // it is all given back when it is closed
		}
	}
}

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
