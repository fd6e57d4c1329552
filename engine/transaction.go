package engine

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"iter"
	"time"

	"thread/event"
	"thread/internal/store"
)

// Tx is one transaction on a thread. It is valid only during the function it was
// given to, and only on that goroutine.
type Tx struct {
	t *Thread
	s store.Tx

	stampAt  int64  // milliseconds since 1970 of
	stampNow string // the latest created_at

	pushes bool // drafts were pushed, if only duplicates
	keyed  int  // dedupe keys added

	readErr error // of the first of the caller's records that could not be read

	ctx context.Context // ends long work in this transaction; nil where there is none
}

func (tx *Tx) now() time.Time {
	if c, ok := tx.s.(store.Clock); ok {
		return c.Now()
	}
	return tx.t.now()
}

// Store returns the store's transaction, for the packages of this module. It is not part of the
// promised API.
func (tx *Tx) Store() store.Tx { return tx.s }

// ended returns an error once the call that the transaction works for is called
// off.
func (tx *Tx) ended() error {
	if tx.ctx == nil || tx.ctx.Err() == nil {
		return nil
	}
	return context.Cause(tx.ctx)
}

// stamp returns created_at of an event that is pushed now. Many share one.
func (tx *Tx) stamp() string {
	now := tx.now()
	if ms := now.UnixMilli(); ms != tx.stampAt || tx.stampNow == "" {
		tx.stampAt, tx.stampNow = ms, event.FormatTime(now)
	}
	return tx.stampNow
}

// Head returns the id of the newest event, 0 when there was never one.
func (tx *Tx) Head() int64 { return tx.s.State().Head }

// Stored returns how many events there are that were not dropped.
func (tx *Tx) Stored() int64 { return tx.s.State().Stored }

// Size returns how many bytes the thread takes: of events.db, in a directory.
func (tx *Tx) Size() int64 { return tx.s.Size() }

// read runs fn in a read transaction, after what has fallen due was released.
// Where that cannot be done, as on a read-only medium, fn reads what is there.
func (t *Thread) read(ctx context.Context, fn func(tx *Tx) error) error {
	err := t.readOnce(ctx, !t.quiet, fn)
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
	return t.s.View(ctx, func(s store.Tx) error {
		tx := &Tx{t: t, s: s}
		if release {
			// What is damaged is the business of writers: the rest can be read.
			if overdue, err := tx.overdue(); overdue && err == nil {
				return errOverdue
			}
		}
		return fn(tx)
	})
}

// logic is what a thread does in the transactions of its store.
type logic struct{ t *Thread }

// session is the thread's part in one write transaction.
type session struct{ tx Tx }

// Event returns the event with that id, as a copy, and whether it is stored. One
// that this transaction has pushed may not be found yet.
func (tx *Tx) Event(id int64) (e event.Event, ok bool, err error) { return tx.s.Event(id) }

// Events gives the events with ids above after in id order. An event is valid until
// the next one is asked for, and nothing may be pushed before the loop has ended. What
// this transaction has pushed may be left out. An error is the last element.
func (tx *Tx) Events(after int64) iter.Seq2[*event.Event, error] {
	return func(yield func(*event.Event, error) bool) {
		err := tx.s.EventsAfter(after, func(e *event.Event) error {
			if !yield(e, nil) {
				return errEnough
			}
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) {
			yield(nil, err)
		}
	}
}

// errEnough ends a loop that its caller has left.
var errEnough = errors.New("enough")

// Records is a table of records of the caller's own, in the order of their keys,
// that changes in the same transaction as the thread. It is valid as long as its Tx.
type Records struct {
	of   *Tx
	tx   store.Tx
	name store.Table
}

// Record is a key and its value. Neither may be changed; both are valid until the
// end of the transaction.
type Record struct{ Key, Value []byte }

// Records returns the table of that name, such as "outbox", and creates it in a write
// transaction. One that is not there is empty in a read transaction. The names of the
// engine's own tables return [ErrInvalid].
func (tx *Tx) Records(name string) (*Records, error) {
	if store.Reserved(store.Table(name)) {
		return nil, invalidf("the name %q is not free for a table", name)
	}
	r := &Records{of: tx, tx: tx.s, name: store.Table(name)}
	if !tx.s.Writable() {
		return r, nil
	}
	// The table is there from now on, even if nothing is put into it.
	n, err := tx.s.Sequence(r.name)
	if err != nil {
		return r, err
	}
	err = tx.s.SetSequence(r.name, n)
	return r, err
}

// outcome returns the error of a function that was given the transaction. What the function made
// of a record that could not be read, as that it is missing, is not the cause.
func (tx *Tx) outcome(err error) error { return cmp.Or(tx.readErr, err) }

// eachLetter calls fn for a consumer's letters in a table, in the order of their
// ids, until fn wants no more.
func (tx *Tx) eachLetter(table store.Table, consumer string, fn func(k, v []byte) (more bool, err error)) error {
	prefix := store.LetterPrefix(consumer)
	return tx.s.Ascend(table, prefix, func(k, v []byte) (bool, error) {
		if !bytes.HasPrefix(k, prefix) {
			return false, nil
		}
		return fn(k, v)
	})
}

// eachAttempt calls fn for what is known of a consumer's events, in their order.
func (tx *Tx) eachAttempt(consumer string, fn func(id int64, a store.Attempt) (more bool, err error)) error {
	return tx.eachLetter(store.Attempts, consumer, func(k, v []byte) (bool, error) {
		_, id, err := store.SplitLetterKey(k)
		if err != nil {
			return false, err
		}
		a, err := store.DecodeAttempt(k, v)
		if err != nil {
			return false, err
		}
		return fn(id, a)
	})
}

// leftRunning reports whether a ParallelFeed was killed with something out.
func (tx *Tx) leftRunning(consumer string) (running bool, err error) {
	return running, tx.eachAttempt(consumer, func(_ int64, a store.Attempt) (bool, error) {
		running = a.State == store.AttemptRunning
		return !running, nil
	})
}

// schedule puts an entry into the queue.
func (tx *Tx) schedule(at time.Time, entry *store.ScheduledEntry) (key []byte, err error) {
	seq, err := tx.s.Sequence(store.Scheduled)
	if err != nil {
		return nil, err
	}
	if err = tx.s.SetSequence(store.Scheduled, seq+1); err != nil {
		return nil, err
	}
	key = store.ScheduledKey(at, seq+1)
	return key, tx.s.Put(store.Scheduled, key, entry.Encode(key))
}

// Get returns the value of the key, nil when there is no such record. It is valid
// until the end of the transaction and must not be changed. A record that cannot be
// read fails the transaction, whatever becomes of it in the function it is given to:
// [Thread.Update] and [Thread.View] return the error.
func (r *Records) Get(key []byte) []byte {
	v, err := r.tx.Get(r.name, key)
	if err != nil && r.of.readErr == nil {
		r.of.readErr = err
	}
	return v
}

// Put stores the record in place of an earlier one of that key. A key has 1 to
// 32,768 bytes. Both slices must stay as they are until the end of the transaction.
func (r *Records) Put(key, value []byte) error {
	if len(key) == 0 || len(key) > maxKeyBytes {
		return invalidf("a key of %d bytes", len(key))
	}
	if !r.tx.Writable() {
		return errReadOnly
	}
	return r.tx.Put(r.name, key, value)
}

// Delete removes the record of the key, if there is one.
func (r *Records) Delete(key []byte) error {
	if !r.tx.Writable() {
		return errReadOnly
	}
	return r.tx.Delete(r.name, key)
}

// Ascend gives the records with from <= key < to in the order of their keys. A nil
// to has no end. The table must not change before the loop has ended. An error is
// the last element.
func (r *Records) Ascend(from, to []byte) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		stopped := false
		err := r.tx.Ascend(r.name, from, func(k, v []byte) (bool, error) {
			if to != nil && bytes.Compare(k, to) >= 0 {
				return false, nil
			}
			stopped = !yield(Record{k, v}, nil)
			return !stopped, nil
		})
		if err != nil && !stopped {
			yield(Record{}, err)
		}
	}
}

// Descend is [Records.Ascend] from the last record to the first.
func (r *Records) Descend(from, to []byte) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		stopped := false
		err := r.tx.Descend(r.name, to, func(k, v []byte) (bool, error) {
			if bytes.Compare(k, from) < 0 {
				return false, nil
			}
			stopped = !yield(Record{k, v}, nil)
			return !stopped, nil
		})
		if err != nil && !stopped {
			yield(Record{}, err)
		}
	}
}

// maxKeyBytes is how long a key may be.
const maxKeyBytes = 32768

// errReadOnly says that a read transaction was to be written to.
var errReadOnly = errors.New("the transaction is for reading")
