package engine

import (
	"context"
	"math"
	"time"

	"thread/filter"
	"thread/index"
	"thread/internal/store"
)

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
