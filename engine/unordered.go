package engine

import (
	"iter"
	"time"

	"thread/event"
	"thread/filter"
	"thread/internal/store"
)

// An unordered feed (Policy.Unordered) keeps an event that has failed with the
// dead letters that were sent back, so that it holds up nothing. What is due first
// is given out first: an event that waits for a time at that time, an unread one at
// its created_at; of two that are due at once the one with the lower id.

func unixMilli(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// precedes reports whether a retry that may be given out comes before what is
// unread, of which events are the first and read says whether there may be more.
func precedes(l *store.Failures, events []event.Event, more bool) bool {
	if len(events) == 0 {
		return !more
	}
	created, _ := event.ParseTime(events[0].CreatedAt)
	return unixMilli(l.NextAt) <= created
}

// Standing returns the state of an event for a consumer, and what is known of its
// failures.
func (tx *Tx) Standing(consumer string, id int64) (DeliveryState, Failures, error) {
	state, l, err := tx.standing(consumer, id)
	return state, failures(&l), err
}

func (tx *Tx) standing(consumer string, id int64) (DeliveryState, store.Failures, error) {
	return (&standings{tx: tx, consumer: consumer}).of(id)
}

// standings tells the states of some events of a consumer.
type standings struct {
	tx       *Tx
	consumer string

	read bool // what is below
	from int64
	at   store.Delivery
	set  spans
}

func (s *standings) of(id int64) (DeliveryState, store.Failures, error) {
	for _, in := range letterTables {
		key := store.LetterKey(s.consumer, id)
		v, err := s.tx.s.Get(in.table, key)
		if err != nil {
			return Unread, store.Failures{}, err
		}
		if v != nil {
			l, err := store.DecodeLetter(key, v)
			return in.state, l, err
		}
	}
	if err := s.load(); err != nil {
		return Unread, store.Failures{}, err
	}
	if _, above := s.set.find(id); above || id <= s.from {
		return Acked, store.Failures{}, nil
	}
	if setCounts(&s.at, s.from) {
		a, ok, err := s.tx.attempt(s.consumer, id)
		if ok || err != nil {
			return Unread, a.Failures, err
		}
	}
	return Unread, failuresOf(&s.at, id), nil
}

// out reports whether a delivery of an event has begun whose result is not stored.
func (s *standings) out(id int64) (bool, error) {
	if err := s.load(); err != nil {
		return false, err
	}
	if s.at.Count > 0 && s.at.First <= id && id <= s.at.Last {
		return true, nil
	}
	if !setCounts(&s.at, s.from) {
		return false, nil
	}
	a, _, err := s.tx.attempt(s.consumer, id)
	return a.State != store.AttemptWaiting, err
}

func (s *standings) load() error {
	if s.read {
		return nil
	}
	p, _, err := s.tx.Progress(s.consumer)
	if err != nil {
		return err
	}
	s.from = p.From()
	if s.at, err = s.tx.delivery(s.consumer); err != nil {
		return err
	}
	s.set, err = s.tx.settledAbove(s.consumer, &s.at, s.from)
	s.read = err == nil
	return err
}

// Letter is an event that waits to be tried again, or is a dead letter.
type Letter struct {
	ID    int64
	State DeliveryState // Waiting or Dead
	Failures
}

// Letters gives a consumer's events that wait, and then its dead letters, both in
// the order of ids. An error is the last element. The transaction must not be
// written to before the loop has ended.
func (tx *Tx) Letters(consumer string) iter.Seq2[Letter, error] {
	return func(yield func(Letter, error) bool) {
		more := true
		for _, in := range letterTables {
			err := tx.eachLetter(in.table, consumer, func(k, v []byte) (bool, error) {
				_, id, err := store.SplitLetterKey(k)
				if err != nil {
					return false, err
				}
				l, err := store.DecodeLetter(k, v)
				if err != nil {
					return false, err
				}
				more = yield(Letter{ID: id, State: in.state, Failures: failures(&l)}, nil)
				return more, nil
			})
			if err != nil {
				yield(Letter{}, err)
				return
			}
			if !more {
				return
			}
		}
	}
}

// Retry sends the dead letter of an event back to its consumer, as [Thread.RetryDead]
// does. It reports whether there was one.
func (tx *Tx) Retry(consumer string, id int64) (bool, error) { return tx.retryDead(consumer, id) }

// Now returns the time by the clock of the handle.
func (tx *Tx) Now() time.Time { return tx.now() }

// Outcome returns what has become of the events with those ids, in their order: like
// [Tx.Standing], and [Unmatched] for what the filter does not select or what was
// dropped before the consumer came to it. It does not matter who ran the consumer's
// handler. An event on which the filter fails is unread.
//
// Outcome returns [ErrNoSubscription] and [*filter.Error].
func (tx *Tx) Outcome(consumer string, ids ...int64) ([]Outcome, error) {
	s, err := tx.subscription(consumer)
	if err != nil {
		return nil, err
	}
	f, err := filter.Compile(s.Where())
	if err != nil {
		return nil, err
	}
	m := f.Matcher()
	list := make([]Outcome, len(ids))
	all := &standings{tx: tx, consumer: consumer}
	for i, id := range ids {
		o := &list[i]
		o.ID = id
		state, l, err := all.of(id)
		if err != nil {
			return nil, err
		}
		o.State, o.Failures = state, failures(&l)
		if o.Out, err = all.out(id); err != nil {
			return nil, err
		}
		if o.State != Unread {
			continue
		}
		e, ok, err := tx.s.Event(id)
		if err != nil {
			return nil, err
		}
		if !ok {
			o.State = Unmatched
			continue
		}
		row := filter.RowOf(&e)
		if matches, err := m.Match(&row); err == nil && !matches {
			o.State = Unmatched
		}
	}
	return list, nil
}

// Outcome is what has become of an event for one consumer.
type Outcome struct {
	ID    int64
	State DeliveryState
	// Out says that a delivery of it has begun whose result is not stored: its process
	// works on it, or was killed.
	Out bool
	// Failures is what is known of failed attempts, for a dead letter and for an
	// event that waits.
	Failures
}
