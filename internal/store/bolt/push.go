package bolt

import (
	"context"
	"fmt"
	"iter"

	"thread/event"
	"thread/internal/store"
)

// Push implements store.Store. Calls of several goroutines on one store share their
// syncs.
func (t *Store) Push(ctx context.Context, ds []event.Draft) (store.Pushed, error) {
	if len(ds) > t.MaxGroup {
		return t.pushLong(ctx, ds)
	}
	return t.pushGroup(ctx, ds)
}

func (t *Store) pushLong(ctx context.Context, ds []event.Draft) (p store.Pushed, err error) {
	b, err := t.PushAll(ctx, func(yield func(event.Draft, error) bool) {
		for i := range ds {
			if !yield(ds[i], nil) {
				return
			}
		}
	})
	if err != nil {
		return p, err
	}
	es := make([]event.Event, len(ds))
	i := 0
	for id, duplicate := range store.IDs(b.First, b.Count, b.Duplicates) {
		d := &ds[i]
		es[i] = event.Event{ID: id, CreatedAt: b.CreatedAt, Source: d.Source, Type: d.Type, Subtype: d.Subtype, Content: d.Content}
		if duplicate {
			err := t.read(ctx, func(tx *Tx) (err error) {
				es[i], _, err = tx.Event(id)
				return err
			})
			if err != nil {
				return p, fmt.Errorf("%w: the events are stored, but the first one with the key of draft %d cannot be read: %w", store.ErrUnknownOutcome, i, err)
			}
		}
		i++
	}
	return store.Pushed{Events: es, Duplicates: b.Duplicates, Subscribed: b.Subscribed, Warning: b.Warning}, nil
}

func (t *Store) pushGroup(ctx context.Context, ds []event.Draft) (store.Pushed, error) {
	for i := range ds {
		if err := ds[i].Validate(); err != nil {
			if len(ds) > 1 {
				err = fmt.Errorf("draft %d: %w", i, err)
			}
			return store.Pushed{}, err
		}
	}
	if len(ds) == 0 {
		return store.Pushed{}, context.Cause(ctx)
	}
	w := &write{drafts: ds}
	err := t.write(ctx, w)
	return w.pushed, err
}

// PushAll implements store.Store. The sequence is read to its end, into a temporary
// file in run/ when it is long, before the database is locked.
func (t *Store) PushAll(ctx context.Context, ds iter.Seq2[event.Draft, error]) (store.Batch, error) {
	sp := spool{dir: t.Path(store.RunName)}
	defer sp.close()
	var few []event.Draft // until the sequence turns out to be long
	size := 0
	for d, err := range ds {
		if err != nil {
			return store.Batch{}, err
		}
		if err := d.Validate(); err != nil {
			return store.Batch{}, err
		}
		if err := context.Cause(ctx); err != nil {
			return store.Batch{}, err
		}
		if len(few) == t.MaxGroup || len(few) > 0 && size+len(d.Content) > maxGroupBytes {
			if err := sp.add(few); err != nil {
				return store.Batch{}, err
			}
			few, size = few[:0], 0
		}
		few = append(few, d)
		size += len(d.Content)
	}
	if sp.n == 0 {
		p, err := t.pushGroup(ctx, few)
		if err != nil || len(p.Events) == 0 {
			return store.Batch{}, err
		}
		es, duplicates := p.Events, p.Duplicates
		b := store.Batch{Count: int64(len(es)), Duplicates: duplicates, LastSource: few[len(few)-1].Source, Subscribed: p.Subscribed, Warning: p.Warning}
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
		return store.Batch{}, err
	}
	return t.pushLongBatch(ctx, &sp)
}
