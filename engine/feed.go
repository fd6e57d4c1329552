package engine

import (
	"context"
	"math"
	"time"

	"thread/event"
	"thread/filter"
	"thread/internal/store"
)

// Feed delivers a consumer's events, one delivery at a time, and stores the result of
// each in the transaction that begins the next. It is for one goroutine, and only one
// process may use a consumer's Feed at a time: the one that holds the consumer's lock
// (see package dispatch).
//
// # Attempts
//
// A delivery is recorded durably before it is given out. If its process dies, the next
// one finds the record and counts the delivery as failed: an event that kills its
// process is counted like any other that fails. So an attempt is counted if and only
// if a delivery of the event alone was begun and neither succeeded nor was
// deferred or returned.
//
// # Order
//
// Events come in id order, and one that has failed holds up those after it
// until it succeeds or becomes a dead letter. A group that fails is halved, first
// half first, until the event that fails is found: for each event that fails, a good
// one of its group of n is delivered at most 1+log2(n) times. Dead letters that were
// sent back come one by one and before all unread events; those that wait for their
// next attempt hold up nothing.
type Feed struct {
	t        *Thread
	consumer string
	policy   Policy
	out      Delivery
	waits    waits
	due      dueList // of an unordered feed
	adopted  bool    // what a ParallelFeed left was settled

	// Dead counts the events that became dead letters by what was stored through
	// this feed; LastDead is the id of the latest.
	Dead, LastDead int64
}

// Delivery is what is given out.
type Delivery struct {
	Events []event.Event // none: there is nothing to do now
	// Attempt counts from 1 the attempts at a single event, those before a retry
	// included; 0 for a group.
	Attempt int64
	Retry   bool // it is a dead letter that was sent back
	// NotBefore is when the next event may be tried, zero when none waits. Set
	// only when Events is empty.
	NotBefore time.Time

	// Of a ParallelFeed: the key of all its events, and that a delivery in reserve may
	// be begun only when a Step that was told so has stored it.
	Key     string
	Careful bool

	number int64
}

// Number identifies a delivery of its consumer: no two have the same.
func (d *Delivery) Number() int64 { return d.number }

// Feed returns a feed of consumer.
func (t *Thread) Feed(consumer string, p Policy) *Feed {
	p.Limit, p.MaxAttempts = max(1, p.Limit), max(1, p.MaxAttempts)
	if p.Backoff == nil {
		p.Backoff = func(int64) time.Duration { return 0 }
	}
	if p.Unordered {
		p.Limit = 1
	}
	return &Feed{t: t, consumer: consumer, policy: p, waits: waits{}}
}

// Next stores the result of the delivery that was given out last, nil if there was
// none, and begins the next one, in one transaction. When progress was moved back
// meanwhile, or forward by [Thread.Seek], the result is not wanted any more and
// changes nothing. Nothing is written when there is neither a result nor a delivery.
//
// Next returns [ErrNoSubscription], [ErrPaused], [*filter.Error] and
// [filter.ErrRuntime]; the result is stored even then. After [ErrBusy] and
// [ErrUnknownOutcome] it may be called again with the same result.
func (f *Feed) Next(ctx context.Context, r *Result) (Delivery, error) {
	l := choice{feed: f}
	for {
		if r == nil {
			if ready, err := l.view(ctx); err != nil || !ready {
				return Delivery{NotBefore: l.notBefore}, err
			}
		}
		var d Delivery
		var refused error
		var became outcome
		var id int64
		err := f.t.Update(ctx, func(tx *Tx) error {
			state, err := tx.delivery(f.consumer)
			if err != nil {
				return err
			}
			id = state.First
			if became, err = f.settle(tx, &state, r); err != nil {
				return err
			}
			if err := f.adopt(tx, &state); err != nil {
				return err
			}
			// An error of the search must not take the result with it.
			if d, refused = l.choose(tx, &state); refused == nil && len(d.Events) > 0 {
				state.Number++
				d.number = state.Number
				state.First, state.Last = d.Events[0].ID, d.Events[len(d.Events)-1].ID
				state.Count, state.Retry = int64(len(d.Events)), 0
				if d.Retry {
					state.Retry = 1
				} else if err := tx.takeAttempt(f.consumer, &state); err != nil {
					return err
				}
			}
			return tx.putDelivery(f.consumer, &state)
		})
		if err != nil {
			f.adopted = false
			return Delivery{}, err
		}
		f.out, r = d, nil
		f.count(became, id)
		if refused != nil || len(d.Events) > 0 || l.done {
			d.NotBefore = l.notBefore
			return d, refused
		}
	}
}

// Settle is [Feed.Next] without a next delivery. It reports whether the events are
// acked or a dead letter, so that they are not given out again.
func (f *Feed) Settle(ctx context.Context, r Result) (settled bool, err error) {
	var became outcome
	var id int64
	err = f.t.Update(ctx, func(tx *Tx) error {
		state, err := tx.delivery(f.consumer)
		if err != nil {
			return err
		}
		id = state.First
		if became, err = f.settle(tx, &state, &r); err != nil {
			return err
		}
		return tx.putDelivery(f.consumer, &state)
	})
	if err == nil {
		f.out = Delivery{}
		f.count(became, id)
	}
	return became != undecided, err
}

func (f *Feed) count(became outcome, id int64) {
	if became == diedOut {
		f.Dead++
		f.LastDead = id
	}
}

// settle stores r for the delivery that this feed has given out, or, when there
// is none, the end of the one that somebody else has left.
func (f *Feed) settle(tx *Tx, state *store.Delivery, r *Result) (outcome, error) {
	if state.Count == 0 {
		return undecided, nil
	}
	result, ids := interrupted, []int64(nil)
	own := r != nil && f.out.number == state.Number
	if own {
		result, ids = *r, make([]int64, len(f.out.Events))
		for i := range ids {
			ids[i] = f.out.Events[i].ID
		}
	}
	s := Settled{First: state.First, Last: state.Last, Result: result, Interrupted: !own}
	single := state.Count == 1
	became, err := tx.settle(f.consumer, &f.policy, state, ids, result)
	if err != nil {
		return became, err
	}
	s.Acked, s.Dead = became == acked, became == diedOut
	if single && !s.Acked {
		stands, l, serr := tx.standing(f.consumer, s.First)
		if s.Failures, err = failures(&l), serr; err == nil && stands == Waiting && f.policy.Unordered {
			f.add(s.First, &l, tx.now())
		}
	}
	if err == nil && f.policy.OnSettled != nil {
		err = f.policy.OnSettled(tx, &s)
	}
	return became, err
}

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
// when the time for a search is over and done is not set. It writes nothing.
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
// noted by a clock that was ahead, and is over.
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
