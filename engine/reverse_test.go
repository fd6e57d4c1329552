package engine

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"thread/event"
)

// Newest first is oldest first, turned around.
func TestReverse(t *testing.T) {
	now := time.UnixMilli(1773829800123)
	th, err := Init(filepath.Join(t.TempDir(), "t"), WithClock(func() time.Time { return now }))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3000 {
		now = now.Add(time.Duration(i%7-2) * time.Millisecond) // roughly in order
		typ := "often"
		if i%500 == 3 {
			typ = "seldom"
		}
		content := "x"
		if i%100 == 0 {
			content = string(make([]byte, 50<<10))
		}
		if i%10 == 0 {
			if _, err := th.Push(ctx, event.Draft{Source: "s", Type: typ, Content: content}); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if _, err := th.PushBatch(ctx, []event.Draft{{Source: "s", Type: typ, Content: content}}); err != nil {
			t.Fatal(err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		q := Query{
			After:  rapid.Int64Range(0, 3100).Draw(t, "after"),
			Filter: rapid.SampledFrom([]string{"", "type = 'seldom'", "length(content) > 100", "type = 'none'", "id < 40", "json_valid(content) AND abs(id) < 2000"}).Draw(t, "filter"),
		}
		if rapid.Bool().Draw(t, "since") {
			q.Since = time.UnixMilli(1773829800123 + rapid.Int64Range(-10, 4000).Draw(t, "ms"))
		}
		want, err := th.Peek(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		slices.Reverse(want)
		q.Reverse = true
		q.Limit = rapid.Int64Range(0, 700).Draw(t, "limit")
		if q.Limit > 0 {
			want = want[:min(q.Limit, int64(len(want)))]
		}
		got, err := th.Peek(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		sameEvents(t, got, want)
	})
	rapid.Check(t, func(t *rapid.T) {
		when := time.UnixMilli(1773829800123 + rapid.Int64Range(-10, 4000).Draw(t, "ms"))
		got, err := th.Before(ctx, when)
		if err != nil {
			t.Fatal(err)
		}
		all, err := th.Peek(ctx, Query{})
		if err != nil {
			t.Fatal(err)
		}
		want := int64(len(all))
		if i := slices.IndexFunc(all, func(e event.Event) bool { return e.CreatedAt >= event.FormatTime(when) }); i >= 0 {
			want = all[i].ID - 1
		}
		if got != want {
			t.Fatalf("got %d, want %d", got, want)
		}
	})
}
