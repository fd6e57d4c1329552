//go:build linux

package dispatch

import (
	"context"
	"errors"
	"slices"
	"testing"

	"thread/engine"
)

// TestUnpoppedAsksNotes: who popped nothing is read from the notes, of consumers that are
// still subscribed; without such a note the database is not asked.
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
