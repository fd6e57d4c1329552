package bolt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"thread/internal/store"
	"thread/lock"
)

// gate is the gate in front of the database, held by a writer; or nothing. It
// decides order only: see open.
type gate struct{ held *lock.File }

func (g *gate) close() {
	if g.held != nil {
		g.held.Close()
	}
}

// gate waits at the gate. A reader passes through, a writer holds it.
func (t *Store) gate(ctx context.Context, m lock.Mode) (*gate, error) {
	g, err := t.gateBy(m, func(path string) (*lock.File, error) { return lock.Open(ctx, path, m) })
	return g, t.lockError(ctx, err)
}

// tryGate is gate for a writer, without waiting: it returns nil if there are
// others.
func (t *Store) tryGate() *gate {
	g, _ := t.gateBy(lock.Exclusive, func(path string) (*lock.File, error) { return lock.Try(path, lock.Exclusive) })
	return g
}

func (t *Store) gateBy(m lock.Mode, take func(path string) (*lock.File, error)) (*gate, error) {
	path := t.Path(store.RunName, ".gate")
	f, err := take(path)
	if errors.Is(err, os.ErrNotExist) && m == lock.Exclusive {
		// run/ may be deleted at any time (T-19).
		if err = lock.Mkdir(t.Path(store.RunName)); err == nil {
			f, err = take(path)
		}
	}
	switch {
	case errors.Is(err, lock.ErrHeld):
		return nil, err
	case err != nil:
		return &gate{}, nil
	case m == lock.Shared:
		f.Close() // passing through is enough
		return &gate{}, nil
	}
	return &gate{f}, nil
}

// WriterWaits reports whether a writer stands at the gate, until the readers have
// finished.
func (t *Store) WriterWaits() bool {
	f, err := lock.Try(t.Path(store.RunName, ".gate"), lock.Shared)
	if err != nil {
		return errors.Is(err, lock.ErrHeld)
	}
	f.Close()
	return false
}

// limit bounds how long a call waits for the database.
func (t *Store) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithDeadlineCause(ctx, time.Now().Add(t.LockTimeout), store.ErrBusy)
}

// lockError words the end of a wait for a lock.
func (t *Store) lockError(ctx context.Context, err error) error {
	if !errors.Is(err, lock.ErrHeld) {
		return err
	}
	if err = context.Cause(ctx); errors.Is(err, store.ErrBusy) {
		err = fmt.Errorf("%w: another process has held it for %v", store.ErrBusy, t.LockTimeout)
	}
	return err
}
