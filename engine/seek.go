package engine

import (
	"context"
	"time"

	"thread/event"
)

// Seek sets how far a consumer is, forward or back: id is the last event that
// counts as processed, 0 for none. The result of a delivery that is in flight is not
// wanted any more, and what was known of a failing event is forgotten. Dead
// letters stay; letters of events that are redelivered are settled with them.
//
// Seek returns [ErrNoSubscription], and [ErrInvalid] for an id that is negative or
// above the newest event.
func (t *Thread) Seek(ctx context.Context, consumer string, id int64) error {
	return t.Update(ctx, func(tx *Tx) error { return tx.Seek(consumer, id) })
}

// Seek is [Thread.Seek] in this transaction.
func (tx *Tx) Seek(consumer string, id int64) error {
	if _, err := tx.subscription(consumer); err != nil {
		return err
	}
	if id < 0 || id > tx.Head() {
		return invalidf("event %d does not exist, the newest is %d", id, tx.Head())
	}
	if err := tx.handBack(consumer); err != nil {
		return err
	}
	if p, _, err := tx.Progress(consumer); err != nil {
		return err
	} else if id == p.From() { // every event after it is redelivered
		if err := tx.dropSet(consumer); err != nil {
			return err
		}
	}
	return tx.setProgress(consumer, id)
}

// Before returns the greatest id before the first event whose created_at is at
// or after when, which is where to seek to; the newest id when there is no such
// event. Times are compared as text, like in a filter. Events are in the order of
// their times only roughly, so some of those after it may be older.
func (t *Thread) Before(ctx context.Context, when time.Time) (id int64, err error) {
	err = t.read(ctx, func(tx *Tx) error { id = tx.Head(); return nil })
	if err != nil {
		return 0, err
	}
	for e, err := range t.Events(ctx, Query{Limit: 1, Since: when}) {
		return e.ID - 1, err
	}
	return id, nil
}

// sinceFilter returns a filter for what where selects at or after when.
func sinceFilter(where string, when time.Time) string {
	since := "created_at >= '" + event.FormatTime(when) + "'"
	if where == "" {
		return since
	}
	return "(" + where + "\n) AND " + since // where may end in a comment
}

// Pause keeps a consumer's handler from being started, and a [Feed] from giving
// its events out, until Resume. A handler that runs is left alone; [Thread.Pop] and
// [Thread.Ack] work as ever. It returns [ErrNoSubscription].
func (t *Thread) Pause(ctx context.Context, consumer string) error {
	return t.setPaused(ctx, consumer, true)
}

// Resume ends a pause. The caller then starts a dispatch.
func (t *Thread) Resume(ctx context.Context, consumer string) error {
	return t.setPaused(ctx, consumer, false)
}

func (t *Thread) setPaused(ctx context.Context, consumer string, paused bool) error {
	return t.Update(ctx, func(tx *Tx) error {
		s, err := tx.subscription(consumer)
		if err != nil {
			return err
		}
		s.Paused = paused
		return tx.putSubscription(s)
	})
}
