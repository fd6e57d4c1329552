package engine

import (
	"bytes"
	"context"
	"iter"
	"math"
	"slices"
	"time"

	"thread/event"
	"thread/filter"
	"thread/internal/store"
)

// DeadLetter is an event that a consumer could not process.
type DeadLetter struct {
	Consumer string
	Event    event.Event // only ID is set when the event is not stored any more
	Stored   bool        // the event is still stored
	Failures
}

// DeadLetterQuery selects dead letters.
type DeadLetterQuery struct {
	Consumer string // "": of every consumer, also of those that are not subscribed any more
	ID       int64  // of this event, 0: of every event
	Filter   string // whose events match, "": all. An event that is not stored any more does not match
}

// lettersAtOnce bounds the dead letters that are changed in one transaction, and
// those that are read in one. A variable for the tests.
var lettersAtOnce = 256

// DeadLetters returns the selected dead letters, ordered by consumer and id. They
// are read in slices as they are ranged over, with nothing open or locked
// meanwhile; an error is the last element.
//
// Errors are [*filter.Error], [filter.ErrRuntime], [ErrInvalid] and [ErrBusy].
func (t *Thread) DeadLetters(ctx context.Context, q DeadLetterQuery) iter.Seq2[DeadLetter, error] {
	return func(yield func(DeadLetter, error) bool) {
		w, err := newLetterWalk(q)
		for err == nil && !w.done {
			var some []DeadLetter
			err = t.read(ctx, func(tx *Tx) (err error) {
				some, err = w.slice(tx)
				return err
			})
			for _, l := range some {
				if !yield(l, nil) {
					return
				}
			}
		}
		if err != nil {
			yield(DeadLetter{}, err)
		}
	}
}

// RetryDead sends dead letters back, in one transaction: each is delivered to its
// consumer again before unread events, with its attempts counted from zero. It
// returns how many; a letter that is gone, or whose event is no longer stored, is
// left out.
func (t *Thread) RetryDead(ctx context.Context, letters []DeadLetter) (n int64, err error) {
	err = t.Update(ctx, func(tx *Tx) error {
		n = 0
		for _, l := range letters {
			moved, err := tx.retryDead(l.Consumer, l.Event.ID)
			if err != nil {
				return err
			}
			if moved {
				n++
			}
		}
		return nil
	})
	return n, err
}

func (tx *Tx) retryDead(consumer string, id int64) (bool, error) {
	key := store.LetterKey(consumer, id)
	v, err := tx.s.Get(store.Dead, key)
	if v == nil || err != nil {
		return false, err
	}
	if stored, err := tx.s.Has(id); !stored {
		return false, err
	}
	l, err := store.DecodeLetter(key, v)
	if err != nil {
		return false, err
	}
	l.Round, l.Deferrals, l.DiedAt = 0, 0, time.Time{}
	if err := tx.putLetter(store.Retries, consumer, id, &l); err != nil {
		return false, err
	}
	if err := tx.s.Delete(store.Dead, key); err != nil {
		return false, err
	}
	state, err := tx.delivery(consumer)
	if err != nil {
		return false, err
	}
	state.Retried++
	return true, tx.putDelivery(consumer, &state)
}

// DropDead deletes dead letters, in one transaction, and returns how many there
// were. Their events stay, and stay processed.
func (t *Thread) DropDead(ctx context.Context, letters []DeadLetter) (n int64, err error) {
	err = t.Update(ctx, func(tx *Tx) error {
		n = 0
		for _, l := range letters {
			key := store.LetterKey(l.Consumer, l.Event.ID)
			v, err := tx.s.Get(store.Dead, key)
			if err != nil {
				return err
			}
			if v == nil {
				continue
			}
			if err := tx.s.Delete(store.Dead, key); err != nil {
				return err
			}
			n++
		}
		return nil
	})
	return n, err
}

// letterWalk goes through the selected letters once, in the order of their keys.
// Letters that come meanwhile behind its place are not met, so that a letter that
// is sent back and dies again is not sent back twice.
type letterWalk struct {
	q      DeadLetterQuery
	f      *filter.Filter
	prefix []byte
	next   []byte // the key to continue with
	done   bool
}

func newLetterWalk(q DeadLetterQuery) (*letterWalk, error) {
	f, err := filter.Compile(q.Filter)
	if err != nil {
		return nil, err
	}
	if q.ID < 0 {
		return nil, invalidf("event id is negative")
	}
	w := &letterWalk{q: q, f: f}
	if q.Consumer != "" {
		if err := checkConsumer(q.Consumer); err != nil {
			return nil, err
		}
		w.prefix = store.LetterPrefix(q.Consumer)
	}
	w.next = w.prefix
	return w, nil
}

// slice returns the next letters, with copies of their events, and sets done at
// the end.
func (w *letterWalk) slice(tx *Tx) (some []DeadLetter, err error) {
	w.done = true // unless there turn out to be more
	matcher := w.f.Matcher()
	n, size := 0, 0
	err = tx.s.Ascend(store.Dead, w.next, func(k, v []byte) (more bool, err error) {
		if !bytes.HasPrefix(k, w.prefix) {
			return false, nil
		}
		if n++; n > lettersAtOnce || size >= resultBytes {
			w.next, w.done = slices.Clone(k), false
			return false, nil
		}
		l := DeadLetter{}
		if l.Consumer, l.Event.ID, err = store.SplitLetterKey(k); err != nil {
			return false, err
		}
		if w.q.ID != 0 && w.q.ID != l.Event.ID {
			return true, nil
		}
		f, err := store.DecodeLetter(k, v)
		if err != nil {
			return false, err
		}
		l.Failures = failures(&f)
		if l.Event, l.Stored, err = tx.s.Event(l.Event.ID); err != nil {
			return false, err
		}
		ok, err := w.matches(matcher, &l)
		if ok && err == nil {
			some = append(some, l)
			size += len(l.Event.Content) + 512
		}
		return true, err
	})
	return some, err
}

func (w *letterWalk) matches(m *filter.Matcher, l *DeadLetter) (bool, error) {
	if w.f.Text() == "" {
		return true, nil
	}
	if !l.Stored {
		return false, nil
	}
	row := filter.RowOf(&l.Event)
	return m.Match(&row)
}

// countLetters counts a consumer's letters in a table.
func (tx *Tx) countLetters(table store.Table, consumer string) (n int64, err error) {
	return n, tx.eachLetter(table, consumer, func(_, _ []byte) (bool, error) {
		n++
		return true, nil
	})
}

// newestDeadError returns the last error of a consumer's dead letter with the highest
// id.
func (tx *Tx) newestDeadError(consumer string) (text string, err error) {
	after := append(store.LetterKey(consumer, math.MaxInt64), 0)
	return text, tx.s.Descend(store.Dead, after, func(k, v []byte) (bool, error) {
		if !bytes.HasPrefix(k, store.LetterPrefix(consumer)) {
			return false, nil
		}
		f, err := store.DecodeLetter(k, v)
		text = f.LastError
		return false, err
	})
}
