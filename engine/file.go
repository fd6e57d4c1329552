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
	ctx, cancel := t.limit(ctx)
	defer cancel()
	g, err := t.gate(ctx, m)
	if err != nil {
		return nil, err
	}
	defer g.close()
	return t.openNow(ctx, m)
}

// openNow is open without the gate.
func (t *Thread) openNow(ctx context.Context, m lock.Mode) (*database, error) {
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

// panicIsInDatabase reports whether the present panic began in bbolt or in the
// index, on a damaged page, and not in the code of a caller. It is the answer for
// a fault too where a system keeps its address from us, as qemu's user mode does.
func panicIsInDatabase() bool {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for panicking := false; ; {
		f, more := frames.Next()
		if strings.HasPrefix(f.Function, "runtime.") {
			panicking = true
		} else if panicking && !strings.HasPrefix(f.Function, "encoding/binary.") {
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
