// Package store is the seam between what a thread means and where it is kept.
//
// Above it, in package engine, stands what a consumer, a delivery, a dead letter, a
// schedule is: written once, over a [Tx]. Below it stands a store: package bolt keeps
// a thread in a directory. Events are typed; everything else is ordered records in
// tables.
//
// The seam is as high as speed asks for. A push, a scan, a page of events, a batch of
// any length and the dropping of old events are whole operations of the store: how
// callers and processes share a commit, which series answer a filter, how a long batch
// becomes visible at once cannot be said in single gets and puts. What all stores
// share of these is given to them as a [Logic].
//
// Package storetest holds what every store must do.
//
// # Records of fields
//
// The records of subscriptions, deliveries, failures and schedules consist of fields,
// each of them
//
//	tag     uvarint
//	length  uvarint
//	value
//
// A field that is missing is 0 or empty; numbers and times have 8 bytes, big-endian,
// times are milliseconds since 1970.
package store

import (
	"context"
	"iter"
	"maps"
	"time"

	"thread/event"
)

// Store keeps one thread. It is safe for concurrent use by goroutines, and so is the
// thread by processes.
//
// Every method returns the cause of a context that has ended and has changed nothing
// then, [ErrBusy], [ErrClosed], [ErrCorrupt] and the errors of the system below.
type Store interface {
	// View runs fn in a read transaction, which sees the thread as it was at one
	// moment. fn must be short: writers may wait for it.
	View(ctx context.Context, fn func(tx Tx) error) error

	// Update runs fn in a write transaction: when it returns nil, everything that fn
	// did is durable, and nothing otherwise. Updates of a thread come one after the
	// other. fn may be run again, in another transaction, when nothing of the first
	// was stored. It is given what Logic.Write gave.
	//
	// It returns fn's error unchanged, and ErrUnknownOutcome.
	Update(ctx context.Context, fn func(s Session) error) error

	// Push stores drafts durably: all of them, or none. The store may put the drafts of
	// several callers, and processes, into one transaction.
	Push(ctx context.Context, ds []event.Draft) (Pushed, error)

	// PushAll stores a sequence of any length in bounded memory. All of it becomes
	// visible at once, and of one that does not come to its end nothing is left. The
	// sequence's first error is returned unchanged.
	PushAll(ctx context.Context, ds iter.Seq2[event.Draft, error]) (Batch, error)

	// Prune drops the oldest events, and Compact frees the space of what was dropped.
	Prune(ctx context.Context, d Dropping) (Compaction, error)
	Compact(ctx context.Context) (Compaction, error)

	// Close makes later calls return ErrClosed. Calls under way end normally.
	Close() error
}

// Logic is what a store does on behalf of the package above it, in its own
// transactions.
type Logic interface {
	// Write is called once in every write transaction. It releases what has fallen due,
	// unless the transaction is one of a batch, runs fn, and does what follows from what
	// fn pushed, before the commit.
	Write(tx Tx, batch bool, fn func(s Session) error) (Written, error)
	// BeforeBatch is called before a batch that takes more than one transaction, with
	// nothing locked.
	BeforeBatch(ctx context.Context) error
	// Subscribed reports whether there is anybody to be told of a push that another
	// process has stored.
	Subscribed(tx Tx) bool
	// DropAfter removes what Session.Push stored next to events of those above head, at
	// most that many records: they are of a batch that did not come to its end.
	DropAfter(tx Tx, head int64, most int) (more bool, err error)
}

// Written says what is left to do after a write transaction.
type Written struct {
	Subscribed bool   // there is anybody to be told of what was pushed
	Ended      func() // unless nil, is called when the transaction has ended, however, and nothing is locked
}

// Session is a write transaction as the logic sees it.
type Session interface {
	// Push stores one draft with Tx.Append, unless its dedupe key is known: then
	// nothing is stored, and of e only the id is set.
	Push(d *event.Draft, createdAt string) (e event.Event, duplicate bool, err error)
}

// Tx is one transaction. It is valid during the function that it is given to, on
// that goroutine. What it returns may lie in the store's memory, unless it says
// otherwise: it is valid as long as the transaction, and must not be changed.
type Tx interface {
	// Writable reports whether this is a write transaction. In others nothing below
	// that writes is called.
	Writable() bool

	State() State

	Records

	// Append stores a new event, above all others. It returns ErrIDsExhausted after id
	// 2^63-1.
	Append(d *event.Draft, createdAt string) (event.Event, error)
	// Event returns a copy of the event with that id, and whether it is stored and
	// visible.
	Event(id int64) (e event.Event, stored bool, err error)
	// Has is Event for those who do not need it.
	Has(id int64) (bool, error)
	// EventsAfter calls fn for the visible events with an id above after, in order. An
	// event is valid during the call.
	EventsAfter(after int64, fn func(e *event.Event) error) error
	// Oldest returns the id of the oldest event that is stored, 0 when there is none.
	Oldest() (int64, error)
	// BeforeNewest returns the id of the event before the newest n, 0 when there are
	// not more than n.
	BeforeNewest(n int64) (int64, error)

	// Scan calls fn with the ids of matching events, in order, until it returns false.
	// It returns the id up to which everything was searched: q.Upto or the newest id
	// at the end, less when fn ended the scan, or the slice was over. A scan in slices
	// comes further with each.
	Scan(q Scan, fn func(id int64) (more bool, err error)) (pos int64, err error)
	// ScanSeries is a Scan that also gives what the series says: of e only the id,
	// source, type and subtype are set, until read fills in the rest. A store that keeps
	// the series apart does not look at the event before that. What e holds are copies;
	// e itself is valid during the call.
	ScanSeries(q Scan, fn func(e *event.Event, read func() error) (more bool, err error)) (pos int64, err error)
	// Page is a Scan that appends copies of the events to page, at most limit, and
	// fewer when they are large.
	Page(q Scan, limit int64, page []event.Event) (events []event.Event, pos int64, err error)
	// Learn asks the filters of several selections about all series there are, which
	// are read once for all of them. It reports whether it came to the end, or the slice
	// was over. A store where that would be of no use does nothing.
	Learn(all []*Selection) (done bool, err error)
	// SeriesCount returns how many series there are, the distinct triples of source,
	// type and subtype.
	SeriesCount() (int64, error)

	// Yield reports whether a slice has ended. Long work in a read transaction ends then,
	// and continues in another.
	Yield() bool
	// Size returns how many bytes the thread takes.
	Size() int64
	// Unused returns how many of these Compact would give back, or fewer.
	Unused() int64
}

// Ahead is a Tx of a store on a server, where each read is a round trip. ReadAhead reads
// what scans in slices begin with, all in one; each of their next slices ends with that.
type Ahead interface{ ReadAhead(scans []Scan) error }

// Wanted is what a transaction will ask for: records, and the first ones from a key on. A
// store on a server reads them with its first statements, in the same round trip.
type Wanted struct{ Records, From []WantedRecord }

// WantedRecord is a record, or where a loop over records begins.
type WantedRecord struct {
	Table Table
	Key   []byte
}

type wantedKey struct{}

// With returns a context whose transactions want the records.
func (w Wanted) With(ctx context.Context) context.Context {
	return context.WithValue(ctx, wantedKey{}, w)
}

// WantedOf returns the records that With has put into the context.
func WantedOf(ctx context.Context) Wanted {
	w, _ := ctx.Value(wantedKey{}).(Wanted)
	return w
}

// Numbered is a Tx of a store whose series have numbers, from 0 or 1 on without large gaps.
type Numbered interface {
	// ScanNumbers is a Scan that also gives the number of each event's series.
	ScanNumbers(q Scan, fn func(number uint32) error) (pos int64, err error)
	// SeriesFrom calls fn for the series from a number on, in order, until it returns false.
	// The texts are valid as long as the transaction.
	SeriesFrom(number uint32, fn func(number uint32, source, typ string, subtype *string) (more bool, err error)) error
}

// Clock is a Tx of a store with a separate clock, which goes for all hosts.
type Clock interface{ Now() time.Time }

// Watching is a store that says itself when it is written; a directory is watched.
type Watching interface {
	Watch(ctx context.Context) Watcher
}

// Durable is a store that says how many hosts keep what it has confirmed, and how.
type Durable interface {
	Durability(ctx context.Context) (string, error)
}

// Beating is a store that several hosts use, and that keeps signs of life of what runs there,
// under names. Times are by the store's clock.
type Beating interface {
	// Beat stores that what has this name lives now.
	Beat(ctx context.Context, name string) error
	// StopBeat forgets a name.
	StopBeat(ctx context.Context, name string) error
}

// Beats is a Tx of a store that is Beating.
type Beats interface {
	// Beats returns, for all names, how long ago the latest beat was.
	Beats() (map[string]time.Duration, error)
}

// Board is a store that several hosts use, and on which they leave notes for each other, under
// names. Notes are not a part of the thread, and a fail-over may lose them. Times are by the
// store's clock.
type Board interface {
	// PutNote stores a note in place of an earlier one of that name. With wake it ends the
	// waits of watchers.
	PutNote(ctx context.Context, name, text string, wake bool) error
	// Notes returns the notes whose names begin with prefix.
	Notes(ctx context.Context, prefix string) (map[string]Note, error)
	// RemoveNotes removes those that are at least as old.
	RemoveNotes(ctx context.Context, prefix string, older time.Duration) error
	// Holder names the process that has the consumer's turn, "" for none.
	Holder(ctx context.Context, consumer string) (string, error)
}

// A process that serves a thread repeats a note whose name begins with HostNote. A note
// that is older than HostFresh is from a process that is gone.
const (
	HostNote  = "h/"
	HostFresh = 15 * time.Second
)

// Hosts returns the notes of the processes that serve the thread.
func Hosts(ctx context.Context, b Board) (map[string]Note, error) {
	hosts, err := b.Notes(ctx, HostNote)
	maps.DeleteFunc(hosts, func(_ string, n Note) bool { return n.Age > HostFresh })
	return hosts, err
}

// Note is what a host has left on a Board.
type Note struct {
	Text string
	Age  time.Duration
}

// Watcher waits for what is written. It is for one goroutine.
type Watcher interface {
	// Wait returns nil when the thread was written since the last call, or may have
	// been, and when until is reached, unless that is zero. It returns the cause of the
	// end of ctx.
	Wait(ctx context.Context, until time.Time) error
	Close() error
}

// Records are keyed records in tables, ordered by the bytes of their keys. A write
// transaction sees its own writes.
type Records interface {
	// Get returns the value of key, nil when there is none.
	Get(t Table, key []byte) ([]byte, error)
	// Put stores a record in place of an earlier one. Both slices must stay as they are
	// until the end of the transaction.
	Put(t Table, key, value []byte) error
	Delete(t Table, key []byte) error
	// Ascend calls fn for the records with from <= key in order, until it returns
	// false. The table must not change meanwhile.
	Ascend(t Table, from []byte, fn func(key, value []byte) (more bool, err error)) error
	// Descend calls fn for the records with key < before, nil for all, from the last
	// one on.
	Descend(t Table, before []byte, fn func(key, value []byte) (more bool, err error)) error
	// Sequence is a number that a table has next to its records, 0 at first.
	Sequence(t Table) (uint64, error)
	SetSequence(t Table, n uint64) error
	// Drop removes the records of a table, and its number.
	Drop(t Table) error
}

// State is what a transaction begins with.
type State struct {
	Head   int64 // the newest id, 0 if there was never one
	LastID int64 // the highest id ever given, at least Head
	Count  int64 // how many events were ever stored
	Stored int64 // how many of them are still here
	// Visible is the newest id that others see: Head, but in a batch that takes more
	// than one transaction.
	Visible int64
}

// Pushed says what became of the drafts of one Push.
type Pushed struct {
	Events     []event.Event // one for each draft
	Duplicates []Duplicate   // those that were stored before
	Subscribed bool          // Logic.Subscribed
	Warning    error         // they are stored, but a copy for people is behind
}

// Duplicate is a draft that was not stored, because its dedupe key is the key of an
// event that is.
type Duplicate struct {
	Index int64 // of the draft, from 0
	ID    int64 // of the event
}

// Batch says what became of a PushAll: the ids [First, Last] are new, both 0 when
// there was nothing to store.
type Batch struct {
	First, Last int64
	Count       int64 // drafts
	Duplicates  []Duplicate
	CreatedAt   string // of every event
	LastSource  string // of the last event
	Subscribed  bool
	Warning     error
}

// IDs yields, for every draft of a batch in order, the id of its event, and whether the event
// was there before. D is a Duplicate, or one of the same shape.
func IDs[D ~struct{ Index, ID int64 }](first, drafts int64, duplicates []D) iter.Seq2[int64, bool] {
	return func(yield func(int64, bool) bool) {
		next, duplicates := first, duplicates
		for i := range drafts {
			if len(duplicates) > 0 && Duplicate(duplicates[0]).Index == i {
				if !yield(Duplicate(duplicates[0]).ID, true) {
					return
				}
				duplicates = duplicates[1:]
				continue
			}
			if !yield(next, false) {
				return
			}
			next++
		}
	}
}

// Dropping says which events Prune drops: those up to the id that Through returns, 0
// for none. May returns an error when they must stay; it is asked in the transaction
// that drops them, because consumers continue meanwhile. Both run in read transactions.
// With Rotate a store that keeps lines of its events begins a new file of them with the
// next push, where the present one has grown large next to what is kept: a file goes when
// its last event does, and one of 10,000 large events would outlive most of them.
type Dropping struct {
	Through func(tx Tx) (int64, error)
	May     func(tx Tx, through int64) error
	Rotate  bool
}

// Compaction is what Compact and Prune have done.
type Compaction struct {
	Dropped      int64 // events that are not here any more
	Through      int64 // the id up to which they were dropped, 0 when none was
	Kept         int64 // events that are still here
	Before, Size int64 // bytes before and after; the same when nothing was done
}
