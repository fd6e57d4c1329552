package engine

import (
	"context"
	"thread/internal/store"
	"time"

	"thread/event"
)

// ParallelState is what is known of a consumer whose deliveries are in flight side by side
// (see [ParallelFeed]). The zero ParallelState is the state of one that was always
// consumed in order.
type ParallelState struct {
	Settled int64 // events settled above LastAcked
	Ranges  int64 // that they are kept as
	Out     int64 // events that are in flight or in reserve, or were when their user was killed
	Waiting int64 // events above LastAcked that have failed and are tried again
	Window  int64 // of the latest feed, 0 when there was none
}

// Full reports whether nothing new is given out before something below is settled.
func (p *ParallelState) Full() bool { return p.Window > 0 && p.Settled+p.Out+p.Waiting >= p.Window }

func (tx *Tx) describeParallel(c *ConsumerInfo, state *store.Delivery, from int64) error {
	set, err := tx.settledAbove(c.Consumer, state, from)
	if err != nil {
		return err
	}
	c.ParallelState = ParallelState{Settled: set.count(), Ranges: int64(len(set)), Window: state.Window}
	return tx.eachAttempt(c.Consumer, func(id int64, a store.Attempt) (bool, error) {
		if _, settled := set.find(id); a.Resent == 1 || id <= from || settled {
			return true, nil
		}
		if a.State != store.AttemptWaiting {
			c.Out++
			return true, nil
		}
		c.Waiting++
		if c.Failing == 0 && !a.FirstAt.IsZero() {
			c.Failing, c.Failures = id, failures(&a.Failures)
		}
		return true, nil
	})
}

// EventState is where an unread event is for a consumer.
type EventState struct {
	Settled  bool // it is done with, above the progress
	Out      bool // it is in flight, or was when its user was killed
	Failures      // of earlier attempts at it
}

// EventState returns what is known of an event above the consumer's progress.
func (t *Thread) EventState(ctx context.Context, consumer string, id int64) (s EventState, err error) {
	return s, t.read(ctx, func(tx *Tx) error {
		p, _, err := tx.Progress(consumer)
		if err != nil {
			return err
		}
		set, err := tx.settledOf(consumer, p.From())
		if err != nil {
			return err
		}
		_, s.Settled = set.find(id)
		a, _, err := tx.attempt(consumer, id)
		s.Out, s.Failures = a.State != store.AttemptWaiting, failures(&a.Failures)
		if now := tx.now(); now.Before(s.LastAt) {
			s.NextAt = time.Time{}
		}
		return err
	})
}

// A Feed continues where a ParallelFeed ended: it leaves out what is settled, and takes
// over what is known of single events when it comes to them.

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

// leftRunning reports whether a ParallelFeed was killed with something out.
func (tx *Tx) leftRunning(consumer string) (running bool, err error) {
	return running, tx.eachAttempt(consumer, func(_ int64, a store.Attempt) (bool, error) {
		running = a.State == store.AttemptRunning
		return !running, nil
	})
}

// cutAtAttempt returns the first of the events alone, with what is known of it, or
// those before the first of which anything is known.
func (tx *Tx) cutAtAttempt(consumer string, events []event.Event) ([]event.Event, *store.Attempt, error) {
	if some, err := tx.hasRows(consumer, store.Attempts); !some {
		return events, nil, err
	}
	for i := range events {
		a, ok, err := tx.attempt(consumer, events[i].ID)
		switch {
		case err != nil:
			return nil, nil, err
		case !ok:
		case i == 0:
			return events[:1], &a, nil
		default:
			return events[:i], nil, nil
		}
	}
	return events, nil, nil
}

// takeAttempt moves what is known of the event that is given out to the record of the
// delivery.
func (tx *Tx) takeAttempt(consumer string, state *store.Delivery) error {
	a, ok, err := tx.attempt(consumer, state.First)
	if !ok || err != nil {
		return err
	}
	if !a.FirstAt.IsZero() || !a.NextAt.IsZero() {
		state.Failing, state.Letter = state.First, a.Failures
	}
	return tx.s.Delete(store.Attempts, store.LetterKey(consumer, state.First))
}
