package servers

import (
	"context"
	"errors"
	"slices"
	"testing"

	"thread/history"
	"thread/internal/address"
	"thread/internal/spans"
	"thread/internal/traces"
	"thread/net/internal/pgtest"
)

// TestFollowers: of two followers of a thread in PostgreSQL, as on two hosts, one exports. The
// other continues where that one has ended, and nothing comes twice.
func TestFollowers(t *testing.T) {
	Use()
	url, ctx := pgtest.Schema(t)+"inbox", t.Context()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ok(address.Init(ctx, url))
	h, err := history.Open(ctx, url)
	ok(err)
	defer h.Close()
	record := func(name string) {
		t.Helper()
		r, err := h.StartRun(ctx, history.RunRow{TriggerType: "system", AgentName: name})
		ok(err)
		ok(r.End(ctx, history.End{Status: history.Completed}))
	}
	var came []string
	take := func(_ context.Context, list []spans.Span) error {
		for _, s := range list {
			came = append(came, s.Name)
		}
		return nil
	}
	down := errors.New("down")
	away := func(context.Context, []spans.Span) error { return down }
	first, second := traces.Follow(url), traces.Follow(url)
	defer second.Close()
	ok(first.Begin(ctx)) // there is no history yet
	record("one")
	ok(first.Look(ctx, take))
	ok(second.Begin(ctx))
	record("two")
	if err := first.Look(ctx, away); !errors.Is(err, down) {
		t.Errorf("a look without an endpoint returned %v", err)
	}
	if err := second.Look(ctx, take); !errors.Is(err, traces.ErrHeld) {
		t.Errorf("the second follower returned %v", err)
	}
	first.Close()
	ok(second.Look(ctx, take))
	ok(second.Look(ctx, take))
	if want := []string{"invoke_agent one", "invoke_agent two"}; !slices.Equal(came, want) {
		t.Errorf("%q came, want %q", came, want)
	}
}
