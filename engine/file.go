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
	"time"

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
	wait, cancel := context.WithDeadlineCause(ctx, time.Now().Add(t.lockWait), ErrBusy)
	defer cancel()
	db := &database{}
	opts := bbolt.Options{
		ReadOnly:     m == lock.Shared,
		NoStatistics: true,
		FreelistType: bbolt.FreelistMapType,
		NoSync:       planted.Bug("no sync"),
		MaxSize:      maxDatabaseBytes,
		// bbolt polls for its lock every 50 ms. On Unix the lock taken here, on the
		// same descriptor, is the same lock, so that bbolt finds it free.
		OpenFile: func(path string, flag int, mode os.FileMode) (_ *os.File, err error) {
			db.file, err = t.lockDatabase(wait, path, flag&^os.O_CREATE, m)
			return db.file, err
		},
	}
	err := guard(func() (err error) {
		db.DB, err = bbolt.Open(t.path(databaseName), fileMode, &opts)
		return err
	})
	if errors.Is(err, lock.ErrHeld) {
		err = context.Cause(wait)
		if errors.Is(err, ErrBusy) {
			err = fmt.Errorf("%w: another process has held it for %v", ErrBusy, t.lockWait)
		}
	}
	if err != nil {
		return nil, err
	}
	return db, nil
}

// lockDatabase opens the file that path names, locks it and checks its header.
// It starts again when the file was replaced while it waited.
func (t *Thread) lockDatabase(ctx context.Context, path string, flag int, m lock.Mode) (*os.File, error) {
	gate, err := t.gate(ctx, m)
	if err != nil {
		return nil, err
	}
	defer gate.close()
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
			err = checkHeader(f)
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

type gate struct{ held *lock.File }

func (g gate) close() {
	if g.held != nil {
		g.held.Close()
	}
}

func (t *Thread) gate(ctx context.Context, m lock.Mode) (gate, error) {
	path := t.path(runName, ".gate")
	f, err := lock.Open(ctx, path, m)
	if errors.Is(err, os.ErrNotExist) && m == lock.Exclusive {
		// run/ may be deleted at any time (contract T-19).
		if err = makeDir(t.path(runName)); err == nil {
			f, err = lock.Open(ctx, path, m)
		}
	}
	switch {
	case errors.Is(err, lock.ErrHeld):
		return gate{}, err
	case err != nil:
		return gate{}, nil
	case m == lock.Shared:
		f.Close() // passing through is enough
		return gate{}, nil
	}
	return gate{f}, nil
}

// read runs fn in a read transaction.
func (t *Thread) read(ctx context.Context, fn func(tx *Tx) error) error {
	db, err := t.open(ctx, lock.Shared)
	if err != nil {
		return err
	}
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
// index, on a damaged page, and not in the code of a caller.
func panicIsInDatabase() bool {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for panicking := false; ; {
		f, more := frames.Next()
		if strings.HasPrefix(f.Function, "runtime.") {
			panicking = true
		} else if panicking {
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
