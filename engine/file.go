package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"thread/index"
	"thread/internal/planted"
	"thread/lock"
)

const (
	databaseName = "events.db"
	runName      = "run"
	logsName     = "logs"
	initLockName = ".init" // in run/, like all names of ours with a dot that lock.Name does not give out
	dirMode      = 0o700
	fileMode     = 0o600
)

func (t *Thread) path(elem ...string) string {
	return filepath.Join(append([]string{t.dir}, elem...)...)
}

// database is events.db, locked and open.
type database struct {
	*bbolt.DB
	file *os.File // bbolt's

	// A panic came out of bbolt, as damage makes it. It may have left bbolt's own
	// locks held, so that its Close would wait for ever.
	broken bool
}

// Close closes the database, and of one that is broken the file, which gives the lock
// back; its mapping stays until the process ends.
func (db *database) Close() error {
	if db.broken {
		return errors.Join(lock.Unlock(db.file), db.file.Close()) // the mapping would keep the lock
	}
	return db.DB.Close()
}

// guard is the function guard for what uses db.
func (db *database) guard(fn func() error) error {
	return guard(func() error {
		defer func() {
			if r := recover(); r != nil {
				_, callers := r.(callerPanic)
				db.broken = db.broken || !callers
				panic(r)
			}
		}()
		return fn()
	})
}

// open takes the lock and opens the database, waiting at most t.lockWait.
//
// Writers hold the gate while they wait for readers to finish, and a reader that
// comes later passes through the gate first, so a steady stream of readers cannot
// keep a writer out. The gate decides order only: without it (a read-only medium,
// run/ just deleted) everything stays right.
func (t *Thread) open(ctx context.Context, m lock.Mode) (*database, error) {
	if t.isClosed() {
		return nil, ErrClosed
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

// openNow is open without the gate. The caller is about to write so many bytes.
func (t *Thread) openNow(ctx context.Context, m lock.Mode, bytes int) (*database, error) {
	db := &database{}
	opts := bbolt.Options{
		ReadOnly:     m == lock.Shared,
		NoStatistics: true,
		FreelistType: bbolt.FreelistMapType,
		NoSync:       planted.Bug("no sync"),
		MaxSize:      maxDatabaseBytes,
		// bbolt polls for its lock every 50 ms. On Unix the lock taken here, on the
		// same descriptor, is the same lock, so that bbolt finds it free.
		OpenFile: func(_ string, flag int, _ os.FileMode) (_ *os.File, err error) {
			db.file, err = t.lockDatabase(ctx, flag&^os.O_CREATE, m, checkHeader)
			return db.file, err
		},
	}
	opts.InitialMmapSize = t.mapSize(bytes)
	err := guard(func() (err error) {
		db.DB, err = bbolt.Open(t.path(databaseName), fileMode, &opts)
		return err
	})
	if err != nil {
		if db.file != nil {
			_ = lock.Unlock(db.file) // a panic in bbolt left it open and mapped, and so locked
			db.file.Close()
		}
		return nil, t.heldUp(ctx, err)
	}
	db.AllocSize = growBytes
	return db, nil
}

// mapSize returns how much of events.db is to be mapped before so many bytes are
// written: when the file outgrows what is mapped, bbolt copies all that the
// transaction has put, and does so each time. 0 leaves it to bbolt.
func (t *Thread) mapSize(bytes int) int {
	if bytes < mapAheadBytes || runtime.GOOS == "windows" || maxDatabaseBytes != 0 {
		return 0 // Windows makes the file as large as the map, and 32 bits have no room for one
	}
	info, err := os.Stat(t.path(databaseName))
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
func (t *Thread) lockDatabase(ctx context.Context, flag int, m lock.Mode, check func(*os.File) error) (*os.File, error) {
	path := t.path(databaseName)
	for {
		f, err := os.OpenFile(path, flag|openNoFollow|openNoWait, 0)
		if errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("%w: %s", ErrNotThread, t.dir)
		}
		if err != nil {
			return nil, err
		}
		same := false
		if err = lock.Wait(ctx, f, m); err == nil {
			same, err = lock.Names(path, f)
			same = same || planted.Bug("replaced file not noticed")
		}
		if err == nil && same {
			err = check(f)
		}
		if err == nil && same && t.checkFile != nil {
			var info os.FileInfo
			if info, err = f.Stat(); err == nil {
				err = t.checkFile(info)
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

// read runs fn in a read transaction, after what has fallen due was released.
// Where that cannot be done, as on a read-only medium, fn reads what is there.
func (t *Thread) read(ctx context.Context, fn func(tx *Tx) error) error {
	err := t.readOnce(ctx, !t.still, fn)
	for errors.Is(err, errOverdue) {
		if rerr := t.Update(ctx, func(*Tx) error { return nil }); rerr != nil {
			return t.readOnce(ctx, false, fn)
		}
		err = t.readOnce(ctx, true, fn)
	}
	return err
}

// readOnce runs fn, or with release returns errOverdue when there is something
// to be released first.
func (t *Thread) readOnce(ctx context.Context, release bool, fn func(tx *Tx) error) error {
	db, err := t.open(ctx, lock.Shared)
	if err != nil {
		return err
	}
	return t.view(db, func(tx *Tx) error {
		if release {
			// What is damaged is the business of writers: the rest can be read.
			if overdue, err := tx.overdue(); overdue && err == nil {
				return errOverdue
			}
		}
		return fn(tx)
	})
}

// view runs fn in a read transaction and closes db.
func (t *Thread) view(db *database, fn func(tx *Tx) error) error {
	defer db.Close()
	return guard(func() error {
		b, err := db.Begin(false)
		if err != nil {
			return err
		}
		defer b.Rollback()
		tx, err := newTx(t, b)
		if err != nil {
			return err
		}
		return fn(tx)
	})
}

// guard runs fn with what a damaged file can do to it turned into ErrCorrupt:
// bbolt checks its pages with panics, and the file is mapped, so that a read
// behind its end, or on a card that gives up, is a memory fault.
func guard(fn func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		switch r := recover().(type) {
		case nil:
		case callerPanic:
			panic(r.value)
		default:
			err = fmt.Errorf("%w: %v", ErrCorrupt, r)
		}
		if errors.Is(err, index.ErrDamaged) {
			err = fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		if errors.Is(err, bolterrors.ErrMaxSizeReached) {
			err = fmt.Errorf("%w: it would exceed %d bytes", ErrTooLarge, maxDatabaseBytes)
		}
	}()
	return fn()
}

// callerPanic carries a panic of a function that the caller gave us through
// guard.
type callerPanic struct{ value any }

func callOut(fn func() error) error {
	done := false
	defer func() {
		if done {
			return
		}
		inDatabase := panicIsInDatabase()
		r := recover()
		if r == nil {
			return // runtime.Goexit, which goes on
		}
		// A fault at an address is one in the mapped file, whoever reads it.
		if _, fault := r.(interface{ Addr() uintptr }); fault || inDatabase {
			panic(r)
		}
		panic(callerPanic{r})
	}()
	err := fn()
	done = true
	return err
}

// panicIsInDatabase reports whether the present panic began in bbolt, in the index or
// in one of our methods, on a damaged page, and not in the code of a caller. It is the answer for
// a fault too where a system keeps its address from us, as qemu's user mode does.
func panicIsInDatabase() bool {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for panicking := false; ; {
		f, more := frames.Next()
		if strings.HasPrefix(f.Function, "runtime.") {
			panicking = true
		} else if panicking && !strings.HasPrefix(f.Function, "encoding/binary.") {
			if strings.HasPrefix(f.Function, "thread/engine.(") {
				return true
			}
			for _, pkg := range []string{"go.etcd.io/bbolt", "thread/index"} {
				if rest, ok := strings.CutPrefix(f.Function, pkg); ok && rest != "" && (rest[0] == '.' || rest[0] == '/') {
					return true
				}
			}
			return false
		}
		if !more {
			return false
		}
	}
}
