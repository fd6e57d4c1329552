package engine

import (
	"context"
	"iter"

	"thread/event"
	"thread/internal/store"
)

// Push stores one event durably and returns it, or, for a draft whose dedupe key
// is known, stores nothing and returns the first event that had it: once Push returns nil, the
// event survives the loss of power. Calls of several goroutines on one handle
// share their syncs.
//
// Push returns [ErrInvalid] for a draft that is out of bounds, [ErrBusy],
// [ErrUnknownOutcome], and [ErrIDsExhausted] after id 2^63-1.
func (t *Thread) Push(ctx context.Context, d event.Draft) (event.Event, error) {
	p, err := t.s.Push(ctx, []event.Draft{d})
	if err != nil {
		return event.Event{}, err
	}
	return p.Events[0], nil
}

// PushBatch stores all drafts, or none, with consecutive ids in their order and one
// created_at. The errors are the errors of [Thread.Push]; the error of a bad draft names its
// index.
func (t *Thread) PushBatch(ctx context.Context, ds []event.Draft) ([]event.Event, error) {
	p, err := t.s.Push(ctx, ds)
	return p.Events, err
}

// Batch says what became of a PushAll: the ids [First, Last] are new, both 0 when
// there was nothing to store.
type Batch struct {
	First, Last int64
	Count       int64       // drafts
	Duplicates  []Duplicate // the drafts that were not stored, in order
	CreatedAt   string      // of every event
	LastSource  string      // source of the last event
	Subscribed  bool        // there are subscriptions, so a dispatch may have work
	Warning     error       // the events are stored, but events.jsonl is behind; the next push heals it
}

// PushAll stores a sequence of any length, all of it or nothing, in bounded
// memory; ids are consecutive and created_at is one. The sequence is read to its
// end, into a temporary file in run/ when it is long, before the database is
// locked. Its first error ends the call and is returned unchanged. Other errors
// are the errors of PushBatch.
func (t *Thread) PushAll(ctx context.Context, ds iter.Seq2[event.Draft, error]) (Batch, error) {
	b, err := t.s.PushAll(ctx, ds)
	if err != nil {
		return Batch{}, err
	}
	return Batch{
		First: b.First, Last: b.Last, Count: b.Count, Duplicates: duplicates(b.Duplicates), CreatedAt: b.CreatedAt,
		LastSource: b.LastSource, Subscribed: b.Subscribed, Warning: b.Warning,
	}, nil
}

func duplicates(all []store.Duplicate) (list []Duplicate) {
	for _, d := range all {
		list = append(list, Duplicate(d))
	}
	return list
}
