// Package target is about the files and directories that users name for output:
// what is there already stays as it is, and no thread is written into from outside.
//
// The package is internal to this program and makes no promise to library users.
package target

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ErrInThread says that a path lies inside a thread directory.
var ErrInThread = errors.New("inside a thread directory")

// Outside returns ErrInThread for a path inside a thread directory, at any depth
// and by way of any links. The path itself need not exist.
func Outside(path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	here, err := os.Stat(dir)
	for ; err != nil && dir != filepath.Dir(dir); here, err = os.Stat(dir) {
		dir = filepath.Dir(dir) // a path that does not exist yet is not a link
	}
	isDatabase := filepath.Join(dir, "events.db") == path
	for err == nil {
		if holdsThread(dir, isDatabase) {
			return fmt.Errorf("%s is %w", path, ErrInThread)
		}
		// The system's own way up, which is not the text's where there are links.
		dir, isDatabase = dir+"/..", false
		up, uerr := os.Stat(dir)
		if uerr != nil || os.SameFile(here, up) {
			break
		}
		here = up
	}
	return nil
}

// holdsThread reports whether dir is a thread directory, of this program or of the
// TypeScript tool. With isDatabase, the target itself has the name of a database:
// that alone makes its directory none.
func holdsThread(dir string, isDatabase bool) bool {
	if info, err := os.Stat(dir + "/events.db"); err != nil || !info.Mode().IsRegular() {
		return false
	}
	for _, name := range []string{"/run", "/logs", "/events.jsonl"} {
		if _, err := os.Lstat(dir + name); err == nil {
			return true
		}
	}
	return !isDatabase
}

// Rename gives the file from the name to, unless there is something of that name;
// the error then is fs.ErrExist. Unlike os.Rename it never replaces anything.
func Rename(from, to string) error {
	err := rename(from, to)
	if errors.Is(err, errors.ErrUnsupported) {
		return renameByLink(from, to)
	}
	return err
}

// renameByLink is Rename where the system, or the file system, has no such step: a
// link does not replace anything either.
func renameByLink(from, to string) error {
	err := os.Link(from, to)
	if err == nil {
		return os.Remove(from)
	}
	// Perhaps there are no links either, as with some FUSE mounts. Then nothing does
	// this in one step.
	if _, err := os.Lstat(to); err == nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: os.ErrExist}
	}
	return os.Rename(from, to)
}

// HistoryOf returns the thread whose history the thread directory dir is, "" for none.
// What adds, drops or settles events of a history would forge its records.
func HistoryOf(dir string) string {
	if info, err := os.Lstat(dir); err == nil && info.Mode()&os.ModeSymlink != 0 {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			dir = real
		}
	}
	of := filepath.Dir(dir)
	if filepath.Base(dir) != historyDir {
		return ""
	}
	if _, err := os.Lstat(filepath.Join(of, "events.db")); err != nil {
		return "" // it only has the name
	}
	return of
}

// historyDir is the name of the directory in which a thread keeps its history, as of
// package history, which not every program links.
const historyDir = "history"
