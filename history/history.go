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
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/address"
	"thread/lock"
)

// Dir is the name of the history in the thread directory that it belongs to.
const Dir = "history"

// DefaultBeat is how often a run says that it lives, and MinBeat how often at most.
const (
	DefaultBeat = 5 * time.Second
	MinBeat     = 50 * time.Millisecond
)

// Record is one answer: a line of structured log. Text that is empty is null.
type Record struct {
	At                                 time.Time
	Thread                             string // the directory; of the caller, "" from Audit
	Event                              string // the question, or the entity and op of a history event
	SubjectRef, WorkspaceID, SessionID string
	RunID, ParentRunID                 string
	TriggerType, TriggerRef            string
	AgentName, EffectiveAgentName      string
	SwitchCount                        int64 `column:",opt"`
	ToolCallID, SourceType, ToolName   string
	ActionName, HookName, EventName    string
	HistoryEventID                     int64 `column:",opt"`
	Status, ErrorCode, ErrorMessage    string
	DurationMS                         int64 `column:",opt"`
	RequestID, Traceparent             string
	Patch                              json.RawMessage
}

// indexes are the records of the indexes. An error of a server ends a loop over them, and then
// the transaction.
type indexes struct {
	*engine.Records
	failed error
}

// Tx is one transaction on a history. It is valid only during the function it was
// given to, and only on that goroutine.
type Tx struct {
	ctx    context.Context
	h      *History
	e      *engine.Tx
	rows   *engine.Records
	by     *indexes
	pushed map[int64]event.Event // what this transaction has written and has no inline row
	now    time.Time
	notes  []Record                 // for the log
	steps  []string                 // steps whose locks are removed after the commit, if they are free
	beats  map[string]time.Duration // of a thread on a server, nil before they are read
}

// shared is a write that may share its transaction. Its function is called on the goroutine of
// its caller, once or more often.
type shared struct {
	h    *History
	ctx  context.Context
	fn   func(tx *Tx) error
	lead chan struct{}   // closed: it is the next to lead
	turn chan *engine.Tx // what its function is to be called with
	ran  chan bool       // after that: whether it succeeded
	over chan error      // how the transaction ended

	tx   *Tx   // of the last call
	none error // what it returns though the transaction is committed
	gone bool  // its goroutine has ended
}

// end makes the first one that waits the next to lead, after those whose transaction was
// undone have come back.
func (g *group) end(back []*shared) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = append(back, g.waiting...)
	if g.leading = len(g.waiting) > 0; g.leading {
		close(g.waiting[0].lead)
	}
}

// group lets the writes of one handle that wait at the same time share a transaction. The
// first one that waits leads: when it has the database, and its own function has succeeded,
// it hands the transaction to each of the others in turn, and commits for all. A function
// that fails undoes the transaction; it is called again in one that it leads, and so its
// error is about what is stored.
type group struct {
	mu      sync.Mutex
	waiting []*shared
	leading bool
}

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

// noteAttempt writes the attempt of a supervised run into the lock file of its worker. The
// worker is known to be gone when this host has the file of the present attempt and nothing
// has its lock.
func (r *Run) noteAttempt() {
	if r.lock == nil || r.h.of == nil {
		return
	}
	text := fmt.Sprintf("%d\n", r.attempt)
	_, err := r.lock.File().WriteAt([]byte(text), 0)
	_ = errors.Join(err, r.lock.File().Truncate(int64(len(text)))) // without it, the beats decide
}

// Run is a run that this process has started or works for. What it writes is refused
// with [ErrRecovered] once recovery has taken the run away, and with [ErrEnded] once
// it has ended. It is safe for concurrent use.
type Run struct {
	h  *History
	id string
	// attempt is the one that this handle is for; 0 for any.
	attempt  int64
	input    json.RawMessage
	hasInput bool   // input was read
	handler  string // not "": the consumer whose handler it is, to be stored with the first write

	mu     sync.Mutex
	silent bool       // the store has no beat of it
	lock   *lock.File // of a supervised run
	tree   *lock.File // the same; nil as long as a run of Work has no command
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

// threadOnServer is thread for a URL, with h.mu held.
func (h *History) threadOnServer(create bool) (*engine.Thread, error) {
	ctx := context.Background()
	url, err := address.History(h.parent)
	if err != nil {
		return nil, err
	}
	t, err := address.Open(url, h.engine...)
	if err != nil {
		return nil, err
	}
	if create {
		err = address.Init(ctx, url)
		if errors.Is(err, engine.ErrExists) {
			err = nil
		}
	} else {
		err = t.View(ctx, func(*engine.Tx) error { return nil })
	}
	if err != nil {
		_ = t.Close()
	}
	if !create && errors.Is(err, engine.ErrNotThread) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	h.t, h.reads = t, t.WithoutRelease()
	return t, nil
}

func (h *History) beatDir() string { return filepath.Join(h.dir, "run", ".beat") }

func (h *History) makeBeatDir() error {
	dir := h.beatDir()
	if h.of != nil {
		if err := os.MkdirAll(h.dir, 0o700); err != nil {
			return err
		}
	}
	if err := lock.Mkdir(filepath.Dir(dir)); err != nil {
		return err
	}
	return makeDir(dir, h.dir)
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

// run runs fn in the transaction. An error of an index is the error of all.
func (tx *Tx) run(fn func(tx *Tx) error) error {
	err := fn(tx)
	if tx.by.failed != nil {
		return tx.by.failed
	}
	return err
}

func newTx(ctx context.Context, h *History, e *engine.Tx) (*Tx, error) {
	tx := &Tx{ctx: ctx, h: h, e: e, now: h.now().UTC().Truncate(time.Millisecond)}
	if h.of != nil {
		tx.now = e.Now().UTC().Truncate(time.Millisecond) // the clocks of hosts differ
	}
	var err error
	if tx.rows, err = e.Records(tableRows); err == nil {
		tx.by = new(indexes)
		tx.by.Records, err = e.Records(tableBy)
	}
	return tx, err
}

// parentThread returns the thread whose history this is, and what to call at the end.
func (h *History) parentThread() (*engine.Thread, func(), error) {
	if h.of != nil {
		return h.of, func() {}, nil
	}
	t, err := engine.Open(h.parent, h.engine...)
	if err != nil {
		return nil, nil, err
	}
	return t, func() { _ = t.Close() }, nil
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

// The tables, which Rebuild makes again from the log.
const (
	tableRows = "rows" // entity and id -> the history event with the newest version of the row
	tableBy   = "by"   // the indexes
)
