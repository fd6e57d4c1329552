package engine

import (
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"thread/event"
	"thread/filter"
	"thread/index"
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

// sinceFilter returns a filter for what where selects at or after when.
func sinceFilter(where string, when time.Time) string {
	since := "created_at >= '" + event.FormatTime(when) + "'"
	if where == "" {
		return since
	}
	return "(" + where + "\n) AND " + since // where may end in a comment
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

// The widths of the windows, in ids, through which events are read newest first:
// each is searched forward, in one short transaction.
const (
	firstWindow  = 256
	windowEvents = 512              // at most that many are returned of one
	quickWindow  = time.Millisecond // one that took less is followed by a wider one
)

// newestFirst yields the selected events from the newest to the oldest.
func (t *Thread) newestFirst(ctx context.Context, v *store.Selection, after, limit int64, canFail bool, yield func(event.Event, error) bool) {
	if canFail {
		// An error is to stand alone, so all that would be read is tried first.
		for _, err := range t.backward(ctx, v, after, limit, false) {
			if err != nil {
				yield(event.Event{}, err)
				return
			}
		}
	}
	for e, err := range t.backward(ctx, v, after, limit, true) {
		if !yield(e, err) {
			return
		}
	}
}

// backward goes through the windows. Without load, events have nothing but ids.
func (t *Thread) backward(ctx context.Context, v *store.Selection, after, limit int64, load bool) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		upto, width := int64(-1), int64(firstWindow)
		for limit > 0 && upto != 0 {
			var found []event.Event
			err := t.read(ctx, func(tx *Tx) (err error) {
				if upto < 0 {
					upto = tx.Head()
				}
				start := time.Now()
				from := after
				if width < upto-after {
					from = upto - width
				}
				found, upto, err = tx.window(v, from, upto, limit, load)
				if time.Since(start) < quickWindow && width <= math.MaxInt64/2 {
					width *= 2 // imported ids may lie far apart
				}
				if upto <= after {
					upto = 0
				}
				return err
			})
			if err != nil {
				yield(event.Event{}, err)
				return
			}
			for _, e := range found {
				limit--
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

// window returns the last matching events in (from, upto], newest first: at most
// limit, and fewer when they are large. What is older than the last one, down to
// rest, was not read; rest is from when everything was.
func (tx *Tx) window(v *store.Selection, from, upto, limit int64, load bool) (events []event.Event, rest int64, err error) {
	limit = min(limit, windowEvents)
	var hits []int64
	rest = from
	if _, err := tx.s.Scan(store.Scan{Selection: v, After: from, Upto: upto}, func(id int64) (bool, error) {
		if int64(len(hits)) == 2*limit {
			hits = append(hits[:0], hits[limit:]...)
			rest = hits[0] - 1
		}
		hits = append(hits, id)
		return true, nil
	}); err != nil {
		return nil, 0, err
	}
	if n := int64(len(hits)) - limit; n > 0 {
		hits = hits[n:]
		rest = hits[0] - 1
	}
	size := 0
	for _, id := range slices.Backward(hits) {
		e := event.Event{ID: id}
		if load {
			var ok bool
			v.Reads.Events++
			if e, ok, err = tx.s.Event(id); err == nil && !ok {
				err = fmt.Errorf("%w: event %d", ErrCorrupt, id)
			}
			if err != nil {
				return nil, 0, err
			}
		}
		events = append(events, e)
		if size += len(e.Content); size > resultBytes {
			return events, e.ID - 1, nil
		}
	}
	return events, rest, nil
}

// Plan says how a query is answered, and what was read to answer it.
type Plan struct {
	// Filter is the query's, with Since as one more part.
	Filter filter.Explanation
	// FirstID and LastID are the first and the last id that can match, by the
	// query, its filter and the newest event; there is none if FirstID is greater.
	FirstID, LastID int64
	// CreatedFrom and CreatedBefore are the bounds that the filter has for
	// created_at, as texts: the first included, the second not, "" for none. Blocks
	// of the column that lie outside are passed over.
	CreatedFrom, CreatedBefore string
	Series                     SeriesPlan
	Reads                      Reads
	Elapsed                    time.Duration // for all of it
}

// SeriesPlan is what is known of series, the distinct triples of source, type and
// subtype. The filter is asked about a series when it is met, or about all at once
// when a search becomes long; those whose source or type cannot match need not be
// asked about.
type SeriesPlan struct {
	Stored int64 // series in the thread
	Asked  int64 // how often the filter was asked about one
	All    int64 // series that match whatever the event,
	None   int64 // that do not match whatever the event,
	Open   int64 // that depend on the event, which has to be read
}

// Reads counts what a query read. A part that a later slice of a long read
// comes back to counts again.
type Reads struct {
	Transactions int64 // slices, in which writers get their turn in between
	Blocks       int64 // column blocks of up to 1024 events whose series were gone through
	BlocksPassed int64 // blocks that were passed over for their times
	Tail         int64 // events behind the last block whose series were gone through
	Events       int64 // events that were read, to match them or to return them
	Matched      int64 // events that were found
}

// Explain reads what [Thread.Events] would yield, and returns how that was done
// instead. Its errors are the errors of Peek.
func (t *Thread) Explain(ctx context.Context, q Query) (*Plan, error) {
	p := new(Plan)
	start := time.Now()
	matched := int64(0)
	var s *store.Selection
	for _, err := range t.events(ctx, q, func(of *store.Selection) { s = of }) {
		if err != nil {
			return nil, err
		}
		matched++
	}
	p.Elapsed = time.Since(start)
	p.Reads = Reads(s.Reads)
	p.Reads.Matched = matched
	f, _, err := q.compile()
	if err != nil {
		return nil, err
	}
	p.Filter = f.Explain()
	p.CreatedFrom, p.CreatedBefore = f.CreatedAtRange()
	low, high := f.IDRange()
	err = t.read(ctx, func(tx *Tx) error {
		p.FirstID, p.LastID = max(low, 1), min(tx.Head(), high)
		if q.After >= p.FirstID {
			p.FirstID = q.After + min(1, math.MaxInt64-q.After)
		}
		p.Series.Stored, err = tx.s.SeriesCount()
		return err
	})
	p.Series.count(s)
	return p, err
}

func (s *SeriesPlan) count(v *store.Selection) {
	given := v.Answers.Count()
	s.Asked, s.All, s.None, s.Open = v.Asked, given[index.All], given[index.None], given[index.Open]
	if v.Answers.Rest() != 0 { // all have an answer
		s.None = s.Stored - s.All - s.Open
	}
}
