package engine

import (
	"container/heap"
	"iter"
	"time"

	"thread/event"
	"thread/internal/store"
)

// An unordered feed (Policy.Unordered) keeps an event that has failed with the
// dead letters that were sent back, so that it holds up nothing. What is due first
// is given out first: an event that waits for a time at that time, an unread one at
// its created_at; of two that are due at once the one with the lower id.

// Settled is what has become of the events of a delivery.
type Settled struct {
	First, Last int64 // the ids of its events
	Result      Result
	// Interrupted: the delivery was another process's, who left no result.
	Interrupted bool
	Acked, Dead bool     // neither: they will be given out again
	Failures    Failures // as far as Failures are kept: of a single event that is not acked
}

// notBefore returns when an event is tried again that has just failed.
func (r *Result) notBefore(now time.Time, p *Policy, n int64) time.Time {
	if !r.NotBefore.IsZero() {
		return r.NotBefore
	}
	return now.Add(p.Backoff(n))
}

// wait lets a single event be redelivered when l says. In an unordered feed the others
// continue meanwhile.
func (tx *Tx) wait(consumer string, p *Policy, d *store.Delivery, l store.Failures) error {
	if !p.Unordered {
		d.Failing, d.Letter = d.First, l
		return nil
	}
	clearFailures(d)
	if err := tx.passOver(consumer, d, d.First, []int64{d.First}); err != nil {
		return err
	}
	return tx.putLetter(store.Retries, consumer, d.First, &l)
}

// postpone notes that an event is to come later, which is not a failure.
func postpone(l *store.Failures, r *Result, now time.Time) {
	l.LastAt, l.NextAt = now, r.NotBefore
}

// dueList is what an unordered feed knows of the events that wait, so that it need
// not look at all of them for the one that is due first. An entry may be out of
// date; the letter says whether it is.
type dueList struct {
	loaded  bool
	retried int64 // store.Delivery.Retried when it was loaded
	entries []dueEntry
}

type dueEntry struct {
	at int64 // Failures.NextAt in milliseconds, 0 for now
	id int64
}

func (l *dueList) Len() int      { return len(l.entries) }
func (l *dueList) Swap(i, j int) { l.entries[i], l.entries[j] = l.entries[j], l.entries[i] }
func (l *dueList) Push(e any)    { l.entries = append(l.entries, e.(dueEntry)) }
func (l *dueList) Less(i, j int) bool {
	a, b := &l.entries[i], &l.entries[j]
	if a.at != b.at {
		return a.at < b.at
	}
	return a.id < b.id
}

func (l *dueList) Pop() any {
	e := l.entries[len(l.entries)-1]
	l.entries = l.entries[:len(l.entries)-1]
	return e
}

func unixMilli(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// add notes that an event waits.
func (f *Feed) add(id int64, l *store.Failures, now time.Time) {
	f.waits.end(id, l, now) // from here on by the monotonic clock
	heap.Push(&f.due, dueEntry{at: unixMilli(l.NextAt), id: id})
}

// nextRetry is the retry that may be given out now, by the policy's order.
func (f *Feed) nextRetry(tx *Tx, state *store.Delivery, from int64, now time.Time) (e event.Event, l store.Failures, at time.Time, err error) {
	if !f.policy.Unordered {
		return tx.nextRetry(f.consumer, from, now, f.waits)
	}
	if !f.due.loaded || f.due.retried != state.Retried {
		f.due = dueList{loaded: true, retried: state.Retried}
		err := tx.eachLetter(store.Retries, f.consumer, func(k, v []byte) (bool, error) {
			_, id, err := store.SplitLetterKey(k)
			if err != nil {
				return false, err
			}
			l, err := store.DecodeLetter(k, v)
			if err != nil {
				return true, err
			}
			f.add(id, &l, now)
			return true, nil
		})
		if err != nil {
			f.due.loaded = false
			return e, l, at, err
		}
	}
	for len(f.due.entries) > 0 {
		first := f.due.entries[0]
		key := store.LetterKey(f.consumer, first.id)
		v, err := tx.s.Get(store.Retries, key)
		if err != nil {
			return e, l, at, err
		}
		if v != nil {
			if l, err = store.DecodeLetter(key, v); err != nil {
				return e, l, at, err
			}
		}
		if v == nil || unixMilli(l.NextAt) != first.at || first.id > from {
			heap.Pop(&f.due) // it was settled, or comes by itself: progress was moved back
			continue
		}
		if end := f.waits.end(first.id, &l, now); end.After(now) {
			return e, l, end, nil
		}
		found, ok, err := tx.s.Event(first.id)
		if err != nil || ok {
			return found, l, time.Time{}, err
		}
		heap.Pop(&f.due) // it is not stored any more
	}
	return e, store.Failures{}, at, nil
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

// DeliveryState is what has become of an event for a consumer.
type DeliveryState int

const (
	Unread    DeliveryState = iota // or not yet settled
	Waiting                        // to be tried again: it has failed, was postponed, or sent back
	Dead                           // a dead letter
	Acked                          // or passed over, because the filter did not match
	Unmatched                      // will never be delivered; only Outcome tells
)

// Standing returns the state of an event for a consumer, and what is known of its
// failures.
func (tx *Tx) Standing(consumer string, id int64) (DeliveryState, Failures, error) {
	state, l, err := tx.standing(consumer, id)
	return state, failures(&l), err
}

// letterTables are where letters lie, and what it means for them.
var letterTables = []struct {
	table store.Table
	state DeliveryState
}{{store.Retries, Waiting}, {store.Dead, Dead}}

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
