//go:build linux

package dispatch

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"thread/engine"
)

// TestUnpoppedAsksNotes: who popped nothing is read from the notes, of consumers that are
// still subscribed; without that note the database is not asked.
func TestUnpoppedAsksNotes(t *testing.T) {
	b := newBench(t)
	ctx := context.Background()
	if err := b.t.Subscribe(ctx, engine.Subscription{Consumer: "a", Handler: "true"}); err != nil {
		t.Fatal(err)
	}
	if err := b.r.prepare(); err != nil {
		t.Fatal(err)
	}
	closed, err := engine.Open(b.t.Dir())
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	for _, step := range []struct {
		consumer string
		unpopped bool
		want     []string
		asked    bool
	}{{"a", false, nil, false}, {"gone", true, nil, true}, {"a", true, []string{"a"}, true}, {"gone", false, []string{"a"}, true}, {"a", false, nil, false}} {
		if err := b.r.writeNote(step.consumer, note{State: stateIdle, Unpopped: step.unpopped}); err != nil {
			t.Fatal(err)
		}
		if got, err := Unpopped(ctx, b.t); err != nil || !slices.Equal(got, step.want) {
			t.Errorf("after %+v: %q, %v", step, got, err)
		}
		if _, err := Unpopped(ctx, closed); errors.Is(err, engine.ErrClosed) != step.asked {
			t.Errorf("after %+v the database was asked, or not: %v", step, err)
		}
	}
}

// TestUnpoppedRun: a handler that exits with 0 and has popped nothing is reported, once; but
// not where events are settled out of order, as the progress shows less there.
func TestUnpoppedRun(t *testing.T) {
	b := newBench(t)
	t.Setenv(envDispatch, wakeNone)
	s := b.server()
	for _, consumer := range []string{"c", "w"} {
		b.subscribe(engine.Subscription{Consumer: consumer, Handler: "true"})
	}
	b.push("s")
	feed, err := b.t.ParallelFeed("w", engine.ParallelPolicy{})
	must(t, err)
	must(t, second(feed.Step(t.Context(), engine.Step{Begin: 1})))
	must(t, feed.Close())
	for range 2 {
		b.run(s, "c", false, true)
		b.run(s, "w", false, true)
	}
	if got, err := Unpopped(t.Context(), b.t); err != nil || !slices.Equal(got, []string{"c"}) {
		t.Errorf("%q, %v", got, err)
	}
	if n := strings.Count(b.log(), "exited 0 without popping anything"); n != 1 {
		t.Errorf("it is reported %d times:\n%s", n, b.log())
	}
}
