//go:build linux

package dispatch

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/faults"
	"thread/lock"
)

// TestWhyPending: what is said of an event by the note of its handler, without processes.
func TestWhyPending(t *testing.T) {
	asRoot(t)
	ctx := context.Background()
	th := withEvent(t, filepath.Join(faults.Dir(t), "t"), "true")
	defer th.Close()
	for name, s := range map[string]engine.Subscription{
		"pull": {Pull: true}, "one": {Filter: event.Text("type = 'other'")}, "two": {Filter: event.Text("type = 'other' AND source = 'x'")},
		"fails": {Filter: event.Text("json_extract(content, '$.a') = 1 OR id = 3")},
	} {
		if s.Consumer = name; !s.Pull {
			s.Handler = "true"
		}
		must(t, th.Subscribe(ctx, s))
	}
	for range 2 {
		_, err := th.Push(ctx, event.Draft{Source: "s", Type: "message", Content: "x"})
		must(t, err)
	}
	r := newDispatcher(th, Options{})
	must(t, r.prepare())
	why := func(consumer string, id int64, place Place, words ...string) {
		t.Helper()
		a, err := Why(ctx, th, consumer, id)
		must(t, err)
		if a.Place != place {
			t.Errorf("event %d is said to be %s, want %s: %s", id, a.Place, place, a.Text)
		}
		for _, w := range words {
			if !strings.Contains(a.Text, w) {
				t.Errorf("event %d: no %q in: %s", id, w, a.Text)
			}
		}
	}
	held, err := lock.Try(r.supervisorLockPath("c"), lock.Exclusive)
	must(t, err)
	now := time.Now()
	last := note{Exit: "exit 3", EndedAt: &now}
	for _, tt := range []struct {
		change func(n *note)
		place  Place
		words  string
	}{
		{func(n *note) { n.State, n.RetryAt = stateWaiting, &now }, PlaceRetrying, "ended with exit 3 at"},
		{func(n *note) { n.State, n.RetryAt, n.Failures = stateWaiting, &now, 2 }, PlaceRetrying, "has failed 2 times, the last time with exit 3"},
		{func(n *note) { n.State, n.RunID = stateRunning, "run" }, PlaceRunning, "run run; it pops the event"},
		{func(n *note) { n.State, n.Failures = stateStalled, 5 }, PlaceStalled, "has failed 5 times in a row"},
		{func(n *note) { n.State = stateStopped }, PlaceStopped, "ended with exit 3 at"},
		{func(n *note) { n.State, n.Unpopped = stateStopped, true }, PlaceStopped, "without popping anything"},
		{func(n *note) { n.State = stateLeft }, PlaceStopped, "was told to end, and left it unread: exit 3"},
		{func(n *note) { n.State = stateIdle }, PlacePending, "the handlers of another consumer of the thread run"},
	} {
		n := last
		tt.change(&n)
		must(t, r.writeNote("c", n))
		why("c", 1, tt.place, "It matches and is the first unread event. ", tt.words)
		why("c", 3, tt.place, "behind 2 other unread events. ", tt.words)
	}
	release(held)
	must(t, r.writeNote("c", note{State: stateRunning}))
	why("c", 1, PlacePending, "supervisor was killed")
	must(t, r.writeNote("c", note{State: stateIdle}))
	pings, err := r.listen()
	must(t, err)
	why("c", 1, PlacePending, "thread serve has been told to look")
	must(t, pings.Close())

	why("pull", 1, PlacePending, "the next thread next takes what is unread")
	l, err := th.Next(ctx, "pull", engine.NextOptions{Limit: 2, Lease: time.Hour})
	must(t, err)
	why("pull", 1, PlaceRunning, "Events 1 to 2 are in flight with delivery 1", event.FormatTime(l.Until))
	why("one", 1, PlaceUnmatched, "does not select it: type = 'other' does not hold", "subtype NULL")
	why("two", 1, PlaceUnmatched, "of its 2 conditions, type = 'other' and source = 'x' does not hold")
	why("fails", 1, PlaceBroken, "The filter fails on this event")
	why("fails", 3, PlaceBroken)
	keep := int64(1)
	must(t, th.Ack(ctx, "c", 2))
	for _, name := range []string{"pull", "one", "two", "fails"} {
		must(t, th.Unsubscribe(ctx, name))
	}
	_, err = th.Prune(ctx, engine.Retention{KeepLast: &keep})
	must(t, err)
	why("c", 2, PlaceNowhere, "is not stored any more, or never was; the newest is 3")
	must(t, th.Pause(ctx, "c"))
	why("c", 3, PlacePaused)
}

// TestWhyInFlight: what is said of an event that has failed, is in flight or settled out of
// order, and while the window is full.
func TestWhyInFlight(t *testing.T) {
	b := newBench(t)
	ctx := context.Background()
	for _, name := range []string{"c", "serial"} {
		b.subscribe(engine.Subscription{Consumer: name, Handler: "true"})
	}
	for range 5 {
		b.push("s")
	}
	hour := engine.Policy{MaxAttempts: 3, Backoff: func(int64) time.Duration { return time.Hour }}
	feed, err := b.t.ParallelFeed("c", engine.ParallelPolicy{Policy: hour, Window: 3})
	must(t, err)
	defer feed.Close()
	g, err := feed.Step(ctx, engine.Step{Begin: 3})
	must(t, err)
	if len(g.Begin) != 3 {
		t.Fatalf("got %+v", g)
	}
	_, err = feed.Step(ctx, engine.Step{Results: []engine.DeliveryResult{
		{Number: g.Begin[1].Number(), Result: engine.Result{Verdict: engine.Succeeded}},
		{Number: g.Begin[2].Number(), Result: engine.Result{Verdict: engine.Failed, Error: "exit 3"}},
	}})
	must(t, err)
	b.why("c", 1, PlacePending, "was out when its consume ended without a result", "No handler runs for it")
	b.why("c", 2, PlaceAcked, "settled, out of order: event 1 before it is not yet, so that last_acked_id is 0")
	b.why("c", 3, PlaceRetrying, "has failed, once counted, the last time with exit 3")
	b.why("c", 4, PlacePending, "the window is full: 3 events after event 1")

	r := newDispatcher(b.t, Options{})
	must(t, r.prepare())
	held, err := lock.Try(r.supervisorLockPath("c"), lock.Exclusive)
	must(t, err)
	must(t, r.writeNote("c", note{State: stateRunning}))
	b.why("c", 1, PlaceRunning, "is in flight: a delivery of it has begun")
	release(held)

	serial := b.t.Feed("serial", hour)
	defer serial.Close()
	_, err = serial.Next(ctx, nil)
	must(t, err)
	_, err = serial.Settle(ctx, engine.Result{Verdict: engine.Failed, ExitCode: 3})
	must(t, err)
	b.why("serial", 1, PlacePending, "Event 1 has failed, once counted, and is not tried again before")
}
