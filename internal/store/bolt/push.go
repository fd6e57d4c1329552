package bolt

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"thread/event"
	"thread/index"
	"thread/internal/store"
	"thread/internal/store/bolt/disk"
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

// Event implements store.Tx.
func (tx *Tx) Event(id int64) (e event.Event, ok bool, err error) {
	c, found, err := tx.record(id)
	if !found || err != nil {
		return event.Event{ID: id}, false, err
	}
	err = tx.fill(&e, id, &c.rec)
	if !c.rec.Pieces {
		e.Content = strings.Clone(e.Content)
	}
	return e, err == nil, err
}

// Oldest implements store.Tx.
func (tx *Tx) Oldest() (int64, error) {
	events, err := tx.eventBucket()
	if err != nil {
		return 0, err
	}
	if err := index.CheckPath(events, nil); err != nil {
		return 0, err
	}
	first, _ := events.Cursor().First()
	if first == nil {
		return 0, nil
	}
	return disk.EventID(first)
}

// BeforeNewest implements store.Tx. It counts in the columns: to read the events themselves,
// which lie far apart, made pushes wait for seconds where a million of them were to stay.
func (tx *Tx) BeforeNewest(n int64) (int64, error) {
	if n >= tx.st.Stored {
		return 0, nil
	}
	if err := tx.groups.flush(); err != nil {
		return 0, err
	}
	columns, err := tx.columnBucket()
	if err != nil {
		return 0, err
	}
	last, _, err := index.LastBlock(columns)
	if err != nil {
		return 0, err
	}
	var tail []int64 // behind the blocks
	next := tx.eventCursor()
	for err = next.from(last.Last + 1); err == nil; {
		var more bool
		if more, err = next.next(); !more || next.g.ID > tx.st.Head {
			break
		}
		if next.g.ID > last.Last { // a group may begin before it
			tail = append(tail, next.g.ID)
		}
	}
	if err != nil {
		return 0, err
	}
	if n < int64(len(tail)) {
		return tail[len(tail)-1-int(n)], nil
	}
	n -= int64(len(tail))
	if err := index.CheckTree(columns); err != nil {
		return 0, err
	}
	c := columns.Cursor()
	for k, v := c.Last(); k != nil; k, v = c.Prev() {
		b, err := index.DecodeBlock(k, v)
		if err != nil {
			return 0, err
		}
		count := min(b.Count, max(0, b.After(tx.st.Head))) // the rest is of a batch that did not end
		if n < int64(count) {
			return b.ID(count - 1 - int(n)), nil
		}
		n -= int64(count)
	}
	return 0, fmt.Errorf("%w: the columns have fewer events than are stored", store.ErrCorrupt)
}
