package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"thread/internal/store/bolt"
)

// Init makes dir a thread directory, with its parents where they are missing,
// and returns a handle on it. What is in dir already stays, an events.jsonl too.
// The database appears complete or not at all: a crash leaves a directory that
// Init can be run on again.
//
// Init returns [ErrExists] when dir has an events.db already, whatever that is,
// [ErrNotDir] when dir or one of its parents is a file, and [ErrNetwork], having made
// nothing.
func Init(dir string, opts ...Option) (*Thread, error) {
	return newThread(func(o bolt.Options) (*bolt.Store, error) { return bolt.Init(dir, o) }, opts)
}

// Open returns a handle on the thread directory dir.
//
// Open returns [ErrNotThread] when dir is not a directory or has no events.db;
// [ErrSQLite], [ErrNotDatabase] ([ErrEmpty] for an empty file), [ErrByteOrder] or
// [ErrCorrupt] when events.db is not a thread's database; and [ErrNetwork]. Errors
// that show only inside the database, such as [ErrNewerFormat], come from the first
// call that uses it.
func Open(dir string, opts ...Option) (*Thread, error) {
	return newThread(func(o bolt.Options) (*bolt.Store, error) { return bolt.Open(dir, o) }, opts)
}

// OpenOrCreate is [Open], and [Init] where there is no thread yet.
func OpenOrCreate(dir string, opts ...Option) (*Thread, error) {
	t, err := Open(dir, opts...)
	if !errors.Is(err, ErrNotThread) {
		return t, err
	}
	if t, err = Init(dir, opts...); errors.Is(err, ErrExists) {
		return Open(dir, opts...) // another process was faster
	}
	return t, err
}

// Exists reports whether dir is a thread directory: a directory with an
// events.db in it, of whatever kind.
func Exists(dir string) bool {
	info, err := os.Stat(filepath.Join(dir, bolt.DatabaseName))
	return err == nil && !info.IsDir()
}

// Destroy deletes the thread directory dir with everything in it; nothing of a thread
// is kept elsewhere. It returns [ErrNotThread], deleting nothing, for a directory
// that is not a thread, and [ErrNotDir] for a symbolic link to one, because the link
// and the directory may have different owners. Links in it are deleted, what they
// lead to stays. Handles on it, and handlers that are running, get errors.
func Destroy(dir string) error {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if !Exists(abs) {
		return fmt.Errorf("%w: %s", ErrNotThread, abs)
	}
	if info, err := os.Lstat(abs); err != nil {
		return err
	} else if !info.IsDir() {
		return fmt.Errorf("%w: %s is a symbolic link", ErrNotDir, abs)
	}
	// The database goes first: half a deleted directory is not a thread.
	if err := os.Remove(filepath.Join(abs, bolt.DatabaseName)); err != nil {
		return err
	}
	return os.RemoveAll(abs)
}
