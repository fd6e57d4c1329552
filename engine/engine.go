// Package engine is the library face of a thread: an event queue that lives in a
// directory. Any number of processes and goroutines may use one directory at
// once.
//
//	t, err := engine.OpenOrCreate("inbox")
//	e, err := t.Push(ctx, event.Draft{Source: "self", Type: "message", Content: "hello"})
//	for e, err := range t.Events(ctx, engine.Query{After: 0, Filter: "type = 'message'"}) { … }
//
// # Words
//
//	event         what was pushed: an id, a time, source, type, subtype and content
//	series        all events of one source, type and subtype
//	consumer      a name under which events are processed, with a separate filter
//	progress      the id up to which a consumer has processed everything: last acked
//	delivery      events handed to a consumer once, which ends with a result
//	dead letter   an event that failed for a consumer as often as its policy allows
//	dedupe key    names a push: another push of the same key within its window stores nothing
//	schedule      pushes an event again and again, at times given as in cron
//
// The words of the format on disk are in package [thread/internal/store/bolt/disk].
//
// # Calls
//
// A handle keeps no file open between calls: every call opens the database,
// runs one short transaction and closes it, because bbolt's lock on an open file
// excludes all other processes. Opening costs some 20 µs at any size, and a fault for each
// page that is read; [WithKeepOpen] spares a long-lived handle both.
//
// A call whose context has ended returns the cause of that and has changed
// nothing, also while it waits, and a long read ends within milliseconds. What has
// begun to write is brought to its end, and its outcome returned: [Thread.Push] returns
// the event then, and no error. [Thread.Update] changes several things in one
// transaction, and with [Tx.Records] records of the caller's own.
//
// The package starts no handlers. After a push of the program "thread" they run by
// themselves; after one of the library, when package [thread/handlers] is told or
// someone runs "thread dispatch". A reader in Go needs none: it ranges over
// [Thread.Events] or [Thread.Follow], calls [Thread.Pop], or takes a [Feed] from
// [Thread.Feed].
//
// Errors wrap the sentinels of this package, [*filter.Error] for an invalid filter,
// [filter.ErrRuntime] for one that failed on an event, and the errors of the
// operating system.
package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"thread/event"
	"thread/internal/store"
	"thread/internal/store/bolt"
	"thread/lock"
)

// DefaultLockWait is how long a call waits for the database when other
// processes use it. The known clients give up after 5 s (T-30).
const DefaultLockWait = bolt.DefaultLockTimeout

// feedLock is a feed's lock. It does not know the feed.
type feedLock struct {
	of   *feedLocks
	path string
	held *lock.File // under of.mu; nil while it is not held
}

// feedLocks are the locks that the feeds of a handle hold. Close of the handle releases them.
type feedLocks struct {
	mu   sync.Mutex
	held map[*feedLock]bool
}

// lastCounts are what a handle counted last.
type lastCounts struct {
	mu    sync.Mutex
	of    map[string]Backlog // by consumer
	parts map[string]keptParts
}

// Thread is a handle on a thread directory. It is safe for concurrent use.
type Thread struct {
	place     store.Place
	url       string // "": a directory
	s         store.Store
	now       func() time.Time
	onRelease func(source string) // nil: none
	quiet     bool                // reads release nothing
	feeds     *feedLocks
	counts    *lastCounts
}

// Option configures a handle.
type Option func(*options)

type options struct {
	bolt.Options
	onRelease func(source string)
}

// WithLockWait sets how long a call waits for the database before it returns
// [ErrBusy]; [DefaultLockWait] without it. The context of a call can end the wait
// sooner.
func WithLockWait(d time.Duration) Option { return func(o *options) { o.LockTimeout = d } }

// clockSkew is how far a clock may be set back without being called wrong.
const clockSkew = 5 * time.Minute

// WithClock sets the clock that stamps events and progress, and decides which
// scheduled events are due, whether the back-off of a failed event has ended, and whether
// a dedupe key has expired. No other decision depends on it. A clock that was ahead for
// a time makes nothing wait longer than was asked for, and keeps nothing from being
// stored.
func WithClock(now func() time.Time) Option { return func(o *options) { o.Now = now } }

// WithOnRelease sets a function that is told when a call has released scheduled
// events in a thread that has subscriptions, whichever call it was: handlers may
// have to be started, which is not the engine's business. It is given the source
// of the last event, nothing is locked meanwhile, and the call returns after it.
func WithOnRelease(fn func(source string)) Option { return func(o *options) { o.onRelease = fn } }

// WithFileCheck sets a function that is shown the open events.db before a call uses
// it, and whose error the call returns. Anyone who can write to the
// directory can replace the file at any time, so that a check by its path may have
// seen another one.
func WithFileCheck(fn func(os.FileInfo) error) Option {
	return func(o *options) { o.CheckFile = fn }
}

// WithKeepOpen keeps the database open and mapped between calls, though not locked: a
// short read costs a fifth then, and other processes use the thread as before. It is for a
// handle that a long-lived program asks often. The handle then holds up to five open
// files between calls, and after a [Thread.Compact] by another process the space of the
// old file until its next call; [Thread.Close] closes them, as does the collector for a
// handle that no caller has any more. It does nothing on Windows, on 32-bit systems and with
// [WithNetworkMount].
func WithKeepOpen() Option { return func(o *options) { o.KeepOpen = true } }

// WithNetworkMount lets [Init] and [Open] accept a directory on a network file
// system, which they refuse with [ErrNetwork] without it. Give it where one host
// alone uses the directory for as long as it lives there: two hosts do not see each
// other's locks or mapped pages, and destroy each other's work without an error. (For
// the program it is the variable THREAD_NETWORK, which the library does not read.)
func WithNetworkMount() Option { return func(o *options) { o.AnyMount = true } }

// Dir returns the absolute, cleaned path of the directory. Symbolic links in it
// are kept.
func (t *Thread) Dir() string { return t.place.Dir }

// URL returns the address of a thread that is on a server, "" for a directory.
func (t *Thread) URL() string { return t.url }

// Address is what --thread takes: the URL or the directory.
func (t *Thread) Address() string { return cmp.Or(t.url, t.place.Dir) }

// Close marks the handle as closed: later calls return [ErrClosed]. Calls under way
// end normally. It releases what [WithKeepOpen] keeps and the consumers of feeds that were
// not closed.
func (t *Thread) Close() error {
	t.feeds.releaseAll()
	return t.s.Close()
}

// releaseAll releases the locks of all feeds.
func (f *feedLocks) releaseAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for l := range f.held {
		l.held.Close()
		l.held = nil
	}
	clear(f.held)
}

// Store returns the store behind the thread, for the packages of this module that copy
// or repair whole threads. It is not part of the promised API.
func (t *Thread) Store() store.Store { return t.s }

// WithoutRelease returns a handle on the same thread whose reads release no scheduled
// events, for a caller that inspects a thread and must leave it unchanged.
func (t *Thread) WithoutRelease() *Thread {
	quiet := *t
	quiet.quiet = true
	return &quiet
}

// Update runs fn in one durable write transaction: when it returns nil, everything fn
// did is stored, and otherwise nothing is. fn must be short, must not call methods of
// a [Thread] on the same directory, and must not keep tx.
//
// Update returns fn's error unchanged, [ErrBusy] when the lock does not come within
// the wait, and [ErrUnknownOutcome]. A panic of fn continues to the caller of Update,
// and runtime.Goexit in fn ends the goroutine; nothing is stored then.
func (t *Thread) Update(ctx context.Context, fn func(tx *Tx) error) error {
	return t.s.Update(ctx, func(s store.Session) error {
		tx := &s.(*session).tx
		return tx.outcome(fn(tx))
	})
}

// View runs fn in one read transaction, which sees the thread as it was at one
// moment. Writers in all processes wait for it, so fn must be short. It works on
// a read-only medium. View returns fn's error unchanged; a panic of fn continues to
// the caller of View.
func (t *Thread) View(ctx context.Context, fn func(tx *Tx) error) error {
	return t.read(ctx, func(tx *Tx) error {
		return store.Call(func() error { return tx.outcome(fn(tx)) })
	})
}

func (t *Thread) filterOf(ctx context.Context, consumer string) (where string, err error) {
	err = t.read(ctx, func(tx *Tx) error {
		s, err := tx.subscription(consumer)
		if err != nil {
			return err
		}
		where = s.Where()
		return nil
	})
	return where, err
}

func (tx *Tx) subscription(consumer string) (*store.Subscription, error) {
	if err := checkConsumer(consumer); err != nil {
		return nil, err
	}
	key := store.ConsumerKey(consumer)
	v, err := tx.s.Get(store.Subscriptions, key)
	if err != nil {
		return nil, err
	}
	if v == nil {
		return nil, fmt.Errorf("%w: %q", ErrNoSubscription, consumer)
	}
	return store.DecodeSubscription(key, v)
}

func invalidf(format string, args ...any) error {
	return store.Invalidf(format, args...)
}

// checkConsumer returns ErrInvalid for what is not an id of a consumer.
func checkConsumer(consumer string) error {
	if consumer == "" {
		return invalidf("consumer is empty")
	}
	if len(consumer) > event.MaxNameBytes {
		return invalidf("consumer is %d bytes long, the limit is %d", len(consumer), event.MaxNameBytes)
	}
	return nil
}

// Errors about the directory, from Init, Open and every call that opens the
// database.
var (
	ErrNotThread   = store.ErrNotThread
	ErrExists      = store.ErrExists
	ErrNotDir      = store.ErrNotDir
	ErrSQLite      = store.ErrSQLite // events.db is a SQLite database
	ErrNotDatabase = store.ErrNotDatabase
	ErrEmpty       = store.ErrEmpty
	ErrNewerFormat = store.ErrNewerFormat
	ErrByteOrder   = store.ErrByteOrder
	ErrTooLarge    = store.ErrTooLarge // 1 GiB where it has 32 bits; also from a write that would make it so
	ErrCorrupt     = store.ErrCorrupt
	ErrOwner       = store.ErrOwner
	// ErrNetwork says that the directory is on a network file system, where two hosts
	// do not see each other's locks or pages. WithNetworkMount continues all the same.
	ErrNetwork = lock.ErrNetwork
)

// eachScheduled calls fn for the entries of the queue, in order, while it returns
// true.
func (tx *Tx) eachScheduled(fn func(key, value []byte) (bool, error)) error {
	return tx.s.Ascend(store.Scheduled, nil, func(k, v []byte) (bool, error) {
		if !store.IsScheduledKey(k) {
			return false, fmt.Errorf("%w: bucket scheduled, key %x", ErrCorrupt, k)
		}
		return fn(k, v)
	})
}

// Errors about one call.
var (
	ErrBusy               = store.ErrBusy // the lock did not come within the wait
	ErrClosed             = store.ErrClosed
	ErrInvalid            = store.ErrInvalid // an argument is out of bounds
	ErrNoSubscription     = errors.New("no such subscription")
	ErrSubscriptionExists = errors.New("subscription exists")
	ErrPaused             = errors.New("subscription is paused")
	// ErrPull says that the consumer has no handler, and is for [Thread.Next] and a Feed
	// without parallel deliveries; ErrNotPull that it has one.
	ErrPull    = errors.New("the consumer has no handler")
	ErrNotPull = errors.New("the consumer has a handler")
	// ErrOut says that events of a consumer are in flight with a Feed: one that works, or one
	// whose process was killed.
	ErrOut = errors.New("events are in flight")
	// ErrConsumerBusy says that another Feed or ParallelFeed, in this process or another,
	// uses the consumer. [Thread.Next] returns it along with ErrOut.
	ErrConsumerBusy = errors.New("another feed uses the consumer")
	// ErrStale: a delivery is no longer in flight. Its result is stored, its events
	// were given out again, or the consumer was moved by hand.
	ErrStale        = errors.New("the delivery is not in flight")
	ErrIDsExhausted = store.ErrIDsExhausted
	// ErrUnknownOutcome says that a commit failed in its very last step: the
	// change may be stored or not. All other errors mean that nothing was.
	ErrUnknownOutcome = store.ErrUnknownOutcome
)

// countPart is how many events match in (after, upto], and created_at of the first of them.
type countPart struct {
	after, upto, count int64
	oldest             string
}

// keptParts are the parts of a consumer. They adjoin, and are valid for one filter, for as long as
// the event with the id seen is the one that was made at that time.
type keptParts struct {
	where string
	parts []countPart
	seen  int64
	at    string
}

// Backlog is how many unread events of a consumer match its filter, and created_at
// of the oldest, "" when there is none.
type Backlog struct {
	Count  int64
	Oldest string
	// Err is why the count of this moment is not known: ErrNoSubscription, *filter.Error,
	// filter.ErrRuntime, or the end of the context. Count and Oldest are then those that
	// this handle counted last.
	Err error
	At  time.Time // when it was counted; zero: never
}
