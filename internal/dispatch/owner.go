package dispatch

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"thread/engine"
	"thread/lock"
)

// # Whose handlers are run
//
// A handler runs with the rights of who starts it, and an account that can write a thread
// chooses its handlers. So an account starts the handlers of no other account's threads:
//
//   - A thread belongs to the account of its events.db, provided that the
//     directory is that account's too, or root's and no other process may change what
//     is in it.
//   - Root starts a dispatch as that account.
//   - Any other account may push, and tell a server that runs; it starts nothing.
//   - Those whose events.db and directory belong to two accounts have no owner.
//
// The exceptions stand in the user's own configuration, see trusted.

// OwnerError says that Path, a thread or a file in one, belongs to another
// account than this process's.
type OwnerError struct {
	Path   string
	Owner  string // the account's name, or its number
	Thread bool   // Path is the thread directory
	Mixed  string // not "": the owner of the directory, while Owner is the owner of events.db
}

func (e *OwnerError) Error() string {
	if e.Mixed != "" {
		return fmt.Sprintf("%s belongs to %s, but its events.db to %s", e.Path, e.Mixed, e.Owner)
	}
	return fmt.Sprintf("%s belongs to %s", e.Path, e.Owner)
}

// Own returns an OwnerError unless this process may run the handlers of the thread
// in dir with its own rights.
func Own(dir string) error {
	_, err := ownerOf(dir)
	if err != nil && trusted(dir) {
		return nil
	}
	return err
}

// OwnFile is Own for the file that each call on the thread in dir has open: between
// a look at a path and its use, others may have put their file there.
func OwnFile(dir string) engine.Option {
	return engine.WithFileCheck(func(info os.FileInfo) error {
		if name, other := otherOwner(info); other && !trusted(dir) {
			return &OwnerError{Path: dir, Owner: name, Thread: true}
		}
		return nil
	})
}

// SafeDirectories returns the path of the file that lists the exceptions, "" when
// there is no place for it.
func SafeDirectories() string {
	base := os.Getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(base) {
		home := os.Getenv("HOME")
		if !filepath.IsAbs(home) {
			return ""
		}
		base = filepath.Join(home, ".config")
	}
	return filepath.Join(base, "thread", "safe-directories")
}

const maxSafeBytes = 1 << 20

// trusted reports whether the user has listed dir in the file of SafeDirectories:
// one absolute path on a line, # begins a comment. The variables that lead to the
// file may be another process's (sudo -E), so it counts only if it belongs to this
// account, or to root, and no other process can write it.
func trusted(dir string) bool {
	path := SafeDirectories()
	if path == "" {
		return false
	}
	f, err := os.OpenFile(path, os.O_RDONLY|lock.NoWait, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() || !isPrivate(info) {
		return false
	}
	for lines := bufio.NewScanner(io.LimitReader(f, maxSafeBytes)); lines.Scan(); {
		line := strings.TrimRight(lines.Text(), " \t\r")
		if filepath.IsAbs(line) && sameDir(line, dir) {
			return true
		}
	}
	return false
}

// troubleName is the file in run/ by which a detached dispatch tells the pushes
// after it what keeps handlers from being started until the account mends it: no process
// reads its error, and its log may be what cannot be written.
const troubleName = ".trouble"

func (r *dispatcher) troublePath() string { return filepath.Join(r.run, troubleName) }

// noteTrouble keeps the error for the next push if it is one of that kind.
func (r *dispatcher) noteTrouble(err error) {
	if foreign := (*OwnerError)(nil); errors.As(ForeignFile(err), &foreign) {
		_ = replaceFile(r.troublePath(), []byte(foreign.Path+"\n"))
	}
}

// trouble returns what was noted and still is so. It costs a push one system call
// when there is nothing.
func (r *dispatcher) trouble() error {
	text, err := lock.ReadFile(r.troublePath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return ForeignFile(err)
	}
	path := strings.TrimSuffix(string(text), "\n")
	if !filepath.IsAbs(path) {
		return nil
	}
	if err = accessible(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return ForeignFile(err)
}

// ForeignFile turns an error of access to a file that belongs to another account
// into an OwnerError, and leaves every other as it is.
func ForeignFile(err error) error {
	var at *fs.PathError
	if !errors.Is(err, fs.ErrPermission) || !errors.As(err, &at) {
		return err
	}
	// What denies access is the file, or the first directory above that may not
	// be passed.
	for path := at.Path; ; path = filepath.Dir(path) {
		info, serr := os.Lstat(path)
		if serr == nil {
			if owner, other := otherOwner(info); other {
				return &OwnerError{Path: path, Owner: owner}
			}
			return err
		}
		if filepath.Dir(path) == path {
			return err
		}
	}
}
