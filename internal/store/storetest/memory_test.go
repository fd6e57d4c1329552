package storetest_test

import (
	"context"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"thread/event"
	"thread/filter"
	"thread/internal/store"
	"thread/internal/store/storetest"
)

// The model: a thread in memory, as plain as it goes. Every transaction works on a copy
// of everything, which a write puts in its place.

func TestModel(t *testing.T) {
	storetest.Run(t, func(*testing.T) func(l store.Logic) store.Store {
		th := &thread{now: &data{tables: map[store.Table]*table{}}}
		return func(l store.Logic) store.Store { return &handle{thread: th, logic: l} }
	})
}

type thread struct {
	mu  sync.Mutex
	now *data
}

type data struct {
	events []event.Event // in order
	last   int64
	count  int64
	tables map[store.Table]*table
}

type table struct {
	records  map[string][]byte
	sequence uint64
}

func (d *data) clone() *data {
	c := *d
	c.events = slices.Clone(d.events)
	c.tables = map[store.Table]*table{}
	for name, t := range d.tables {
		c.tables[name] = &table{maps.Clone(t.records), t.sequence}
	}
	return &c
}

type handle struct {
	*thread
	logic  store.Logic
	closed bool
}

func (h *handle) ready(ctx context.Context) error {
	if h.closed {
		return store.ErrClosed
	}
	return context.Cause(ctx)
}

func (h *handle) View(ctx context.Context, fn func(tx store.Tx) error) error {
	if err := h.ready(ctx); err != nil {
		return err
	}
	h.mu.Lock()
	d := h.now
	h.mu.Unlock()
	return fn(&tx{data: d, visible: d.head()})
}

func (h *handle) Update(ctx context.Context, fn func(s store.Session) error) error {
	return h.write(ctx, func(_ *tx, s store.Session) error { return fn(s) })
}

func (h *handle) write(ctx context.Context, fn func(tx *tx, s store.Session) error) error {
	if err := h.ready(ctx); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	d := &tx{data: h.now.clone(), visible: h.now.head(), writable: true}
	if _, err := h.logic.Write(d, false, func(s store.Session) error { return fn(d, s) }); err != nil {
		return err
	}
	h.now = d.data
	return nil
}

func (h *handle) Push(ctx context.Context, ds []event.Draft) (p store.Pushed, err error) {
	err = h.write(ctx, func(tx *tx, s store.Session) error {
		for i := range ds {
			if err := ds[i].Validate(); err != nil {
				return err
			}
			e, duplicate, err := s.Push(&ds[i], "2026-03-18T10:30:00.123Z")
			if duplicate && err == nil {
				p.Duplicates = append(p.Duplicates, store.Duplicate{Index: int64(i), ID: e.ID})
				e, _, err = tx.Event(e.ID)
			}
			if err != nil {
				return err
			}
			p.Events = append(p.Events, e)
		}
		p.Subscribed = h.logic.Subscribed(tx)
		return nil
	})
	return p, err
}

func (h *handle) PushAll(ctx context.Context, all iter.Seq2[event.Draft, error]) (b store.Batch, err error) {
	var ds []event.Draft
	for d, err := range all {
		if err != nil {
			return b, err
		}
		ds = append(ds, d)
	}
	p, err := h.Push(ctx, ds)
	b.Count, b.Duplicates = int64(len(p.Events)), p.Duplicates
	duplicates := p.Duplicates
	for i, e := range p.Events {
		if len(duplicates) > 0 && duplicates[0].Index == int64(i) {
			duplicates = duplicates[1:]
			continue
		}
		if b.First == 0 {
			b.First = e.ID
		}
		b.Last = e.ID
	}
	return b, err
}

func (h *handle) Prune(ctx context.Context, d store.Dropping) (c store.Compaction, err error) {
	err = h.write(ctx, func(tx *tx, _ store.Session) error {
		if c.Through, err = d.Through(tx); err != nil {
			return err
		}
		if err := d.May(tx, c.Through); err != nil {
			return err
		}
		n := len(tx.events)
		tx.events = slices.DeleteFunc(tx.events, func(e event.Event) bool { return e.ID <= c.Through })
		c.Kept = int64(len(tx.events))
		c.Dropped = int64(n) - c.Kept
		return nil
	})
	return c, err
}

func (h *handle) Compact(ctx context.Context) (c store.Compaction, err error) {
	err = h.View(ctx, func(tx store.Tx) error { c.Kept = tx.State().Stored; return nil })
	return c, err
}

func (h *handle) Close() error { h.closed = true; return nil }

type tx struct {
	*data
	visible  int64
	writable bool
}

func (d *data) head() int64 { return d.last }

func (tx *tx) Writable() bool { return tx.writable }
func (tx *tx) Yield() bool    { return false }
func (tx *tx) Size() int64    { return int64(len(tx.events)) }
func (tx *tx) Unused() int64  { return 0 }

func (tx *tx) State() store.State {
	return store.State{Head: tx.last, LastID: tx.last, Count: tx.count, Stored: int64(len(tx.events)), Visible: tx.visible}
}

func (tx *tx) table(name store.Table) *table {
	t := tx.tables[name]
	if t == nil {
		t = &table{records: map[string][]byte{}}
		if tx.writable {
			tx.tables[name] = t
		}
	}
	return t
}

func (tx *tx) Get(t store.Table, key []byte) ([]byte, error) {
	return tx.table(t).records[string(key)], nil
}

func (tx *tx) Put(t store.Table, key, value []byte) error {
	tx.table(t).records[string(key)] = append([]byte{}, value...)
	return nil
}

func (tx *tx) Delete(t store.Table, key []byte) error {
	delete(tx.table(t).records, string(key))
	return nil
}

func (tx *tx) each(t store.Table, reverse bool, in func(k string) bool, fn func(k, v []byte) (bool, error)) error {
	r := tx.table(t).records
	keys := slices.Sorted(maps.Keys(r))
	if reverse {
		slices.Reverse(keys)
	}
	for _, k := range keys {
		if !in(k) {
			continue
		}
		if more, err := fn([]byte(k), r[k]); err != nil || !more {
			return err
		}
	}
	return nil
}

func (tx *tx) Ascend(t store.Table, from []byte, fn func(k, v []byte) (bool, error)) error {
	return tx.each(t, false, func(k string) bool { return k >= string(from) }, fn)
}

func (tx *tx) Descend(t store.Table, before []byte, fn func(k, v []byte) (bool, error)) error {
	return tx.each(t, true, func(k string) bool { return before == nil || k < string(before) }, fn)
}

func (tx *tx) Sequence(t store.Table) (uint64, error)    { return tx.table(t).sequence, nil }
func (tx *tx) SetSequence(t store.Table, n uint64) error { tx.table(t).sequence = n; return nil }
func (tx *tx) Drop(t store.Table) error                  { delete(tx.tables, t); return nil }
func (tx *tx) Learn([]*store.Selection) (bool, error)    { return true, nil }
func (tx *tx) SeriesCount() (int64, error)               { return 0, nil }

func (tx *tx) Append(d *event.Draft, createdAt string) (event.Event, error) {
	if tx.last == math.MaxInt64 {
		return event.Event{}, store.ErrIDsExhausted
	}
	tx.last++
	tx.count++
	e := event.Event{ID: tx.last, CreatedAt: createdAt, Source: d.Source, Type: d.Type, Subtype: d.Subtype, Content: strings.Clone(d.Content)}
	tx.events = append(tx.events, e)
	return e, nil
}

func (tx *tx) Event(id int64) (event.Event, bool, error) {
	for _, e := range tx.events {
		if e.ID == id {
			return e, true, nil
		}
	}
	return event.Event{ID: id}, false, nil
}

func (tx *tx) Has(id int64) (bool, error) {
	_, ok, err := tx.Event(id)
	return ok, err
}

func (tx *tx) EventsAfter(after int64, fn func(e *event.Event) error) error {
	for i := range tx.events {
		if tx.events[i].ID > after {
			if err := fn(&tx.events[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (tx *tx) Oldest() (int64, error) {
	if len(tx.events) == 0 {
		return 0, nil
	}
	return tx.events[0].ID, nil
}

func (tx *tx) BeforeNewest(n int64) (int64, error) {
	if n >= int64(len(tx.events)) {
		return 0, nil
	}
	return tx.events[int64(len(tx.events))-n-1].ID, nil
}

func (tx *tx) scan(q store.Scan, fn func(e *event.Event) bool) (int64, error) {
	for i := range tx.events {
		e := &tx.events[i]
		if e.ID <= q.After || e.ID > q.Upto {
			continue
		}
		if q.Selection.Filter != nil {
			row := filter.Row{ID: e.ID, CreatedAt: e.CreatedAt, Source: e.Source, Type: e.Type, Content: e.Content}
			if e.Subtype != nil {
				row.Subtype, row.HasSubtype = *e.Subtype, true
			}
			if ok, err := q.Selection.Match(&row); !ok || err != nil {
				if err != nil {
					return e.ID, err
				}
				continue
			}
		}
		if !fn(e) {
			return e.ID, nil
		}
	}
	return max(q.After, min(q.Upto, tx.last)), nil
}

func (tx *tx) Scan(q store.Scan, fn func(id int64) (bool, error)) (pos int64, err error) {
	pos, serr := tx.scan(q, func(e *event.Event) (more bool) {
		more, err = fn(e.ID)
		return more && err == nil
	})
	if err == nil {
		err = serr
	}
	return pos, err
}

func (tx *tx) ScanSeries(q store.Scan, fn func(e *event.Event, read func() error) (bool, error)) (pos int64, err error) {
	pos, serr := tx.scan(q, func(stored *event.Event) (more bool) {
		e := event.Event{ID: stored.ID, Source: stored.Source, Type: stored.Type, Subtype: stored.Subtype}
		more, err = fn(&e, func() error { e = *stored; return nil })
		return more && err == nil
	})
	if err == nil {
		err = serr
	}
	return pos, err
}

func (tx *tx) Page(q store.Scan, limit int64, page []event.Event) ([]event.Event, int64, error) {
	pos, err := tx.scan(q, func(e *event.Event) bool {
		page = append(page, *e)
		limit--
		return limit > 0
	})
	return page, pos, err
}
