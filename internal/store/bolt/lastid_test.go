package bolt_test

import (
	"context"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/store/bolt"
)

// Imported ids may be any positive integers: events whose ids lie at the very end
// of the range, and far apart, are found in both directions and from every place.
func TestGreatestIDs(t *testing.T) {
	ids := []int64{1, 13, 59, 5000, 1 << 53, math.MaxInt64 - 2000, math.MaxInt64 - 100, math.MaxInt64 - 1}
	dir := filepath.Join(t.TempDir(), "t")
	r, err := bolt.StartRestore(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for i, id := range ids {
		e := event.Event{ID: id, CreatedAt: "2026-03-18T10:30:00.123Z", Source: []string{"a", "b"}[i%2], Type: "t", Content: "c"}
		if id < 1<<53 { // one of these fills a slice
			e.Content += strings.Repeat(" ", bolt.SliceBytes)
		}
		if err := r.Event(&e); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Finish(ids[len(ids)-1], 0); err != nil {
		t.Fatal(err)
	}
	if err := r.Publish(); err != nil {
		t.Fatal(err)
	}
	th, err := engine.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // for a search without end
	defer cancel()
	for _, where := range []string{"", "source = 'b'", "source = 'a'", "trim(content) = 'c' AND source = 'a'", "id > 9007199254740992"} {
		for _, after := range append([]int64{0}, ids...) {
			want := []int64{}
			for i, id := range ids {
				keep := where == "" || (where == "source = 'b'") == (i%2 == 1)
				if where == "id > 9007199254740992" {
					keep = id > 1<<53
				}
				if id > after && keep {
					want = append(want, id)
				}
			}
			for _, reverse := range []bool{false, true} {
				es, err := th.Peek(ctx, engine.Query{After: after, Filter: where, Reverse: reverse})
				if err != nil {
					t.Fatal(err)
				}
				same := len(es) == len(want)
				for i := range es {
					j := i
					if reverse {
						j = len(want) - 1 - i
					}
					same = same && es[i].ID == want[j]
				}
				if !same {
					t.Errorf("%q after %d, reverse %v: %d events, want %d", where, after, reverse, len(es), len(want))
				}
			}
		}
	}
}
