// Package history remembers what agents did: sessions, messages, runs and their
// steps, calls of tools, hooks, actions and artifacts (docs/spec/history.md).
//
// The history of the thread directory DIR is a separate thread, DIR/history, made
// when first needed. Every write of a row is a history event there: its source is
// "session:S" or "workspace", its type the entity, its subtype the status, the role
// or "deleted", its content {"op":…,"id":…,"first":…,"row":{…}} with all columns that
// are not null. The tables that answer queries change in the transaction of the
// event, and [History.Rebuild] makes them again from the log.
//
//	h, err := history.Open("inbox")
//	s, err := h.StartSession(ctx, history.SessionRow{SubjectRef: "u1", AgentName: "coder"})
//	run, err := h.StartRun(ctx, history.RunRow{SessionID: s.ID, TriggerType: "message", AgentName: "coder"})
//	ctx, stop := run.Beat(ctx, 0)
//	_, err = run.Step(ctx, history.ModelCall{Request: request, Response: response}.Row())
//	err = run.End(ctx, history.End{Status: history.Completed})
//
// Like the engine, a [History] keeps no file open between calls, except for the lock of
// a supervised run.
package history

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"thread/engine"
	"thread/internal/address"
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
	of          *engine.Thread // the thread on a server whose history this is; nil for a directory
	now         func() time.Time
	engine      []engine.Option
	leaveRuns   bool
	uptime      func() (boot string, up time.Duration) // for limits on starts; nil: by the clock
	log         func(Record)                           // nil: nowhere

	mu sync.Mutex
	t  *engine.Thread // nil: there is none yet
	// reads is t for reading: nothing is scheduled in a history, so no read looks for
	// what is due.
	reads *engine.Thread
	group group

	eventsWaited bool             // by a run, when it was looked last
	lookedTo     map[string]int64 // by the step of a wait for an event: the event up to which was looked

	closed bool
	copied bool // the workspace that was noted lives elsewhere
}

// Option configures a handle.
type Option func(*History)

// WithClock sets the clock that stamps rows and says how old a beat is.
func WithClock(now func() time.Time) Option { return func(h *History) { h.now = now } }

// WithEngine sets options of the engine.
func WithEngine(opts ...engine.Option) Option {
	return func(h *History) { h.engine = append(h.engine, opts...) }
}

// LeaveRuns leaves the runs of handlers that have ended to another handle.
func LeaveRuns() Option { return func(h *History) { h.leaveRuns = true } }

// Open returns a handle on the history of the thread directory dir. Where there is
// no history yet, the first write makes it, and until then there is nothing to read.
// A directory that was copied gets a separate workspace id here, and runs of handlers
// that have ended are taken, see [History.TakeRuns]. History events go as
// [RunRetention] says.
//
// With the URL of a thread on a server, the history is a separate thread there. That needs a
// program that links a driver for the server, and is not part of the promised API.
//
// Open returns the errors of [engine.Open]. Errors of the history's own directory are a
// [*DirError].
func Open(ctx context.Context, dir string, opts ...Option) (*History, error) {
	if address.IsURL(dir) {
		return openServer(ctx, dir, opts)
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	h := &History{parent: abs, dir: filepath.Join(abs, Dir), now: time.Now, uptime: uptime}
	for _, o := range opts {
		o(h)
	}
	h.engine = append(h.engine, engine.WithClock(h.now))
	if _, err := engine.Open(abs, h.engine...); err != nil {
		return nil, err
	}
	_, err = h.thread(false)
	if err == nil && h.t != nil {
		if err = h.bind(ctx); err != nil {
			err = &DirError{h.dir, err}
		}
	}
	if err == nil && !h.leaveRuns {
		_, _ = h.TakeRuns(ctx) // what cannot be taken now waits
		_ = h.retainLater(ctx) // and so do history events that cannot be dropped
	}
	return h, err
}

// Close makes later calls return [engine.ErrClosed], and closes the files that the handle
// keeps open between calls (see [engine.WithKeepOpen]). The collector does so for a handle
// that no caller has any more.
func (h *History) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	if h.of != nil {
		_ = h.of.Close() // it holds connections only
	}
	if h.t == nil {
		return nil
	}
	return h.t.Close()
}

// Dir returns the absolute path of the history's directory, which may not be there; of a thread
// on a server the URL of the history.
func (h *History) Dir() string {
	if h.of == nil {
		return h.dir
	}
	url, _ := address.History(h.parent) // it was opened by it
	return url
}

// Thread returns the thread that the history is in, to read it, to mirror it or to
// subscribe to it; nil where there is none yet. No process may push into it.
func (h *History) Thread() (*engine.Thread, error) { return h.thread(false) }

func (h *History) thread(create bool) (*engine.Thread, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, engine.ErrClosed
	}
	if h.t != nil {
		return h.t, nil
	}
	if h.of != nil {
		return h.threadOnServer(create)
	}
	open, fresh := engine.Open, false
	if _, err := os.Lstat(filepath.Join(h.dir, "events.db")); errors.Is(err, os.ErrNotExist) {
		if !create {
			return nil, nil
		}
		if err := makeDir(h.dir, h.parent); err != nil {
			return nil, err
		}
		open, fresh = engine.OpenOrCreate, true
	}
	t, err := open(h.dir, append(slices.Clip(h.engine), engine.WithKeepOpen())...)
	if err == nil && fresh {
		err = h.makeBeatDir() // now, while it is the owner's
	}
	if err != nil {
		return t, &DirError{h.dir, err}
	}
	h.t, h.reads = t, t.WithoutRelease()
	return t, nil
}

// Update runs fn in one durable write transaction: all rows that it writes, and their
// history events, are stored together or not at all. The errors are fn's, the errors of
// [engine.Thread.Update], and [ErrOwner] where the first write would make a history that
// the thread's owner could not use.
func (h *History) Update(ctx context.Context, fn func(tx *Tx) error) error {
	t, err := h.thread(true)
	if err != nil {
		return err
	}
	c := &shared{h: h, ctx: ctx, fn: fn}
	return c.after(t.Update(ctx, c.run))
}

// View runs fn in one read transaction, which sees the history as it was at one
// moment; not at all where there is no history yet.
func (h *History) View(ctx context.Context, fn func(tx *Tx) error) error {
	t, err := h.thread(false)
	if err != nil || t == nil {
		return err
	}
	return h.reads.View(ctx, func(e *engine.Tx) error {
		tx, err := newTx(ctx, h, e)
		if err != nil {
			return err
		}
		return tx.run(fn)
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
	if m, ok := r.(*MessageRow); ok && h.of != nil {
		orElse(&m.ID, newID(Message))
		ctx = h.wants(ctx, rowKey(Message, m.ID), rowKey(Session, m.SessionID), rowKey(RunEntity, m.RunID))
	}
	return h.Update(ctx, func(tx *Tx) error { return tx.Put(r) })
}

// Get fills r with the row of that id. It returns [ErrNotFound].
func (h *History) Get(ctx context.Context, r Row, id string) error {
	found := false
	err := h.View(h.wants(ctx, rowKey(r.Entity(), id)), func(tx *Tx) (err error) {
		found, err = tx.Get(r, id)
		return err
	})
	if err == nil && !found {
		err = notFound(r.Entity(), id)
	}
	return err
}

// Errors about one call. Errors of the engine come through as they are.
var (
	ErrInvalid = engine.ErrInvalid // a column or an argument is out of bounds

	ErrNotFound = errors.New("no such row")
	ErrExists   = errors.New("row exists")
	// ErrRecovered says that recovery has ended the run, or has given it to another
	// worker: what that worker writes afterwards is not stored.
	ErrRecovered = errors.New("the run was recovered")
	// ErrEnded says that the run has ended, or was never started.
	ErrEnded = errors.New("the run is not active")
	// ErrCancelled is the cause of the end of a run's context when it is to end.
	ErrCancelled = errors.New("the run is to be cancelled")
	// ErrCutOff is the cause of the end of a run's context when its server did not answer for
	// so long that another host may take the run.
	ErrCutOff = errors.New("the server could not be reached, and another host may take the run")
	// ErrState says that a run in this state cannot be what it is asked to be.
	ErrState = errors.New("the run is in another state")
	// ErrActive says that a session has runs that have not ended.
	ErrActive = errors.New("the session has an active run")
	// ErrNoneReady says that no run in the queue may be started now.
	ErrNoneReady = errors.New("no run is ready")
	// ErrOwner says that only the account that the thread belongs to, or root, may do that.
	ErrOwner = errors.New("of another account")
	// ErrOutcome says that a process died during a step that has to happen once.
	ErrOutcome = errors.New("it is unknown whether the step has happened")
	// ErrWaiting says that the answer to a wait of a run is not there yet.
	ErrWaiting = errors.New("the run waits")
	// ErrLimit is wrapped by *LimitError.
	ErrLimit = errors.New("a limit is reached")
)

// DirError is an error about the directory of a history, Dir, which is not one about the
// thread that the history belongs to. It wraps the error of the engine.
type DirError struct {
	Dir string
	Err error
}

func (e *DirError) Error() string { return e.Err.Error() }
func (e *DirError) Unwrap() error { return e.Err }

// HistoryDir returns Dir, for programs that do not link this package.
func (e *DirError) HistoryDir() string { return e.Dir }

func invalidf(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}

func notFound(e Entity, id string) error { return fmt.Errorf("%w: %s %q", ErrNotFound, e, id) }

// corrupt says that the tables and the log do not fit.
func corrupt(e Entity, id string) error {
	return fmt.Errorf("%w: the history of %s %q; thread history rebuild makes its tables again", engine.ErrCorrupt, e, id)
}
