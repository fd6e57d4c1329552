package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"go.etcd.io/bbolt"

	"thread/internal/durable"
	"thread/internal/planted"
	"thread/lock"
)

// checkMount is exchanged by tests.
var checkMount = lock.CheckMount

// Init makes dir a thread directory, with its parents where they are missing,
// and returns a handle on it. What is in dir already stays, an events.jsonl too.
// The database appears complete or not at all: a crash leaves a directory that
// Init can be run on again.
//
// Init returns ErrExists when dir has an events.db already, whatever that is,
// ErrNotDir when dir or one of its parents is a file, and ErrNetwork, having made
// nothing.
func Init(dir string, opts ...Option) (*Thread, error) {
	t, err := newThread(dir, opts)
	if err != nil {
		return nil, err
	}
	if err := checkMount(t.dir); err != nil {
		return nil, err
	}
	if err := t.makeDirs(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), t.lockWait)
	defer cancel()
	held, err := lock.Open(ctx, t.path(runName, initLockName), lock.Exclusive)
	if errors.Is(err, lock.ErrHeld) {
		return nil, fmt.Errorf("%w: another init is at work", ErrBusy)
	}
	if err != nil {
		return nil, err
	}
	defer held.Close()
	if err := held.Probe(t.path(runName, initLockName)); err != nil {
		return nil, err
	}
	if _, err := os.Lstat(t.path(databaseName)); err == nil {
		return nil, fmt.Errorf("%w: %s", ErrExists, t.dir)
	}
	f, err := lock.Create(t.path("events.jsonl"), os.O_WRONLY|os.O_APPEND|openNoFollow|openNoWait)
	if err != nil {
		return nil, err
	}
	start := logStart{from: 1}
	if info, serr := f.Stat(); serr == nil {
		start.skip = info.Size()
	}
	if err := errors.Join(lock.Usable(f), f.Close()); err != nil {
		return nil, err
	}
	// The directory's own name must be durable before there is a database in it.
	if err := durable.SyncDir(filepath.Dir(t.dir)); err != nil {
		return nil, err
	}
	err = createDatabase(t.path(databaseName), formatVersion, func(b *bbolt.Tx) error {
		return b.Bucket(bucketMeta).Put(keyLines, start.encode())
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// makeDirs creates the directory, its parents, run/ and logs/.
func (t *Thread) makeDirs() error {
	if _, err := os.Lstat(t.path(databaseName)); err == nil {
		return fmt.Errorf("%w: %s", ErrExists, t.dir)
	}
	for _, dir := range []string{t.dir, t.path(runName), t.path(logsName)} {
		err := makeDir(dir)
		if errors.Is(err, syscall.ENOTDIR) {
			return fmt.Errorf("%w: %s", ErrNotDir, dir)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// makeDir creates a directory with its parents, 0700 whatever the umask.
func makeDir(dir string) error {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		return &os.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
	}
	if err == nil || !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := makeDir(filepath.Dir(dir)); err != nil {
		return err
	}
	return lock.Mkdir(dir) // another process may be faster
}

// createDatabase writes an empty database, lets fill, if there is one, add to it,
// and gives it its name when it is durable. The caller holds a lock that keeps
// others from creating the same one.
func createDatabase(path string, format uint32, fill func(b *bbolt.Tx) error) (err error) {
	tmp := path + ".new"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err // what a crashed init left
	}
	defer func() {
		if err != nil {
			os.Remove(tmp)
		}
	}()
	db, err := bbolt.Open(tmp, fileMode, &bbolt.Options{PageSize: pageBytes, NoStatistics: true,
		OpenFile: func(path string, flag int, _ os.FileMode) (*os.File, error) {
			return lock.Create(path, flag&^os.O_CREATE|os.O_EXCL|openNoFollow)
		}})
	if err != nil {
		return err
	}
	if err := os.Chmod(tmp, fileMode); err != nil { // a umask may take bits away
		return errors.Join(err, db.Close())
	}
	err = db.Update(func(b *bbolt.Tx) error {
		if err := createBuckets(b, format); err != nil || fill == nil {
			return err
		}
		return fill(b)
	})
	if cerr := db.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	// bbolt syncs data; the file's size may need a full sync before the rename.
	f, err := os.OpenFile(tmp, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	err = f.Sync()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return publish(tmp, path)
}

// createBuckets puts what every database has into an empty one.
func createBuckets(b *bbolt.Tx, format uint32) error {
	names := ourBuckets
	if format >= 2 {
		names = slices.Concat(names, typeBuckets)
	}
	for _, name := range names {
		if _, err := b.CreateBucket(name); err != nil {
			return err
		}
	}
	meta := b.Bucket(bucketMeta)
	if err := meta.Put(keyFormat, encodeFormat(format)); err != nil {
		return err
	}
	return meta.Put(keyState, new(state).encode())
}

// publish gives a durable file its name, in the place of what had it. The file
// is there or not when the directory cannot be synced: ErrUnknownOutcome.
func publish(tmp, path string) error {
	if planted.Bug("name not synced") {
		return os.Rename(tmp, path)
	}
	renamed, err := durable.Rename(tmp, path, os.Rename)
	if renamed && err != nil {
		return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	}
	return err
}

// Open returns a handle on the thread directory dir.
//
// Open returns ErrNotThread when dir is no directory or has no events.db,
// ErrSQLite, ErrNotDatabase (ErrEmpty for an empty file), ErrByteOrder or ErrCorrupt when events.db is not one
// of ours, and ErrNetwork. What only the buckets can show, ErrNewerFormat among it, comes from
// the first call that uses the database.
func Open(dir string, opts ...Option) (*Thread, error) {
	t, err := newThread(dir, opts)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(t.path(databaseName), os.O_RDONLY|openNoFollow|openNoWait, 0)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return nil, fmt.Errorf("%w: %s", ErrNotThread, t.dir)
	case err != nil:
		return nil, err
	}
	defer f.Close()
	if err := checkMagic(f); err != nil {
		return nil, err
	}
	if err := checkMount(t.dir); err != nil {
		return nil, err
	}
	return t, nil
}

// OpenOrCreate is Open, and Init where there is no thread yet.
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
	info, err := os.Stat(filepath.Join(dir, databaseName))
	return err == nil && !info.IsDir()
}

// Destroy deletes the thread directory dir with everything in it; there is
// nothing elsewhere. It returns ErrNotThread, deleting nothing, for a directory
// that is none, and ErrNotDir for a symbolic link to one, because who made the link
// may not be who made the directory. Links in it are deleted, and what they lead to
// stays. Handles on it, and handlers that still run, get errors.
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
	// The database goes first: half a deleted directory is no thread.
	if err := os.Remove(filepath.Join(abs, databaseName)); err != nil {
		return err
	}
	return os.RemoveAll(abs)
}
