package history

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"thread/engine"
)

// Dir is the name of the history in the thread directory that it belongs to.
const Dir = "history"

// DefaultBeat is how often a run says that it lives, and MinBeat how often at most.
const (
	DefaultBeat = 5 * time.Second
	MinBeat     = 50 * time.Millisecond
)

// History is a handle on the history of a thread directory. It is safe for
// concurrent use.
type History struct {
	parent, dir string
	now         func() time.Time
	engine      []engine.Option

	mu sync.Mutex
	t  *engine.Thread // nil: there is none yet
}

// Option configures a handle.
type Option func(*History)

// WithClock sets the clock that stamps rows and says how old a beat is.
func WithClock(now func() time.Time) Option { return func(h *History) { h.now = now } }

// WithEngine sets options of the engine.
func WithEngine(opts ...engine.Option) Option {
	return func(h *History) { h.engine = append(h.engine, opts...) }
}

// Open returns a handle on the history of the thread directory dir. Where there is
// no history yet, the first write makes it, and until then there is nothing to read.
// A directory that was copied gets a workspace id of its own here.
//
// Open returns the errors of [engine.Open].
func Open(ctx context.Context, dir string, opts ...Option) (*History, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	h := &History{parent: abs, dir: filepath.Join(abs, Dir), now: time.Now}
	for _, o := range opts {
		o(h)
	}
	h.engine = append(h.engine, engine.WithClock(h.now))
	if _, err := engine.Open(abs, h.engine...); err != nil {
		return nil, err
	}
	if _, err := h.thread(false); err != nil || h.t == nil {
		return h, err
	}
	return h, h.bind(ctx)
}

// Dir returns the absolute path of the history's directory, which may not be there.
func (h *History) Dir() string { return h.dir }

// Thread returns the thread that the history is in, to read it, to mirror it or to
// subscribe to it; nil where there is none yet. Nobody may push into it.
func (h *History) Thread() (*engine.Thread, error) { return h.thread(false) }

func (h *History) thread(create bool) (*engine.Thread, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.t != nil {
		return h.t, nil
	}
	open := engine.Open
	if create {
		open = engine.OpenOrCreate
	} else if _, err := os.Lstat(filepath.Join(h.dir, "events.db")); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	t, err := open(h.dir, h.engine...)
	if err == nil {
		h.t = t
	}
	return t, err
}

// Update runs fn in one durable write transaction: all rows that it writes, and their
// history events, are stored together or not at all. The errors are fn's and those of
// [engine.Thread.Update].
func (h *History) Update(ctx context.Context, fn func(tx *Tx) error) error {
	t, err := h.thread(true)
	if err != nil {
		return err
	}
	return t.Update(ctx, func(e *engine.Tx) error {
		tx, err := newTx(h, e)
		if err == nil {
			err = tx.ensureWorkspace()
		}
		if err != nil {
			return err
		}
		return fn(tx)
	})
}

// View runs fn in one read transaction, which sees the history as it was at one
// moment; not at all where there is no history yet.
func (h *History) View(ctx context.Context, fn func(tx *Tx) error) error {
	t, err := h.thread(false)
	if err != nil || t == nil {
		return err
	}
	return t.View(ctx, func(e *engine.Tx) error {
		tx, err := newTx(h, e)
		if err != nil {
			return err
		}
		return fn(tx)
	})
}

// Head returns the id of the newest history event, 0 when there is none.
func (h *History) Head(ctx context.Context) (id int64, err error) {
	err = h.View(ctx, func(tx *Tx) error {
		id = tx.e.Head()
		return nil
	})
	return id, err
}

// Put stores one row; see [Tx.Put].
func (h *History) Put(ctx context.Context, r Row) error {
	return h.Update(ctx, func(tx *Tx) error { return tx.Put(r) })
}

// Get fills r with the row of that id. It returns [ErrNotFound].
func (h *History) Get(ctx context.Context, r Row, id string) error {
	found := false
	err := h.View(ctx, func(tx *Tx) (err error) {
		found, err = tx.Get(r, id)
		return err
	})
	if err == nil && !found {
		err = notFound(r.Entity(), id)
	}
	return err
}
