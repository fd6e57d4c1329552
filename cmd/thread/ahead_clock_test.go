package main

import (
	"context"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"thread/engine"
	"thread/event"
)

// useAhead dir: uses the thread as programs did while the clock was ahead by 73
// years: schedules, a delayed event, a push with the key k, and a failed attempt of
// consumer c at the event of that push.
func useAhead(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: clock-ahead dir")
	}
	ctx := context.Background()
	t, err := engine.Open(ts.MkAbs(args[0]), engine.WithClock(func() time.Time { return time.Now().AddDate(73, 0, 0) }))
	ts.Check(err)
	d := event.Draft{Source: "s", Type: "t", Content: "later"}
	for name, spec := range map[string]string{"interval": "@every 1h", "sunday": "0 9 * * 7"} {
		_, err = t.AddSchedule(ctx, engine.Schedule{Name: name, Spec: spec, Draft: d})
		ts.Check(err)
	}
	_, _, err = t.PushAfter(ctx, d, time.Hour)
	ts.Check(err)
	_, err = t.Push(ctx, event.Draft{Source: "s", Type: "t", Content: "first", DedupeKey: "k"})
	ts.Check(err)
	feed := t.Feed("c", engine.Policy{Limit: 1, MaxAttempts: 5, Backoff: func(int64) time.Duration { return time.Minute }})
	defer feed.Close()
	_, err = feed.Next(ctx, nil)
	ts.Check(err)
	_, err = feed.Settle(ctx, engine.Result{Verdict: engine.Failed, ExitCode: 1, Error: "exit 1"})
	ts.Check(err)
}
