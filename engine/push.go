package engine

import (
	"context"
	"fmt"
	"iter"

	"thread/event"
)

// Push stores one event durably and returns it, or, for a draft whose dedupe key
// is known, stores nothing and returns the first event that had it: once Push returns nil, the
// event survives the loss of power. Calls of several goroutines on one handle
// share their syncs.
//
// Push returns ErrInvalid for a draft that is out of bounds, ErrBusy,
// ErrUnknownOutcome, and ErrIDsExhausted after id 2^63-1.
func (t *Thread) Push(ctx context.Context, d event.Draft) (event.Event, error) {
	es, _, err := t.pushGroup(ctx, []event.Draft{d})
	if err != nil {
		return event.Event{}, err
	}
	return es[0], nil
}

// PushBatch stores all drafts, or none, with consecutive ids in their order and
// one created_at. The errors are those of Push; that of a bad draft names its
// index.
func (t *Thread) PushBatch(ctx context.Context, ds []event.Draft) ([]event.Event, error) {
	if len(ds) > t.maxGroup {
		return t.pushLong(ctx, ds)
	}
	es, _, err := t.pushGroup(ctx, ds)
	return es, err
}

func (t *Thread) pushLong(ctx context.Context, ds []event.Draft) ([]event.Event, error) {
	b, err := t.PushAll(ctx, func(yield func(event.Draft, error) bool) {
		for i := range ds {
			if !yield(ds[i], nil) {
				return
			}
		}
	})
	if err != nil {
		return nil, err
	}
	es := make([]event.Event, len(ds))
	i := 0
	for id, duplicate := range b.IDs() {
		d := &ds[i]
		es[i] = event.Event{ID: id, CreatedAt: b.CreatedAt, Source: d.Source, Type: d.Type, Subtype: d.Subtype, Content: d.Content}
		if duplicate {
			err := t.read(ctx, func(tx *Tx) (err error) {
				es[i], _, err = tx.event(id)
				return err
			})
			if err != nil {
				return nil, fmt.Errorf("%w: the events are stored, but the first one with the key of draft %d cannot be read: %w", ErrUnknownOutcome, i, err)
			}
		}
		i++
	}
	return es, nil
}

func (t *Thread) pushGroup(ctx context.Context, ds []event.Draft) ([]event.Event, *write, error) {
	for i := range ds {
		if err := ds[i].Validate(); err != nil {
			if len(ds) > 1 {
				err = fmt.Errorf("draft %d: %w", i, err)
			}
			return nil, nil, err
		}
	}
	w := &write{drafts: ds}
	if len(ds) == 0 {
		return nil, w, context.Cause(ctx)
	}
	err := t.write(ctx, w)
	return w.events, w, err
}

// Batch says what became of a PushAll: the ids [First, Last] are new, both 0 when
// there was nothing to store.
type Batch struct {
	First, Last int64
	Count       int64       // drafts
	Duplicates  []Duplicate // those of them that were not stored, in order
	CreatedAt   string      // of every event
	LastSource  string      // source of the last event
	Subscribed  bool        // there are subscriptions, so a dispatch may have work
	Warning     error       // the events are stored, but events.jsonl is behind; the next push heals it
}

// PushAll stores a sequence of any length, all of it or nothing, in bounded
// memory; ids are consecutive and created_at is one. The sequence is read to its
// end, into a temporary file in run/ when it is long, before the database is
// locked. Its first error ends the call and is returned unchanged. Other errors
// are those of PushBatch.
func (t *Thread) PushAll(ctx context.Context, ds iter.Seq2[event.Draft, error]) (Batch, error) {
	sp := spool{dir: t.path(runName)}
	defer sp.close()
	var few []event.Draft // until the sequence turns out to be long
	size := 0
	for d, err := range ds {
		if err == nil {
			err = d.Validate()
		}
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return Batch{}, err
		}
		if len(few) == t.maxGroup || len(few) > 0 && size+len(d.Content) > maxGroupBytes {
			if err := sp.add(few); err != nil {
				return Batch{}, err
			}
			few, size = few[:0], 0
		}
		few = append(few, d)
		size += len(d.Content)
	}
	if sp.n == 0 {
		es, w, err := t.pushGroup(ctx, few)
		if err != nil || len(es) == 0 {
			return Batch{}, err
		}
		last := few[len(few)-1]
		b := Batch{Count: int64(len(es)), Duplicates: w.duplicates, LastSource: last.Source, Subscribed: w.subscribed, Warning: w.warning}
		duplicates := w.duplicates
		for i := range es {
			if len(duplicates) > 0 && duplicates[0].Index == int64(i) {
				duplicates = duplicates[1:]
				continue
			}
			if b.First == 0 {
				b.First, b.CreatedAt = es[i].ID, es[i].CreatedAt
			}
			b.Last = es[i].ID
		}
		return b, nil
	}
	if err := sp.add(few); err != nil {
		return Batch{}, err
	}
	return t.pushLongBatch(ctx, &sp)
}
