package engine

import (
	"context"
	"math"
	"time"

	"thread/event"
	"thread/filter"
	"thread/internal/store"
)

// choice is the search for the next delivery, in one or more transactions.
type choice struct {
	feed      *Feed
	notBefore time.Time
	done      bool // there is nothing left to read
	// Nothing that matches where lies in (from, pos].
	where     string
	from, pos int64
	selection *store.Selection
}

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

// waits are the ends of the waits of events that this process has seen, with the
// reading of the monotonic clock: they end when they would have, however the clock
// is set meanwhile. A wait that would be longer than it was to be when it began was
// noted by a clock that was ahead, and has ended.
type waits map[int64]struct{ nextAt, end time.Time }

// end returns when the wait of an event ends that has failed.
func (w waits) end(id int64, l *store.Failures, now time.Time) time.Time {
	seen, ok := w[id]
	if !ok || !seen.nextAt.Equal(l.NextAt) {
		seen.nextAt, seen.end = l.NextAt, now.Add(l.NextAt.Sub(now))
		w[id] = seen
	}
	if seen.end.Sub(now) > l.NextAt.Sub(l.LastAt) {
		seen.end = now
	}
	if !seen.end.After(now) {
		delete(w, id)
	}
	return seen.end
}

// earlier returns the earlier of two times, of which zero means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
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
