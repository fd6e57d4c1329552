//go:build unix

package history

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"thread/lock"
)

// # Other accounts
//
// The history belongs to the account of its thread, which is the which of events.db. A process that
// may write both may use it, but no process takes it away from that account: files are made
// with mode 0600, so a history that another account made, or whose database it replaced
// by pruning, would be closed to its owner. Root may do both, as what root makes is given
// to the owner.

// makeDir makes a directory, if it is not there, for the account that the thread in dir
// belongs to. It returns [ErrOwner], having made nothing, where that cannot be done.
func makeDir(path, dir string) error {
	if err := lock.Mkdir(path); err != nil {
		return err
	}
	of, ok := ownerOf(filepath.Join(dir, "events.db"))
	is, ok2 := ownerOf(path)
	switch {
	case !ok || !ok2 || is.Uid == of.Uid:
		return nil
	case os.Geteuid() == 0:
		return os.Lchown(path, int(of.Uid), int(of.Gid))
	case os.Remove(path) != nil: // it is in use
		return fmt.Errorf("%w: %s belongs to uid %d, and not to uid %d", ErrOwner, path, is.Uid, of.Uid)
	}
	return fmt.Errorf("%w: %s belongs to uid %d, which has to make %s", ErrOwner, dir, of.Uid, filepath.Base(path))
}

// mayReplace returns [ErrOwner] unless this account may put another database in place of
// the history's.
func (h *History) mayReplace() error {
	if h.of != nil {
		return nil // the server decides
	}
	of, ok := ownerOf(filepath.Join(h.dir, "events.db"))
	if uid := os.Geteuid(); !ok || uid == 0 || uint32(uid) == of.Uid {
		return nil
	}
	return fmt.Errorf("%w: %s belongs to uid %d", ErrOwner, h.dir, of.Uid)
}

func ownerOf(path string) (*syscall.Stat_t, bool) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return st, ok
}

// inodeOf returns the number by which the file system knows the directory, "" where
// it has none.
func inodeOf(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "", nil
	}
	return strconv.FormatUint(uint64(st.Ino), 10), nil //nolint:unconvert // its type differs between systems
}
