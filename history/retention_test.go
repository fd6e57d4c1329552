package history

import (
	"fmt"
	"testing"
	"time"

	"thread/engine"
)

// History events that are older than asked for go by themselves, at the next Open: rows
// stay, and what a subscription has not seen holds them back until it has.
func TestEventsRetained(t *testing.T) {
	c := newClock()
	h := inbox(t, WithClock(c.Now))
	session(t, h, "S")
	n := 0
	hours := func(count int) {
		t.Helper()
		for range count {
			n++
			r := one[*Run](t)(h.StartRun(ctx, RunRow{ID: fmt.Sprintf("r%03d", n), SessionID: "S"}))
			ok(t, r.End(ctx, End{Status: Completed}))
			c.add(time.Hour)
		}
	}
	events := func() int { return len(all(t, h.Changes(ctx, 0, ""))) }
	open := func() { h = reopen(t, h.parent, WithClock(c.Now)) }
	due := func() bool {
		t.Helper()
		return one[bool](t)(h.EventsDue(ctx, one[RunRetention](t)(h.RunRetention(ctx))))
	}
	hours(30)
	before, count := contents(t, h), events()
	if open(); due() || events() != count {
		t.Fatalf("%d events of %d without a limit", events(), count)
	}
	r := DefaultRunRetention
	r.Events = 10 * time.Hour
	ok(t, h.SetRunRetention(ctx, r))
	if got := one[RunRetention](t)(h.RunRetention(ctx)); got != r || !due() {
		t.Fatalf("%+v, due: %v", got, due())
	}
	dry, replaced, err := h.Prune(ctx, engine.Retention{OlderThan: c.Now().Add(-r.Events), DryRun: true})
	ok(t, err)
	open()
	if want := count - int(dry.Dropped) + int(replaced); due() || events() != want || dry.Dropped == 0 {
		t.Errorf("%d events are left, want %d; due: %v", events(), want, due())
	}
	if now := contents(t, h); now != before {
		t.Errorf("was %s\nis %s", before, now)
	}
	rebuilt(t, h)

	// A subscription holds what it has not seen.
	th := one[*engine.Thread](t)(h.Thread())
	ok(t, th.Subscribe(ctx, engine.Subscription{Consumer: "c", Handler: "true"}))
	hours(30)
	before, count = contents(t, h), events()
	for range 2 {
		if open(); !due() || events() != count {
			t.Fatalf("%d events of %d, with a consumer that has seen none; due: %v", events(), count, due())
		}
	}
	th = one[*engine.Thread](t)(h.Thread())
	ok(t, th.Ack(ctx, "c", one[int64](t)(h.Head(ctx))))
	if open(); events() != count {
		t.Error("a try that failed was followed by another one at once")
	}
	c.add(retryEvents)
	if open(); due() || events() >= count {
		t.Errorf("%d events of %d, due: %v", events(), count, due())
	}
	if now := contents(t, h); now != before {
		t.Errorf("was %s\nis %s", before, now)
	}
	rebuilt(t, h)
	r.Events = -1
	if err := h.SetRunRetention(ctx, r); err == nil {
		t.Error("a negative retention was taken")
	}
}
