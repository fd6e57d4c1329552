package engine

import (
	"cmp"
	"context"
	"slices"
	"time"

	"thread/event"
	"thread/filter"
	"thread/internal/store"
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

// keyOf tells the key of an event.
type keyOf struct {
	column string
	path   *filter.Path
	fold   func(key string) string // nil: none
}

func newKeyOf(text string) (keyOf, error) {
	k := keyOf{column: text}
	switch text {
	case "", "source", "type", "subtype":
		return k, nil
	}
	var ok bool
	if k.path, ok = filter.CompilePath(text); !ok {
		return k, invalidf("key %q is not source, type, subtype or a JSON path such as $.chat.id", text)
	}
	return k, nil
}

// ValidKey returns [ErrInvalid] for a text that cannot be the Key of a
// [ParallelPolicy].
func ValidKey(text string) error {
	_, err := newKeyOf(text)
	return err
}

// none reports whether events have no key.
func (k *keyOf) none() bool { return k.column == "" }

// inContent reports whether the key of an event is in its content.
func (k *keyOf) inContent() bool { return k.path != nil }

// of is what orders an event.
func (k *keyOf) of(e *event.Event) string {
	if k.fold != nil && !k.none() {
		return k.fold(k.text(e))
	}
	return k.text(e)
}

// text is what the event has.
func (k *keyOf) text(e *event.Event) string {
	switch {
	case k.path != nil:
		return k.path.Text(e.Content)
	case k.column == "source":
		return e.Source
	case k.column == "type":
		return e.Type
	case k.column == "subtype" && e.Subtype != nil:
		return *e.Subtype
	}
	return ""
}

// The turns of keys.

// wake ends the waits that have ended.
func (f *ParallelFeed) wake(now time.Time) {
	f.waiting = slices.DeleteFunc(f.waiting, func(p *pending) bool {
		if p.end = f.waits.end(p.ID, &p.at.Failures, now); p.end.After(now) {
			return false
		}
		if p.letter {
			p.line.lettersWait--
			p.line.letters = insert(p.line.letters, p)
		} else {
			p.line.waits--
			p.line.queue = insert(p.line.queue, p)
		}
		f.queueUp(p.line)
		return true
	})
}

func (f *ParallelFeed) notBefore() (at time.Time) {
	for _, p := range f.waiting {
		at = earlier(at, p.end)
	}
	return at
}

func insert(queue []*pending, p *pending) []*pending {
	i, _ := slices.BinarySearchFunc(queue, p.ID, func(q *pending, id int64) int { return cmp.Compare(q.ID, id) })
	return slices.Insert(queue, i, p)
}

// queueUp puts a key behind the others if it has something to give out, and forgets
// it where nothing is left of it.
func (f *ParallelFeed) queueUp(l *lineup) {
	switch {
	case l.inTurn:
	case l.canGive():
		l.inTurn = true
		f.ready = append(f.ready, l)
	case l.busy == 0 && len(l.queue)+len(l.letters)+l.waits+l.lettersWait == 0 && !l.more:
		delete(f.keys, l.key)
	}
}

func (l *lineup) canGive() bool {
	switch {
	case l.unordered:
		return len(l.letters)+len(l.queue) > 0
	case l.busy > 0:
		return false
	case len(l.letters) > 0:
		return true
	}
	return l.waits == 0 && len(l.queue) > 0
}

func (f *ParallelFeed) lineup(key string) *lineup {
	l := f.keys[key]
	if l == nil {
		l = &lineup{key: key, unordered: f.key.none()}
		f.keys[key] = l
	}
	return l
}
