package engine

import (
	"errors"
	"math"
	"path/filepath"
	"testing"
	"time"

	"thread/event"
	"thread/filter"
	"thread/internal/store/bolt"
)

// TestExplain: a plan is of the reading that Peek does, for each kind of query.
func TestExplain(t *testing.T) {
	th, err := Init(filepath.Join(t.TempDir(), "t"))
	if err != nil {
		t.Fatal(err)
	}
	drafts := make([]event.Draft, 1030)
	for i := range drafts {
		drafts[i] = event.Draft{Source: []string{"a", "b", "c"}[i%3], Type: "t", Content: []string{"x", "y"}[i%2]}
	}
	if _, err := th.PushBatch(ctx, drafts); err != nil {
		t.Fatal(err)
	}
	defer func(was time.Duration) { bolt.SliceTime = was }(bolt.SliceTime)
	bolt.SliceTime = time.Hour // a busy machine would cut it into slices
	fails := Reads{Transactions: -1}
	for _, c := range []struct {
		q           Query
		first, last int64
		series      SeriesPlan
		reads       Reads
	}{
		{Query{}, 1, 1030, SeriesPlan{Stored: 3}, Reads{1, 1, 0, 6, 1030, 1030}},
		{Query{Limit: 5}, 1, 1030, SeriesPlan{Stored: 3}, Reads{1, 1, 0, 0, 5, 5}},
		{Query{After: 1025, Limit: 3}, 1026, 1030, SeriesPlan{Stored: 3}, Reads{1, 1, 0, 6, 3, 3}},
		{Query{After: math.MaxInt64}, math.MaxInt64, 1030, SeriesPlan{Stored: 3}, Reads{}},
		{Query{Filter: "type <> 't'"}, 1, 1030, SeriesPlan{3, 0, 0, 3, 0}, Reads{Transactions: 1}},
		{Query{Filter: "source = 'b'", Limit: 2}, 1, 1030, SeriesPlan{3, 1, 1, 2, 0}, Reads{1, 1, 0, 0, 2, 2}},
		{Query{Filter: "source <> 'b' AND content = 'y'"}, 1, 1030, SeriesPlan{3, 3, 0, 1, 2}, Reads{1, 1, 0, 6, 687, 343}},
		{Query{Filter: "id BETWEEN 10 AND 12"}, 10, 12, SeriesPlan{3, 3, 0, 0, 3}, Reads{1, 1, 0, 0, 3, 3}},
		{Query{Filter: "id > 2000"}, 2001, 1030, SeriesPlan{Stored: 3}, Reads{Transactions: 1}},
		{Query{Filter: "created_at < '2000'"}, 1, 1030, SeriesPlan{Stored: 3}, Reads{Transactions: 1, BlocksPassed: 1}},
		{Query{Reverse: true, Limit: 4}, 1, 1030, SeriesPlan{Stored: 3}, Reads{1, 1, 0, 6, 4, 4}},
		// Tried first, since it could fail on an event.
		{Query{Filter: "json_array_length(content) > 0 OR 1"}, 1, 1030, SeriesPlan{}, fails},
	} {
		p, err := th.Explain(ctx, c.q)
		if c.reads == fails {
			if !errors.Is(err, filter.ErrRuntime) {
				t.Errorf("%+v: %+v, %v", c.q, p, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		found, err := th.Peek(ctx, c.q)
		if err != nil || int64(len(found)) != p.Reads.Matched {
			t.Errorf("%+v: found %d, %v, peek %d", c.q, p.Reads.Matched, err, len(found))
		}
		if p.FirstID != c.first || p.LastID != c.last || p.Series != c.series || p.Reads != c.reads {
			t.Errorf("%+v: ids %d to %d, %+v, %+v", c.q, p.FirstID, p.LastID, p.Series, p.Reads)
		}
	}
	if _, err := th.Explain(ctx, Query{Limit: -1}); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
}
