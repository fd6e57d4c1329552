package engine

import (
	"context"
	"iter"
	"math"
	"time"

	"thread/event"
	"thread/filter"
)

// Query selects events.
type Query struct {
	After  int64  // only ids above this one; 0 for all
	Limit  int64  // at most so many; 0 for all
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

// Peek returns the selected events, in id order unless q says otherwise. It changes nothing and works on
// a read-only medium.
//
// Peek returns *filter.Error for a filter that is not one, an error that wraps
// filter.ErrRuntime when it fails on an event, ErrInvalid and ErrBusy.
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

// Events is Peek in bounded memory. Nothing is open or locked while the caller
// has an event. Events that are pushed after the first one was asked for are not
// part of the sequence. An error is the last element; a filter that can fail at
// run time is tried on everything before the first event is yielded, so that an
// error stands alone.
func (t *Thread) Events(ctx context.Context, q Query) iter.Seq2[event.Event, error] {
	return t.events(ctx, q, func(*verdicts) {})
}

// events is Events. It tells planned what the search will know of its filter.
func (t *Thread) events(ctx context.Context, q Query, planned func(v *verdicts)) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		f, limit, err := q.compile()
		if err != nil {
			yield(event.Event{}, err)
			return
		}
		v := newVerdicts(f)
		planned(v)
		if q.Reverse {
			t.newestFirst(ctx, v, q.After, limit, f.CanFail(), yield)
			return
		}
		r := reading{t: t, verdicts: v, after: q.After, upto: math.MaxInt64, limit: limit}
		if f.CanFail() {
			tried := r
			if err := tried.rehearse(ctx); err != nil {
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
	verdicts    *verdicts
	after, upto int64 // upto becomes the newest id with the first slice
	limit       int64

	events []event.Event // of the latest slice
	slices int
}

// The bounds of a slice. Its time is a variable for the tests.
var sliceTime = 4 * time.Millisecond

const (
	sliceBytes = 1 << 20

	shortPage = 128 // events that are made room for at once
)

// search starts the next slice.
func (r *reading) search(tx *Tx) *search {
	if r.slices++; r.slices > 1 {
		tx.readAhead()
	}
	s := tx.search(r.verdicts)
	s.setDeadline()
	return s
}

func (s *search) setDeadline() {
	now := time.Now()
	s.deadline, s.glance = now.Add(sliceTime), now.Add(glanceTime)
}

// slice reads on for a while and returns copies of what it found, which are
// valid until the next slice.
func (r *reading) slice(tx *Tx) (es []event.Event, err error) {
	s := r.search(tx)
	if r.upto == math.MaxInt64 {
		r.upto = tx.st.head
	}
	es = r.events[:0]
	if es == nil {
		es = make([]event.Event, 0, min(r.limit, shortPage))
	}
	defer func() { r.events = es }()
	var contents arena
	r.after, err = s.run(r.after, r.upto, func(h *hit) (bool, error) {
		if err := s.load(h); err != nil {
			return false, err
		}
		if err := s.loadContent(h); err != nil {
			return false, err
		}
		series, err := tx.dict.Get(h.series)
		if err != nil {
			return false, err
		}
		es = append(es, event.Event{
			ID: h.id, CreatedAt: tx.timeOf(&h.rec),
			Source: series.Source, Type: series.Type, Subtype: series.Subtype, Content: contents.take(&h.rec),
		})
		r.limit--
		return r.limit > 0 && contents.size+128*len(es) < sliceBytes, nil
	})
	return es, err
}

// arenaBytes is the size of a piece: large enough for the Go runtime to take it
// from the operating system and not to clear it.
const arenaBytes = 64 << 10

// arena copies texts into few large pieces of memory.
type arena struct {
	free []byte
	size int // of all copies
}

// take returns the content of r, copied unless it has memory of its own.
func (a *arena) take(r *record) string {
	if r.pieces {
		a.size += len(r.content)
		return text(r.content)
	}
	return a.copy(r.content)
}

func (a *arena) copy(b []byte) string {
	if len(b) > cap(a.free)-len(a.free) {
		// A piece that is not filled costs little: the pages of memory that nothing
		// is written to are not there.
		a.free = make([]byte, 0, max(len(b), arenaBytes))
	}
	start := len(a.free)
	a.free = append(a.free, b...)
	a.size += len(b)
	return text(a.free[start:])
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

// rehearse evaluates the filter on everything that all would read, up to the
// newest event, keeps nothing and returns the first error. Afterwards r stands
// where all would stand.
func (r *reading) rehearse(ctx context.Context) error {
	upto := int64(math.MaxInt64)
	for r.limit > 0 && r.after < upto {
		err := r.t.read(ctx, func(tx *Tx) (err error) {
			s := r.search(tx)
			upto = min(upto, tx.st.head)
			r.after, err = s.run(r.after, upto, r.count)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// count is the callback of a search that only looks.
func (r *reading) count(*hit) (bool, error) {
	r.limit--
	return r.limit > 0, nil
}
