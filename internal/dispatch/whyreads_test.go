//go:build linux

package dispatch

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"thread/engine"
	"thread/internal/faults"
)

// TestWhyReadFails: whatever read fails, what is said of an event is what is so, or an error.
func TestWhyReadFails(t *testing.T) {
	ctx := context.Background()
	// begun gives out deliveries of one event, and settles the last of them.
	begun := func(t *testing.T, th *engine.Thread, n int, verdict engine.Verdict) {
		t.Helper()
		p := engine.Policy{MaxAttempts: 2, Backoff: func(int64) time.Duration { return time.Hour }}
		feed, err := th.ParallelFeed("c", engine.ParallelPolicy{Policy: p, Window: 2})
		must(t, err)
		defer feed.Close()
		given, err := feed.Step(ctx, engine.Step{Begin: n})
		must(t, err)
		if verdict >= 0 {
			last := given.Begin[n-1].Number()
			_, err = feed.Step(ctx, engine.Step{Results: []engine.DeliveryResult{{Number: last, Result: engine.Result{Verdict: verdict}}}})
			must(t, err)
		}
	}
	for what, tt := range map[string]struct {
		id    int64
		place Place
		words string
		make  func(t *testing.T, th *engine.Thread)
	}{
		"the first":  {1, PlacePending, "is the first unread", func(*testing.T, *engine.Thread) {}},
		"the second": {2, PlacePending, "behind 1 other", func(*testing.T, *engine.Thread) {}},
		"acked":      {1, PlaceAcked, "everything up to 1", func(t *testing.T, th *engine.Thread) { must(t, th.Ack(ctx, "c", 1)) }},
		"paused":     {1, PlacePaused, "is paused", func(t *testing.T, th *engine.Thread) { must(t, th.Pause(ctx, "c")) }},
		"in flight with thread next": {1, PlaceRunning, "are in flight with delivery 1", func(t *testing.T, th *engine.Thread) {
			must(t, th.Unsubscribe(ctx, "c"))
			must(t, th.Subscribe(ctx, engine.Subscription{Consumer: "c", Pull: true}))
			_, err := th.Next(ctx, "c", engine.NextOptions{Lease: time.Hour})
			must(t, err)
		}},
		"settled":         {2, PlaceAcked, "settled, out of order: event 1", func(t *testing.T, th *engine.Thread) { begun(t, th, 2, engine.Succeeded) }},
		"has failed":      {2, PlaceRetrying, "has failed, once counted", func(t *testing.T, th *engine.Thread) { begun(t, th, 2, engine.Failed) }},
		"out":             {1, PlacePending, "was out when its consume ended", func(t *testing.T, th *engine.Thread) { begun(t, th, 1, -1) }},
		"the window full": {4, PlacePending, "the window is full: ", func(t *testing.T, th *engine.Thread) { begun(t, th, 3, -1) }},
	} {
		t.Run(what, func(t *testing.T) {
			dir := filepath.Join(faults.Dir(t), "t")
			th, err := engine.Init(dir)
			must(t, err)
			must(t, th.Subscribe(ctx, engine.Subscription{Consumer: "c", Handler: "true"}))
			for range 4 {
				(&bench{TB: t, t: th}).push("s")
			}
			tt.make(t, th)
			must(t, th.Close())
			th, reads := unreadableThread(t, dir)
			want, err := Why(ctx, th, "c", tt.id)
			if err != nil || want.Place != tt.place || !strings.Contains(want.Text, tt.words) {
				t.Fatalf("%+v, %v", want, err)
			}
			eachRead(t, reads, 2, func() (any, error) { return Why(ctx, th, "c", tt.id) })
		})
	}
}
