package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"go.etcd.io/bbolt"

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
	f, err := os.OpenFile(t.path("events.jsonl"), os.O_CREATE|os.O_WRONLY|os.O_APPEND|openNoFollow|openNoWait, fileMode)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(lock.Usable(f), f.Close()); err != nil {
		return nil, err
	}
	// The directory's own name must be durable before there is a database in it.
	if err := syncDir(filepath.Dir(t.dir)); err != nil {
		return nil, err
	}
	return t, createDatabase(t.path(databaseName), func(*bbolt.Tx) error { return nil })
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
	return makeOneDir(dir)
}

func makeOneDir(dir string) error {
	if err := os.Mkdir(dir, dirMode); err != nil {
		if errors.Is(err, os.ErrExist) {
			return nil // another process was faster
		}
		return err
	}
	return os.Chmod(dir, dirMode)
}

// createDatabase writes an empty database, lets fill add to it, and gives it its
// name when it is durable. The caller holds a lock that keeps others from
// creating the same one.
func createDatabase(path string, fill func(b *bbolt.Tx) error) (err error) {
	tmp := path + ".new"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err // what a crashed init left
	}
	defer func() {
		if err != nil {
			os.Remove(tmp)
		}
	}()
	db, err := bbolt.Open(tmp, fileMode, &bbolt.Options{PageSize: pageBytes, NoStatistics: true})
	if err != nil {
		return err
	}
	if err := os.Chmod(tmp, fileMode); err != nil { // a umask may take bits away
		return errors.Join(err, db.Close())
	}
	err = db.Update(func(b *bbolt.Tx) error {
		for _, name := range ourBuckets {
			if _, err := b.CreateBucket(name); err != nil {
				return err
			}
		}
		meta := b.Bucket(bucketMeta)
		if err := meta.Put(keyFormat, encodeFormat()); err != nil {
			return err
		}
		if err := meta.Put(keyState, new(state).encode()); err != nil {
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

// publish gives a durable file its name, in the place of what had it. The file
// is there or not when the directory cannot be synced: ErrUnknownOutcome.
func publish(tmp, path string) error {
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	if planted.Bug("name not synced") {
		return nil
	}
	if err := syncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	}
	return nil
}

// syncDir makes new names in dir durable. Some file systems cannot, and say so.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // directories cannot be opened there; NTFS logs its names
	}
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

// Open returns a handle on the thread directory dir.
//
// Open returns ErrNotThread when dir is no directory or has no events.db,
// ErrSQLite, ErrNotDatabase, ErrByteOrder or ErrCorrupt when events.db is not one
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
		return t, err
	}
	return t, checkMount(t.dir)
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
// events.db in it, of whatever kind (seed 000, section 6).
func Exists(dir string) bool {
	info, err := os.Stat(filepath.Join(dir, databaseName))
	return err == nil && !info.IsDir()
}

// Destroy deletes the thread directory dir with everything in it; there is
// nothing elsewhere (contract T-74). It returns ErrNotThread, deleting nothing,
// for a directory that is none. Handles on it, and handlers that still run, get
// errors.
func Destroy(dir string) error {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if !Exists(abs) {
		return fmt.Errorf("%w: %s", ErrNotThread, abs)
	}
	// The database goes first: half a deleted directory is no thread.
	if err := os.Remove(filepath.Join(abs, databaseName)); err != nil {
		return err
	}
	return os.RemoveAll(abs)
}
