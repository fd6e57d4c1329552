//go:build !lite

package filter_test

import (
	"iter"
	"testing"

	"thread/engine"
	"thread/event"
	"thread/filter"
)

// TestSeriesAnswerNeedsNoProgram plants a panic where filters are compiled to programs. A
// filter that series answer does not reach it: not in a push with a subscription, not
// when it is asked for what is due, and not in a page or a scan.
func TestSeriesAnswerNeedsNoProgram(t *testing.T) {
	ctx := t.Context()
	th, err := engine.OpenOrCreate(t.TempDir() + "/inbox")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { th.Close() })
	where := "type = 'message' AND source LIKE 'external:%' OR subtype IN ('a', 'b')"
	if err := th.Subscribe(ctx, engine.Subscription{Consumer: "c", Handler: "true", Filter: &where}); err != nil {
		t.Fatal(err)
	}
	count := func(events iter.Seq2[event.Event, error]) (n int) {
		t.Helper()
		for _, err := range events {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		return n
	}
	use := func(where string) (popped, found int) {
		t.Helper()
		for _, d := range []event.Draft{
			{Source: "external:x", Type: "message", Content: "hello"},
			{Source: "self", Type: "message", Content: "hello"},
			{Source: "self", Type: "record", Subtype: event.Text("a"), Content: "hello"},
		} {
			if _, err := th.Push(ctx, d); err != nil {
				t.Fatal(err)
			}
		}
		if due, err := th.Due(ctx); err != nil || len(due) != 1 {
			t.Fatal(due, err)
		}
		page, err := th.Pop(ctx, "c", engine.PopQuery{})
		if err != nil {
			t.Fatal(err)
		}
		for _, reverse := range []bool{false, true} {
			found += count(th.Events(ctx, engine.Query{Filter: where, Reverse: reverse}))
		}
		return count(page.Events), found
	}
	compiled := 0
	restore := filter.OnCompile(func() { compiled++ })
	if popped, found := use("content LIKE 'h%'"); popped != 2 || found != 6 || compiled == 0 {
		t.Fatalf("%d events popped, %d found, %d programs: the hook proves nothing", popped, found, compiled)
	}
	restore()
	defer filter.OnCompile(func() { panic("a program is compiled") })()
	if popped, found := use(where); popped != 4 || found != 8 {
		t.Errorf("%d events popped, %d found", popped, found)
	}
	f, err := filter.Compile("id > 5 AND content LIKE 'x'")
	if err != nil {
		t.Fatal(err)
	}
	f.Series("a", "b", "", false)
	f.IDRange()
	f.CreatedAtRange()
	f.Explain()
	f.Matcher()
}
