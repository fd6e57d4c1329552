package engine

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"time"

	"thread/internal/store"
	"thread/lock"
)

// NextOptions are the settings of a call of [Thread.Next].
type NextOptions struct {
	Limit int64         // events at most; less than 1 is 1
	Lease time.Duration // less than a millisecond is DefaultLease
	Ack   bool          // the events are acked with the call
	// TakeOver says that the caller holds the consumer's lock (see package dispatch):
	// what a Feed has out was left by a process that was killed.
	TakeOver bool
}

type dueEntry struct {
	at int64 // Failures.NextAt in milliseconds, 0 for now
	id int64
}

// dueList is what an unordered feed knows of the events that wait, so that it need
// not look at all of them for the one that is due first. An entry may be out of
// date; the letter says whether it is.
type dueList struct {
	loaded  bool
	retried int64 // store.Delivery.Retried when it was loaded
	entries []dueEntry
}

func (l *dueList) Len() int { return len(l.entries) }

func (l *dueList) Swap(i, j int) { l.entries[i], l.entries[j] = l.entries[j], l.entries[i] }

func (l *dueList) Push(e any) { l.entries = append(l.entries, e.(dueEntry)) }

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

// Feed delivers a consumer's events, one delivery at a time, and stores the result of
// each in the transaction that begins the next. It is for one goroutine. A consumer has one
// Feed at a time: the first Next takes the consumer's lock, which dies with the process,
// and [Feed.Close] releases it. An error releases it too, unless a delivery is in flight.
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
	lock     *feedLock
	unknown  bool // the outcome of the call before is
	out      Delivery
	waits    waits
	due      dueList      // of an unordered feed
	adopted  bool         // what a ParallelFeed left was settled
	lease    *NextOptions // of Thread.Next, else nil
	until    int64        // end of the lease, in milliseconds

	// Dead counts the events that became dead letters by what was stored through
	// this feed; LastDead is the id of the latest.
	Dead, LastDead int64
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
	f := &Feed{t: t, consumer: consumer, policy: p, waits: waits{}}
	f.lock = newFeedLock(t, f, consumer)
	return f
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

// Next stores the result of the delivery that was given out last, nil if there was
// none, and begins the next one, in one transaction. Nothing is written when there is
// neither a result nor a delivery.
//
// Next returns [ErrConsumerBusy] when another feed uses the consumer. It returns [ErrStale],
// changing nothing, for the result of a delivery that is not out any more: progress was
// moved back, or forward by [Thread.Seek]. Call it again without a result then. Next also
// returns [ErrNoSubscription], [ErrPaused], [*filter.Error] and
// [filter.ErrRuntime]; the result is stored even then. After [ErrBusy] and
// [ErrUnknownOutcome] it may be called again with the same result.
func (f *Feed) Next(ctx context.Context, r *Result) (d Delivery, err error) {
	if err := f.takeLock(ctx); err != nil {
		return Delivery{}, err
	}
	defer func() {
		if err != nil && len(f.out.Events) == 0 {
			f.lock.release() // the caller may give up
		}
	}()
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
		out, again := f.out, false
		err := f.t.Update(ctx, func(tx *Tx) error {
			if again { // nothing of the first time was stored
				f.out, f.adopted, f.due.loaded = out, false, false
			}
			again = true
			state, err := tx.delivery(f.consumer)
			if err != nil {
				return err
			}
			id = state.First
			end, err := f.held(tx, &state)
			if err != nil || !end.IsZero() {
				l.notBefore, l.done = end, true
				return err
			}
			if f.isStale(&state, r) {
				return ErrStale
			}
			if became, err = f.settle(tx, &state, r); err != nil {
				return err
			}
			if err := f.adopt(tx, &state); err != nil {
				return err
			}
			for n := 0; ; n++ {
				// An error of the search must not take the result with it.
				if d, refused = l.choose(tx, &state); refused != nil || len(d.Events) == 0 {
					break
				}
				if err := f.begin(tx, &state, &d); err != nil {
					return err
				}
				if f.lease != nil && f.lease.Ack {
					f.out = d
					if _, err := f.settle(tx, &state, &Result{Verdict: Succeeded}); err != nil {
						return err
					}
					break
				}
				done, err := n < mostAtOnce, error(nil)
				if done {
					done, err = f.atOnce(tx, &state, &d)
				}
				if err != nil {
					return err
				}
				if !done {
					break
				}
			}
			return tx.putDelivery(f.consumer, &state)
		})
		f.unknown = errors.Is(err, ErrUnknownOutcome)
		if err != nil {
			f.out, f.adopted, f.due.loaded = out, false, false // what was learned in it may not be so
			if errors.Is(err, ErrStale) {
				f.out = Delivery{}
			}
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

// adopt settles, once, what a ParallelFeed left running.
func (f *Feed) adopt(tx *Tx, state *store.Delivery) error {
	if f.adopted {
		return nil
	}
	f.adopted = true
	p, _, err := tx.Progress(f.consumer)
	if err != nil {
		return err
	}
	return tx.adoptAttempts(f.consumer, &f.policy, state, p.From())
}

// mostAtOnce is how many events succeed in one transaction (Policy.AtOnce).
const mostAtOnce = 100

// begin notes that d is in flight.
func (f *Feed) begin(tx *Tx, state *store.Delivery, d *Delivery) error {
	state.Number++
	d.number = state.Number
	state.First, state.Last = d.Events[0].ID, d.Events[len(d.Events)-1].ID
	state.Count, state.Retry = int64(len(d.Events)), 0
	f.setLease(tx, state)
	if d.Retry {
		state.Retry = 1
		return nil
	}
	return tx.takeAttempt(f.consumer, state)
}

// atOnce settles d, which was just begun, if the policy says so.
func (f *Feed) atOnce(tx *Tx, state *store.Delivery, d *Delivery) (bool, error) {
	if f.policy.AtOnce == nil || len(d.Events) != 1 {
		return false, nil
	}
	if done, err := f.policy.AtOnce(tx, d); !done || err != nil {
		return false, err
	}
	f.out = *d
	_, err := f.settle(tx, state, &Result{Verdict: Succeeded})
	*d = Delivery{}
	return true, err
}

// takeLock takes the consumer's lock; Thread.Next shares it with others of its kind.
func (f *Feed) takeLock(ctx context.Context) error {
	if f.lease == nil {
		return f.lock.take(ctx, lock.Exclusive)
	}
	err := f.lock.take(ctx, lock.Shared)
	if errors.Is(err, ErrConsumerBusy) {
		err = fmt.Errorf("%w: %w", ErrOut, err)
	}
	return err
}

// isStale reports whether r is the result of a delivery that is not out any more. After an
// unknown outcome the result may be stored already.
func (f *Feed) isStale(state *store.Delivery, r *Result) bool {
	return r != nil && len(f.out.Events) > 0 && !f.unknown && (state.Count == 0 || state.Number != f.out.number)
}

// Settle is [Feed.Next] without a next delivery. It reports whether the events are
// acked or a dead letter, so that they are not given out again.
func (f *Feed) Settle(ctx context.Context, r Result) (settled bool, err error) {
	if err := f.takeLock(ctx); err != nil {
		return false, err
	}
	var became outcome
	var id int64
	err = f.t.Update(ctx, func(tx *Tx) error {
		state, err := tx.delivery(f.consumer)
		if err != nil {
			return err
		}
		id = state.First
		if f.isStale(&state, &r) {
			return ErrStale
		}
		if became, err = f.settle(tx, &state, &r); err != nil {
			return err
		}
		return tx.putDelivery(f.consumer, &state)
	})
	f.unknown = errors.Is(err, ErrUnknownOutcome)
	if err == nil || errors.Is(err, ErrStale) {
		f.out = Delivery{}
	}
	if err != nil {
		return became != undecided, err
	}
	f.count(became, id)
	return became != undecided, nil
}

func (f *Feed) count(became outcome, id int64) {
	if became == diedOut {
		f.Dead++
		f.LastDead = id
	}
}

// settle stores r for the delivery that this feed has given out, or, when there
// is none, the end of the one that another process has left.
func (f *Feed) settle(tx *Tx, state *store.Delivery, r *Result) (outcome, error) {
	if state.Count == 0 {
		return undecided, nil
	}
	result, ids := interrupted, []int64(nil)
	own := r != nil && f.out.number == state.Number
	if !own && state.LeaseEnd != 0 {
		left, live, err := tx.leftLease(f.consumer, state)
		if live || err != nil {
			return undecided, err
		}
		result = left
	}
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

// add notes that an event waits.
func (f *Feed) add(id int64, l *store.Failures, now time.Time) {
	f.waits.end(id, l, now) // from here on by the monotonic clock
	heap.Push(&f.due, dueEntry{at: unixMilli(l.NextAt), id: id})
}

// Close gives the consumer back: another Feed may use it then. What is in flight counts as left
// by a process that was killed.
func (f *Feed) Close() error {
	f.lock.release()
	return nil
}
