package engine

import (
	"errors"
	"maps"
	"path/filepath"
	"testing"

	"thread/event"
	"thread/filter"

	"pgregory.net/rapid"
)

// TestCounts compares Counts with counting the events that Peek returns.
func TestCounts(t *testing.T) {
	th, err := Init(filepath.Join(t.TempDir(), "t"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := th.Counts(ctx, Query{}); err != nil || len(got) != 0 {
		t.Errorf("of an empty thread: %v, %v", got, err)
	}
	var wrong *filter.Error
	if _, err := th.Counts(ctx, Query{Filter: "type ="}); !errors.As(err, &wrong) {
		t.Errorf("with a wrong filter: %v", err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		name := rapid.SampledFrom([]string{"a", "b", "A", "", "ä b"})
		drafts := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) event.Draft {
			d := event.Draft{Source: "s" + name.Draw(rt, "source"), Type: "t" + name.Draw(rt, "type"), Content: name.Draw(rt, "content")}
			if rapid.Bool().Draw(rt, "has a subtype") {
				d.Subtype = event.Text(name.Draw(rt, "subtype"))
			}
			return d
		}), 0, 8).Draw(rt, "drafts")
		if _, err := th.PushBatch(ctx, drafts); err != nil {
			rt.Fatal(err)
		}
		q := Query{After: rapid.Int64Range(0, 100).Draw(rt, "after"), Filter: rapid.SampledFrom([]string{"", "type GLOB 't[ab]'",
			"subtype IS NULL", "subtype = ''", "content = 'a'", "id % 2 = 0 -- even", "1=0"}).Draw(rt, "filter")}
		es, err := th.Peek(ctx, q)
		if err != nil {
			rt.Fatal(err)
		}
		want := map[Series]int64{}
		for _, e := range es {
			s := Series{Source: e.Source, Type: e.Type}
			if e.Subtype != nil {
				s.Subtype, s.HasSubtype = *e.Subtype, true
			}
			want[s]++
		}
		q.Limit, q.Reverse = rapid.Int64Range(0, 3).Draw(rt, "limit"), rapid.Bool().Draw(rt, "reverse")
		if got, err := th.Counts(ctx, q); err != nil || !maps.Equal(got, want) {
			rt.Fatalf("%v, %v, want %v", got, err, want)
		}
	})
}
