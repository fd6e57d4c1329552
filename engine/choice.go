package engine

import (
	"container/heap"
	"context"
	"math"
	"time"

	"thread/event"
	"thread/filter"
	"thread/internal/store"
)

// view searches in read transactions, short ones, until there is something to give
// out or nothing is left to look at.
func (l *choice) view(ctx context.Context) (ready bool, err error) {
	for {
		err := l.feed.t.read(ctx, func(tx *Tx) error {
			state, err := tx.delivery(l.feed.consumer)
			if err != nil {
				return err
			}
			end, err := l.feed.held(tx, &state)
			if err != nil || !end.IsZero() {
				l.notBefore, l.done = end, true
				return err
			}
			d, err := l.choose(tx, &state)
			if !l.feed.adopted && err == nil {
				left, lerr := tx.leftRunning(l.feed.consumer)
				l.feed.adopted, err = !left, lerr
			}
			ready = len(d.Events) > 0 || (state.Count > 0 || !l.feed.adopted) && err == nil
			return err
		})
		if err != nil || ready || l.done {
			return ready, err
		}
	}
}

// choose returns what is to be given out next, nothing when there is nothing or
// when the time for a search has ended and done is not set. It writes nothing.
func (l *choice) choose(tx *Tx, state *store.Delivery) (Delivery, error) {
	l.notBefore, l.done = time.Time{}, false
	s, err := tx.subscription(l.feed.consumer)
	if err != nil {
		return Delivery{}, err
	}
	if s.Paused {
		return Delivery{}, ErrPaused
	}
	p, _, err := tx.Progress(s.Consumer)
	if err != nil {
		return Delivery{}, err
	}
	now := tx.now()
	e, letter, at, err := l.feed.nextRetry(tx, state, p.From(), now)
	if err != nil {
		return Delivery{}, err
	}
	retry := Delivery{Events: []event.Event{e}, Attempt: letter.Attempts + 1, Retry: true}
	if e.ID != 0 && !l.feed.policy.Unordered {
		return retry, nil
	}
	l.notBefore = at
	failing := state.Failing > p.From()
	if failing {
		if end := l.feed.waits.end(state.Failing, &state.Letter, now); end.After(now) {
			l.notBefore, l.done = earlier(l.notBefore, end), true
			return Delivery{}, nil
		}
	}
	if l.selection == nil || l.where != s.Where() || l.from != p.From() {
		f, err := filter.Compile(s.Where())
		if err != nil {
			return Delivery{}, err
		}
		l.where, l.from, l.selection = s.Where(), p.From(), store.NewSelection(f, nil)
		l.pos = max(l.from, tx.checkedUpTo(s, l.from))
	}
	skip, err := tx.settledAbove(s.Consumer, state, p.From())
	if err != nil {
		return Delivery{}, err
	}
	r := reading{t: tx.t, skip: skip, selection: l.selection, after: l.pos, upto: math.MaxInt64, limit: l.feed.policy.Limit}
	events, err := r.slice(tx)
	if err != nil {
		return Delivery{}, err
	}
	if e.ID != 0 && precedes(&letter, events, !r.done()) {
		return retry, nil
	}
	if len(events) == 0 {
		l.pos, l.done = r.after, r.done()
		return Delivery{}, nil
	}
	events, a, err := tx.cutAtAttempt(s.Consumer, events)
	if err != nil {
		return Delivery{}, err
	}
	if a != nil {
		if end := l.feed.waits.end(events[0].ID, &a.Failures, now); end.After(now) {
			l.notBefore, l.done = earlier(l.notBefore, end), true
			return Delivery{}, nil
		}
		return Delivery{Events: events, Attempt: a.Attempts + 1}, nil
	}
	d := Delivery{Events: l.cut(events, state, failing)}
	if len(d.Events) == 1 {
		d.Attempt = failuresOf(state, d.Events[0].ID).Attempts + 1
	}
	return d, nil
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

// cut keeps an event that has failed alone, and halves what is left of a group
// that has.
func (l *choice) cut(events []event.Event, state *store.Delivery, failing bool) []event.Event {
	if failing && state.Letter.Round > 0 {
		if events[0].ID == state.Failing {
			return events[:1]
		}
		events = events[:before(events, state.Failing)]
	}
	if n := before(events, state.Suspect+1); n > 0 {
		return events[:(n+1)/2]
	}
	return events
}

// before counts the events with an id below id. They are in order.
func before(events []event.Event, id int64) int {
	n := 0
	for n < len(events) && events[n].ID < id {
		n++
	}
	return n
}

// nextRetry returns the first dead letter of consumer that was sent back and may
// be tried now, and when the earliest of the others may. One above from is left
// out: progress was moved back, and it comes by itself.
func (tx *Tx) nextRetry(consumer string, from int64, now time.Time, w waits) (e event.Event, l store.Failures, at time.Time, err error) {
	set, err := tx.settledOf(consumer, from)
	if err != nil {
		return e, l, at, err
	}
	err = tx.eachLetter(store.Retries, consumer, func(k, v []byte) (more bool, err error) {
		_, id, err := store.SplitLetterKey(k)
		if err != nil {
			return false, err
		}
		if id > from {
			if _, settled := set.find(id); !settled {
				return true, nil
			}
		}
		if l, err = store.DecodeLetter(k, v); err != nil {
			return false, err
		}
		if end := w.end(id, &l, now); end.After(now) {
			at = earlier(at, end)
			return true, nil
		}
		found, ok, err := tx.s.Event(id)
		if ok {
			e = found
		}
		return !ok, err
	})
	return e, l, at, err
}
