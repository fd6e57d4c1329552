// Package engine is the library face of a thread: an event queue that lives in a
// directory. Any number of processes and goroutines may use one directory at
// once.
//
//	t, err := engine.OpenOrCreate("inbox")
//	e, err := t.Push(ctx, event.Draft{Source: "self", Type: "message", Content: "hello"})
//	for e, err := range t.Events(ctx, engine.Query{After: 0, Filter: "type = 'message'"}) { … }
//
// A handle keeps no file open between calls: every call opens the database,
// runs one short transaction and closes it, because bbolt's lock on an open file
// excludes all other processes. Opening costs some 20 µs at any size.
//
// A call whose context has ended returns the cause of that and has changed
// nothing, also while it waits, and a long read ends within milliseconds. What has
// begun to write is brought to its end, and its outcome returned: Push returns the
// event then, and no error.
//
// The package starts no handlers: after a push of the program "thread" they run by
// themselves, after one of the library when someone runs "thread dispatch". A
// reader in Go needs none: it ranges over Events, pops, or takes a Feed.
//
// Snapshot, Restore and Extra move whole threads in and out. They follow the format
// on disk, and may change when it does.
//
// Errors wrap the sentinels of this package, *filter.Error for a filter that is
// not one, filter.ErrRuntime for one that failed on an event, and the errors of
// the operating system.
package engine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"thread/event"
)

// DefaultLockWait is how long a call waits for the database when other
// processes use it. The known clients give up after 5 s (T-30).
const DefaultLockWait = 4 * time.Second

// Thread is a handle on a thread directory. It is safe for concurrent use.
type Thread struct {
	dir      string
	lockWait time.Duration
	now      func() time.Time
	maxGroup int // drafts in one transaction; less in tests

	// Writes in this process stand in one queue before the database's lock, and
	// what waits together is committed together. See queue.go.
	mu      sync.Mutex
	closed  bool
	waiting []*write
	writing bool

	onRelease func(source string)     // nil: nobody
	checkFile func(os.FileInfo) error // nil: none
	still     bool                    // reads release nothing
}

// Option configures a handle.
type Option func(*Thread)

// WithLockWait sets how long a call waits for the database before it returns
// ErrBusy; DefaultLockWait without it. The context of a call can end the wait
// sooner.
func WithLockWait(d time.Duration) Option { return func(t *Thread) { t.lockWait = d } }

// clockSkew is how far a clock may be set back without being called wrong.
const clockSkew = 5 * time.Minute

// WithClock sets the clock that stamps events and progress, and says which of
// what is scheduled has fallen due, whether the wait of an event that has failed is
// over, and whether a dedupe key still counts. No other decision depends on it, and
// nothing waits, or is kept from being stored, for longer than it was to when the
// clock was ahead for a time.
func WithClock(now func() time.Time) Option { return func(t *Thread) { t.now = now } }

// WithOnRelease sets a function that is told when a call has released scheduled
// events in a thread that has subscriptions, whichever call it was: handlers may
// have to be started, which is not the engine's business. It is given the source
// of the last event, nothing is locked meanwhile, and the call returns after it.
func WithOnRelease(fn func(source string)) Option { return func(t *Thread) { t.onRelease = fn } }

// WithFileCheck sets a function that is shown the open events.db before a call uses
// it, and whose error the call returns. Whoever can write the directory can put
// another file there at any time; what was checked by its path may be another one
// by then.
func WithFileCheck(fn func(os.FileInfo) error) Option {
	return func(t *Thread) { t.checkFile = fn }
}

func newThread(dir string, opts []Option) (*Thread, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	t := &Thread{dir: abs, lockWait: DefaultLockWait, now: time.Now, maxGroup: maxGroup}
	for _, o := range opts {
		o(t)
	}
	return t, nil
}

// Dir returns the absolute, cleaned path of the directory. Symbolic links in it
// are kept.
func (t *Thread) Dir() string { return t.dir }

// Close marks the handle as closed: later calls return ErrClosed. Calls under
// way end normally. There is nothing to release.
func (t *Thread) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	return nil
}

func (t *Thread) isClosed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed
}

// Update runs fn in one durable write transaction: when it returns nil,
// everything fn did is stored, and otherwise nothing is. fn must be short, must
// not call methods of a Thread on the same directory, and must not keep tx.
//
// Update returns fn's error unchanged, ErrBusy when the lock does not come
// within the wait, and ErrUnknownOutcome. A panic of fn goes on to the caller of
// Update, and runtime.Goexit in fn ends the goroutine; nothing is stored then.
func (t *Thread) Update(ctx context.Context, fn func(tx *Tx) error) error {
	return t.write(ctx, &write{fn: fn})
}

// View runs fn in one read transaction, which sees the thread as it was at one
// moment. Writers in all processes wait for it, so fn must be short. It works on
// a read-only medium. View returns fn's error unchanged; a panic of fn goes on to
// the caller of View.
func (t *Thread) View(ctx context.Context, fn func(tx *Tx) error) error {
	return t.read(ctx, func(tx *Tx) error { return callOut(func() error { return fn(tx) }) })
}

func invalidf(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}

func checkConsumer(consumer string) error {
	if consumer == "" {
		return invalidf("consumer is empty")
	}
	if len(consumer) > event.MaxNameBytes {
		return invalidf("consumer is %d bytes long, the limit is %d", len(consumer), event.MaxNameBytes)
	}
	return nil
}
