//go:build linux

package serve

import (
	"fmt"
	"testing"

	"thread/engine"
)

// One old dead letter holds all newer events over the limits: the metric counts them until
// the letter is dropped.
func TestLimitHeldMetric(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(b.t.SetLimits(ctx, engine.Limits{MaxEvents: 5}))
	bad := "source = 'bad'"
	b.subscribe(engine.Subscription{Consumer: "c", Filter: &bad, Pull: true})
	b.listen(Options{})
	held := func() float64 {
		t.Helper()
		_, _, text := b.get("/metrics")
		return sampleOf(t, text, fmt.Sprintf("thread_limit_held_events{thread=%q}", b.t.Dir()))
	}
	b.push("bad")
	feed := b.t.Feed("c", engine.Policy{Limit: 1, MaxAttempts: 1})
	_, err := feed.Next(ctx, nil)
	check(err)
	_, err = feed.Settle(ctx, engine.Result{Verdict: engine.Failed, ExitCode: 1, Error: "exit 1"})
	check(err)
	check(feed.Close())
	if n := held(); n != 0 {
		t.Errorf("%v events are held within the limits", n)
	}
	for range 9 {
		b.push("good")
	}
	_, err = b.t.Retain(ctx) // unless the server does at the moment
	check(err)
	var l *engine.LimitsState
	b.until("held", func() bool {
		info, err := b.t.Info(ctx)
		check(err)
		l = info.Limits
		return l.Held != nil
	})
	if !l.Held.Dead || l.Held.First != 1 {
		t.Fatalf("%+v", l.Held)
	}
	if n := held(); n < 1 || n > 10 {
		t.Errorf("%v events are held", n)
	}
	for letter, err := range b.t.DeadLetters(ctx, engine.DeadLetterQuery{}) {
		check(err)
		_, err = b.t.DropDead(ctx, []engine.DeadLetter{letter})
		check(err)
	}
	if n := held(); n != 0 {
		t.Errorf("%v events are held after the dead letter", n)
	}
}
