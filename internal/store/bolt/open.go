package bolt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"thread/index"
	"thread/internal/store"
	"thread/internal/store/bolt/disk"
	"thread/lock"
)

const (
	DatabaseName = "events.db"
	initLockName = ".init" // in run/, like all names of ours with a dot that lock.Name does not give out
	DirMode      = 0o700
	FileMode     = 0o600
)

// database is events.db, locked and open.
type database struct {
	*bbolt.DB
	file *os.File // bbolt's

	Journal

	// A panic came out of bbolt, as damage makes it. It may have left bbolt's own
	// locks held, so that its Close would wait for ever.
	broken bool

	// Of a writer; see synced.go.
	markPath string
	mark     *os.File // open from settle to leaveMark, or nil
	synced   bool     // The newest transaction is on the disk.
	marked   bool     // The mark vouches for it.
}

// Close closes the database, and of one that is broken the file, which gives the lock
// back; its mapping stays until the process ends.
func (db *database) Close() error {
	db.leaveMark()
	defer db.Journal.Close()
	if db.broken {
		return errors.Join(lock.Unlock(db.file), db.file.Close()) // the mapping would keep the lock
	}
	return db.DB.Close()
}

// guard is the function guard for what uses db.
func (db *database) guard(fn func() error) error {
	return Guard(func() error {
		defer func() {
			if r := recover(); r != nil {
				_, callers := r.(store.CallerPanic)
				db.broken = db.broken || !callers
				panic(r)
			}
		}()
		return fn()
	})
}

// open takes the lock and opens the database, waiting at most t.LockTimeout.
//
// Writers hold the gate while they wait for readers to finish, and a reader that
// comes later passes through the gate first, so a steady stream of readers cannot
// keep a writer out. The gate decides order only: without it (a read-only medium,
// run/ just deleted) everything stays right.
func (t *Store) open(ctx context.Context, m lock.Mode) (*database, error) {
	if t.isClosed() {
		return nil, store.ErrClosed
	}
	if ctx.Err() != nil { // between the slices of a long read, too
		return nil, context.Cause(ctx)
	}
	ctx, cancel := t.limit(ctx)
	defer cancel()
	g, err := t.gate(ctx, m)
	if err != nil {
		return nil, err
	}
	defer g.close()
	return t.openNow(ctx, m, 0)
}

// openNow is open without the gate. The caller is about to write that many bytes.
func (t *Store) openNow(ctx context.Context, m lock.Mode, bytes int) (*database, error) {
	db := &database{Journal: Journal{check: t.CheckFile}}
	var lockFile func(flag int) (*os.File, error) // until it is open: bbolt keeps its options
	opts := bbolt.Options{
		ReadOnly:     m == lock.Shared,
		NoStatistics: true,
		FreelistType: bbolt.FreelistMapType,
		MaxSize:      disk.MaxDatabaseBytes,
		// bbolt polls for its lock every 50 ms. On Unix the lock taken here, on the
		// same descriptor, is the same lock, so that bbolt finds it free.
		OpenFile: func(_ string, flag int, _ os.FileMode) (_ *os.File, err error) {
			db.file, err = lockFile(flag &^ os.O_CREATE)
			return db.file, err
		},
	}
	lockFile = func(flag int) (*os.File, error) { return t.lockDatabase(ctx, flag, m, disk.CheckHeader) }
	opts.InitialMmapSize = t.mapSize(bytes)
	err := Guard(func() (err error) {
		db.DB, err = bbolt.Open(t.Path(DatabaseName), FileMode, &opts)
		return err
	})
	if err != nil {
		if db.file != nil {
			_ = lock.Unlock(db.file) // a panic in bbolt left it open and mapped, and so locked
			db.file.Close()
		}
		return nil, t.lockError(ctx, err)
	}
	lockFile = nil // a database that is kept must not know the store
	db.AllocSize = growBytes
	if m == lock.Exclusive {
		if err := db.guard(func() error {
			if err := db.readAll(); err != nil {
				return err
			}
			return db.settle(t.markPath())
		}); err != nil {
			db.Close()
			return nil, err
		}
	}
	return db, nil
}

// mapSize returns how much of events.db is to be mapped before that many bytes are
// written: when the file outgrows what is mapped, bbolt copies all that the
// transaction has put, and does so each time. 0 leaves it to bbolt.
func (t *Store) mapSize(bytes int) int {
	if bytes < mapAheadBytes || disk.MaxDatabaseBytes != 0 {
		return 0 // the map does not fit into 32 bits
	}
	info, err := os.Stat(t.Path(DatabaseName))
	if err != nil {
		return 0
	}
	return int(info.Size()) + 2*bytes
}

const mapAheadBytes = 1 << 20

// growBytes is the step in which a file beyond that size grows. bbolt's 16 MiB
// leave a thread of a million events 8 MiB empty on the average.
const growBytes = 4 << 20

// lockDatabase opens events.db, locks it and checks its start. It starts again
// when the file was replaced while it waited.
func (t *Store) lockDatabase(ctx context.Context, flag int, m lock.Mode, check func(*os.File) error) (*os.File, error) {
	path := t.Path(DatabaseName)
	for {
		f, err := os.OpenFile(path, flag|OpenNoFollow|OpenNoWait, 0)
		if errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("%w: %s", store.ErrNotThread, t.Dir)
		}
		if err != nil {
			return nil, err
		}
		same := false
		if err = lock.Wait(ctx, f, m); err == nil {
			same, err = lock.Names(path, f)
		}
		if err == nil && same {
			err = check(f)
		}
		if err == nil && same && t.CheckFile != nil {
			var info os.FileInfo
			if info, err = f.Stat(); err == nil {
				err = t.CheckFile(info)
			}
		}
		if err == nil && same {
			return f, nil
		}
		f.Close()
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
}

// view runs fn in a read transaction and closes db.
func (t *Store) view(db *database, fn func(tx *Tx) error) error {
	defer db.Close()
	return t.viewOpen(db, fn)
}

// viewOpen runs fn in a read transaction.
func (t *Store) viewOpen(db *database, fn func(tx *Tx) error) error {
	return Guard(func() error {
		b, err := db.Begin(false)
		if err != nil {
			return err
		}
		defer b.Rollback()
		over, err := db.overlay(b)
		if err != nil {
			return err
		}
		if over.Empty() {
			over = nil
		}
		tx, err := newTx(t, b, over)
		if err != nil {
			return err
		}
		return fn(tx)
	})
}

// Guard runs fn with what a damaged file can do to it turned into ErrCorrupt:
// bbolt checks its pages with panics, and the file is mapped, so that a read
// behind its end, or on a failing SD card, is a memory fault.
func Guard(fn func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		switch r := recover().(type) {
		case nil:
		case store.CallerPanic:
			panic(r.Value)
		default:
			err = fmt.Errorf("%w: %v", store.ErrCorrupt, r)
		}
		if errors.Is(err, index.ErrDamaged) {
			err = fmt.Errorf("%w: %w", store.ErrCorrupt, err)
		}
		if errors.Is(err, bolterrors.ErrMaxSizeReached) {
			err = fmt.Errorf("%w: it would exceed %d bytes", store.ErrTooLarge, disk.MaxDatabaseBytes)
		}
	}()
	return fn()
}
