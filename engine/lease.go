package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"thread/internal/store"
)

// A lease is a delivery that outlives the process that took it: it is in flight until its
// result is stored, or its time has ended. It is the delivery of a Feed, with the same
// record, attempts, splitting of groups and order, and one of a consumer is in flight at a time.
//
// The clock decides only when a delivery is given out again. Who may store the result
// is decided by its number: a result that comes late is taken as long as nothing
// was given out since. A clock that was ahead draws no lease out: one that would continue
// for longer than it was to be has ended.

// DefaultLease and DefaultMaxAttempts are what holds where nothing is said.
const (
	DefaultLease       = 30 * time.Second
	DefaultMaxAttempts = 5
)

// Lease is what Next gives out.
type Lease struct {
	Delivery
	Until time.Time // when the events are given out again; zero when they are acked already
}

// LeasedError says that events of a consumer are in flight with [Thread.Next].
type LeasedError struct {
	Consumer string
	Number   int64 // of the delivery
	Until    time.Time
}

func (e *LeasedError) Error() string {
	return fmt.Sprintf("events of consumer %q are in flight with delivery %d", e.Consumer, e.Number)
}

// Next takes the next events of a consumer with Pull, durably. Without any it returns a
// Lease without events, whose NotBefore is when there will be some without a push: when a
// lease of others has ended, or a failed event may be tried again; zero when there is none.
//
// A lease that has ended counts as a failed attempt when its events are given out next.
//
// Next returns [ErrNoSubscription], [ErrNotPull], [ErrPaused], [ErrOut], [ErrConsumerBusy], [*filter.Error],
// [filter.ErrRuntime] and [ErrBusy]. After [ErrUnknownOutcome] the events may be out: they
// are redelivered after the lease.
func (t *Thread) Next(ctx context.Context, consumer string, o NextOptions) (Lease, error) {
	if o.Lease < time.Millisecond {
		o.Lease = DefaultLease
	}
	f, err := t.leaseFeed(ctx, consumer, max(1, o.Limit))
	if err != nil {
		return Lease{}, err
	}
	f.lease = &o
	defer f.Close()
	d, err := f.Next(ctx, nil)
	l := Lease{Delivery: d}
	if len(d.Events) > 0 && !o.Ack {
		l.Until = time.UnixMilli(f.until)
	}
	return l, err
}

// leaseFeed returns a feed with the policy of the subscription.
func (t *Thread) leaseFeed(ctx context.Context, consumer string, limit int64) (f *Feed, err error) {
	err = t.read(ctx, func(tx *Tx) error {
		s, err := tx.subscription(consumer)
		if err == nil && !s.Pull {
			err = ErrNotPull
		}
		if err != nil {
			return err
		}
		f = t.Feed(consumer, leasePolicy(s, limit))
		return nil
	})
	return f, err
}

func leasePolicy(s *store.Subscription, limit int64) Policy {
	p := Policy{Limit: limit, MaxAttempts: s.MaxAttempts, Backoff: leaseBackoff}
	if p.MaxAttempts == 0 {
		p.MaxAttempts = DefaultMaxAttempts
	}
	return p
}

// leaseBackoff is the wait after the n-th failure in a row: a second, doubled with each,
// up to five minutes, and drawn out by up to a quarter.
func leaseBackoff(n int64) time.Duration {
	d := min(time.Second<<min(n-1, 30), 4*time.Minute)
	return d + rand.N(d/4+1)
}

// AckDelivery acks the events of a delivery of [Thread.Next]: [Thread.SettleDelivery] with
// Succeeded.
func (t *Thread) AckDelivery(ctx context.Context, consumer string, number int64) error {
	_, err := t.SettleDelivery(ctx, consumer, number, Result{Verdict: Succeeded})
	return err
}

// SettleDelivery stores the result of a delivery of [Thread.Next], also one whose lease is
// over as long as its events were not given out again. It reports whether the events are
// acked or a dead letter. It returns [ErrStale], changing nothing, for a delivery that is
// not out, and [ErrNoSubscription].
func (t *Thread) SettleDelivery(ctx context.Context, consumer string, number int64, r Result) (settled bool, err error) {
	err = t.Update(ctx, func(tx *Tx) error {
		s, state, err := tx.leased(consumer, number)
		if err != nil {
			return err
		}
		p := leasePolicy(s, 1)
		ids, err := tx.lettersWithin(consumer, state.First, state.Last)
		if err != nil {
			return err
		}
		became, err := tx.settle(consumer, &p, &state, ids, r)
		if settled = became != undecided; err != nil {
			return err
		}
		return tx.putDelivery(consumer, &state)
	})
	return settled && err == nil, err
}

// ExtendDelivery makes the lease of a delivery end after d from now, and returns when that
// is. Its errors are the errors of [Thread.SettleDelivery], and [ErrInvalid] for less than
// a millisecond.
func (t *Thread) ExtendDelivery(ctx context.Context, consumer string, number int64, d time.Duration) (until time.Time, err error) {
	if d < time.Millisecond {
		return until, invalidf("a lease of %s is less than a millisecond", d)
	}
	err = t.Update(ctx, func(tx *Tx) error {
		_, state, err := tx.leased(consumer, number)
		if err != nil {
			return err
		}
		lease(&state, tx.now(), d)
		until = time.UnixMilli(state.LeaseEnd)
		return tx.putDelivery(consumer, &state)
	})
	return until, err
}

// leased returns the record of a delivery that is in flight with a lease.
func (tx *Tx) leased(consumer string, number int64) (*store.Subscription, store.Delivery, error) {
	s, err := tx.subscription(consumer)
	if err != nil {
		return nil, store.Delivery{}, err
	}
	state, err := tx.delivery(consumer)
	if err == nil && (state.Count == 0 || state.LeaseEnd == 0 || state.Number != number) {
		err = fmt.Errorf("%w: delivery %d of consumer %q", ErrStale, number, consumer)
	}
	return s, state, err
}

// lease makes a delivery out until d from now.
func lease(state *store.Delivery, now time.Time, d time.Duration) {
	state.LeasedAt = now.UnixMilli()
	state.LeaseEnd = state.LeasedAt + d.Milliseconds()
}

// leaseEnd returns when a delivery's lease has ended, zero when it is, or there is none.
func leaseEnd(state *store.Delivery, now time.Time) time.Time {
	ms := now.UnixMilli()
	if state.Count == 0 || ms >= state.LeaseEnd || ms < state.LeasedAt {
		return time.Time{}
	}
	return time.UnixMilli(state.LeaseEnd)
}

// setLease notes, with the beginning of a delivery, until when it is in flight.
func (f *Feed) setLease(tx *Tx, state *store.Delivery) {
	state.LeasedAt, state.LeaseEnd = 0, 0
	if f.lease != nil {
		lease(state, tx.now(), f.lease.Lease)
		f.until = state.LeaseEnd
	}
}

// held returns until when others have the consumer's events, so that this feed gives out
// nothing; zero when no process has. It returns a LeasedError for a feed that does not
// wait, and ErrOut for Next when it is a Feed that has them.
func (f *Feed) held(tx *Tx, state *store.Delivery) (time.Time, error) {
	if f.lease != nil && !f.lease.TakeOver {
		running, err := tx.leftRunning(f.consumer)
		if err == nil && (running || state.Count > 0 && state.LeaseEnd == 0) {
			err = ErrOut
		}
		if err != nil {
			return time.Time{}, err
		}
	}
	end := leaseEnd(state, tx.now())
	if end.IsZero() {
		return end, nil
	}
	if passed, err := tx.passed(f.consumer, state); passed || err != nil {
		return time.Time{}, err
	}
	if f.lease == nil {
		return end, &LeasedError{f.consumer, state.Number, end}
	}
	s, err := tx.subscription(f.consumer)
	if err == nil && s.Paused {
		err = ErrPaused
	}
	return end, err
}

// passed reports whether the events of a delivery that is in flight were acked by their ids.
func (tx *Tx) passed(consumer string, state *store.Delivery) (bool, error) {
	p, _, err := tx.Progress(consumer)
	return state.Retry == 0 && p.From() >= state.Last, err
}

// leftLease is the result of a delivery that was left by who took it, unless its lease is
// live.
func (tx *Tx) leftLease(consumer string, state *store.Delivery) (r Result, live bool, err error) {
	if passed, err := tx.passed(consumer, state); passed || err != nil {
		return Result{Verdict: Returned}, false, err
	}
	now := tx.now()
	return Result{Verdict: Failed, ExitCode: -1, Error: "the lease ran out without a result", NotBefore: now},
		!leaseEnd(state, now).IsZero(), nil
}

// lettersWithin returns the ids, from first to last, of a consumer's letters: its progress was
// moved back, and they were redelivered.
func (tx *Tx) lettersWithin(consumer string, first, last int64) (ids []int64, err error) {
	for _, in := range letterTables {
		err := tx.eachLetter(in.table, consumer, func(k, _ []byte) (bool, error) {
			_, id, err := store.SplitLetterKey(k)
			if id >= first && id <= last {
				ids = append(ids, id)
			}
			return id <= last, err
		})
		if err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// LeaseState is the delivery of Next that is in flight; Number is 0 when none is.
type LeaseState struct {
	Number      int64
	First, Last int64     // ids of its first and last event
	Count       int64     // events
	Until       time.Time // before now: they are given out again by the next Next
}

// leaseState returns what is in flight with Next.
func (tx *Tx) leaseState(consumer string, state *store.Delivery) (l LeaseState, err error) {
	if state.Count == 0 || state.LeaseEnd == 0 {
		return l, nil
	}
	if passed, err := tx.passed(consumer, state); passed || err != nil {
		return l, err
	}
	now := tx.now()
	until := time.UnixMilli(state.LeaseEnd)
	if leaseEnd(state, now).IsZero() && until.After(now) {
		until = now
	}
	return LeaseState{state.Number, state.First, state.Last, state.Count, until}, nil
}
