package engine

import (
	"context"
	"iter"
	"math"
	"slices"
	"time"

	"thread/event"
	"thread/filter"
	"thread/internal/store"
)

// Query selects events.
type Query struct {
	After  int64  // only ids above this one; 0 for all
	Limit  int64  // at most that many; 0 for all
	Filter string // only those that match; "" for all
	// Since selects events whose created_at is at or after this time, compared as
	// text like in a filter; zero for all.
	Since   time.Time
	Reverse bool // newest first
}

func (q *Query) compile() (*filter.Filter, int64, error) {
	if q.After < 0 {
		return nil, 0, invalidf("after is negative")
	}
	if q.Limit < 0 {
		return nil, 0, invalidf("limit is negative")
	}
	f, err := filter.Compile(q.Filter)
	if err == nil && !q.Since.IsZero() {
		f, err = filter.Compile(sinceFilter(q.Filter, q.Since))
	}
	if q.Limit == 0 {
		return f, math.MaxInt64, err
	}
	return f, q.Limit, err
}

// Peek returns the selected events, in id order unless q says otherwise. It changes
// nothing and works on a read-only medium.
//
// Peek returns [*filter.Error] for an invalid filter, an error that wraps
// [filter.ErrRuntime] when it fails on an event, [ErrInvalid] and [ErrBusy].
func (t *Thread) Peek(ctx context.Context, q Query) ([]event.Event, error) {
	var es []event.Event
	for e, err := range t.Events(ctx, q) {
		if err != nil {
			return nil, err
		}
		es = append(es, e)
	}
	return es, nil
}

// Events is [Thread.Peek] in bounded memory. Nothing is open or locked while the
// caller has an event. Events that are pushed after the first one was asked for are
// not part of the sequence. An error is the last element; a filter that can fail at
// run time is tried on everything before the first event is yielded, so that an error
// stands alone.
func (t *Thread) Events(ctx context.Context, q Query) iter.Seq2[event.Event, error] {
	return t.events(ctx, q, func(*store.Selection) {})
}

// events is Events. It tells planned what the search will know of its filter.
func (t *Thread) events(ctx context.Context, q Query, planned func(s *store.Selection)) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		f, limit, err := q.compile()
		if err != nil {
			yield(event.Event{}, err)
			return
		}
		s := store.NewSelection(f, nil)
		planned(s)
		if q.Reverse {
			t.newestFirst(ctx, s, q.After, limit, f.CanFail(), yield)
			return
		}
		r := reading{t: t, selection: s, after: q.After, upto: math.MaxInt64, limit: limit}
		if f.CanFail() {
			tried := r
			if err := tried.dryRun(ctx); err != nil {
				yield(event.Event{}, err)
				return
			}
			r.upto = tried.after
		}
		r.all(ctx, yield)
	}
}

// reading goes through the matching events in (after, upto] in slices: a short
// read transaction each, so that writers get their turn.
type reading struct {
	t           *Thread
	selection   *store.Selection
	after, upto int64 // upto becomes the newest id with the first slice
	limit       int64
	skip        spans // these ids are left out

	events []event.Event // of the latest slice
	slices int
}

// resultBytes is how many bytes of contents are kept at once, by and large.
const resultBytes = 1 << 20

// scan starts the next slice, up to an id.
func (r *reading) scan(upto int64) store.Scan {
	r.slices++
	return store.Scan{Selection: r.selection, After: r.after, Upto: upto, Slice: true, Long: r.slices > 1}
}

// slice reads on for a while and returns copies of what it found, which are
// valid until the next slice.
func (r *reading) slice(tx *Tx) (es []event.Event, err error) {
	if r.upto == math.MaxInt64 {
		r.upto = tx.s.State().Head
	}
	es, r.after, err = tx.s.Page(r.scan(r.upto), r.limit, r.events[:0])
	r.events = es
	if r.skip != nil {
		es = slices.DeleteFunc(es, func(e event.Event) bool {
			_, skipped := r.skip.find(e.ID)
			return skipped
		})
	}
	r.limit -= int64(len(es))
	return es, err
}

// done reports whether nothing is left to read.
func (r *reading) done() bool { return r.limit <= 0 || r.after >= r.upto }

// all yields the events, slice by slice.
func (r *reading) all(ctx context.Context, yield func(event.Event, error) bool) {
	for !r.done() {
		var es []event.Event
		err := r.t.read(ctx, func(tx *Tx) (err error) {
			es, err = r.slice(tx)
			return err
		})
		for _, e := range es {
			if !yield(e, nil) {
				return
			}
		}
		if err != nil {
			yield(event.Event{}, err)
			return
		}
	}
}

// dryRun evaluates the filter on everything that all would read, up to the
// newest event, keeps nothing and returns the first error. Afterwards r stands
// where all would stand.
func (r *reading) dryRun(ctx context.Context) error {
	upto := int64(math.MaxInt64)
	for r.limit > 0 && r.after < upto {
		err := r.t.read(ctx, func(tx *Tx) (err error) {
			upto = min(upto, tx.s.State().Head)
			r.after, err = tx.s.Scan(r.scan(upto), r.count)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// count is the callback of a search whose events no caller wants.
func (r *reading) count(id int64) (bool, error) {
	if _, skipped := r.skip.find(id); skipped {
		return true, nil
	}
	r.limit--
	return r.limit > 0, nil
}
