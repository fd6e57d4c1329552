package engine

import (
	"path/filepath"
	"testing"
	"time"

	"thread/event"
	"thread/internal/store"
	"thread/internal/store/bolt"
)

// ahead is a thread that was used while the clock was ahead by years, and the
// clock, which is right by now.
func ahead(t *testing.T, while func(th *Thread)) (*Thread, *time.Time) {
	t.Helper()
	right := time.Date(2026, 3, 18, 10, 30, 0, 0, time.Local)
	now := time.Date(2099, 1, 1, 0, 0, 0, 0, time.Local)
	th, err := Init(filepath.Join(t.TempDir(), "t"), WithClock(func() time.Time { return now }))
	if err != nil {
		t.Fatal(err)
	}
	while(th)
	now = right
	return th, &now
}

func head(t *testing.T, th *Thread) (id int64) {
	t.Helper()
	if err := th.View(ctx, func(tx *Tx) error { id = tx.Head(); return nil }); err != nil {
		t.Fatal(err)
	}
	return id
}

// TestScheduleClockAhead: no schedule and no delay is later than it would be if it
// had been planned now, whatever the clock showed. What is for a time of day waits
// for it.
func TestScheduleClockAhead(t *testing.T) {
	draft := event.Draft{Source: "s", Type: "t"}
	at := time.Date(2050, 1, 1, 0, 0, 0, 0, time.UTC)
	plan := func(th *Thread) {
		for name, spec := range map[string]string{"every": "@every 1h", "cron": "0 9 * * *"} {
			if _, err := th.AddSchedule(ctx, Schedule{Name: name, Spec: spec, Draft: draft}); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := th.PushAfter(ctx, draft, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	for name, before := range map[string]func(th *Thread){
		"planned": plan,
		// As an earlier version left it, which did not note the clock.
		"not noted": func(th *Thread) {
			plan(th)
			err := th.Update(ctx, func(tx *Tx) error { return bolt.Raw(tx.s).Bucket(bucketSchedules).SetSequence(0) })
			if err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			th, now := ahead(t, before)
			if _, err := th.PushAt(ctx, draft, at); err != nil {
				t.Fatal(err)
			}
			list, err := th.Schedules(ctx)
			if err != nil || len(list) != 2 {
				t.Fatalf("%+v, %v", list, err)
			}
			for _, s := range list {
				want := now.Add(time.Hour)
				if s.Name == "cron" {
					want = time.Date(2026, 3, 19, 9, 0, 0, 0, time.Local)
				}
				if !s.Next.Equal(want) {
					t.Errorf("%s is next at %v, want %v", s.Name, s.Next, want)
				}
			}
			delayed, err := th.Delayed(ctx, 0)
			if err != nil || len(delayed) != 2 || !delayed[0].At.Equal(now.Add(time.Minute)) || !delayed[1].At.Equal(at) {
				t.Errorf("delayed: %+v, %v", delayed, err)
			}
			*now = now.Add(time.Hour)
			if n := head(t, th); n != 2 {
				t.Errorf("%d events after an hour, want 2", n)
			}
			if r, err := Check(ctx, th); err != nil || len(r.Faults) > 0 {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

// TestScheduleSmallSetBack: a clock that is corrected by a little repeats no time
// of day, and an interval continues.
func TestScheduleSmallSetBack(t *testing.T) {
	l := newLater(t)
	l.now = time.Date(2026, 3, 18, 8, 59, 0, 0, time.Local)
	for name, spec := range map[string]string{"every": "@every 1h", "cron": "0 9 * * *"} {
		if _, err := l.th.AddSchedule(ctx, Schedule{Name: name, Spec: spec, Draft: event.Draft{Source: "s", Type: name}}); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 { // 09:00:30 and back
		l.now = time.Date(2026, 3, 18, 9, 0, 30, 0, time.Local)
		if n := head(t, l.th); n != 1 {
			t.Fatalf("%d events, want the one of 9:00", n)
		}
		l.now = l.now.Add(-3 * time.Minute)
		if n := head(t, l.th); n != 1 {
			t.Fatalf("%d events, want the one of 9:00", n)
		}
	}
	next, err := l.th.NextScheduled(ctx)
	if want := l.now.Add(time.Hour); err != nil || next.After(want) {
		t.Errorf("the interval is next at %v, %v; want %v at the latest", next, err, want)
	}
}

// TestScheduleBefore1970: a host that begins at the beginning of time, or before,
// is not kept from anything.
func TestScheduleBefore1970(t *testing.T) {
	l := newLater(t)
	l.now = time.Unix(3600, 0)
	if _, err := l.th.AddSchedule(ctx, Schedule{Name: "n", Spec: "@every 1h", Draft: event.Draft{Source: "s", Type: "t"}}); err != nil {
		t.Fatal(err)
	}
	for _, l.now = range []time.Time{time.Unix(1, 0), time.Unix(0, 0), time.Unix(-3600, 0), time.Unix(-7200, 0)} {
		if n := head(t, l.th); n != 0 {
			t.Fatalf("%d events", n)
		}
		if _, err := l.th.Schedules(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// TestScheduleClockNotSet: a host that begins in 1970 and is set a moment later
// has nothing early.
func TestScheduleClockNotSet(t *testing.T) {
	l := newLater(t)
	draft := event.Draft{Source: "s", Type: "t"}
	if _, err := l.th.AddSchedule(ctx, Schedule{Name: "n", Spec: "@every 1000h", Draft: draft}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.th.PushAfter(ctx, draft, 1000*time.Hour); err != nil {
		t.Fatal(err)
	}
	right := l.now
	for _, l.now = range []time.Time{time.Unix(1, 0), right.Add(time.Hour)} {
		if n := head(t, l.th); n != 0 {
			t.Errorf("%d events at %v", n, l.now)
		}
	}
}

// TestReplanInPieces: more than one transaction plans again is planned by the next.
func TestReplanInPieces(t *testing.T) {
	const n = maxReplanned + 2
	draft := event.Draft{Source: "s", Type: "t"}
	th, now := ahead(t, func(th *Thread) {
		err := th.Update(ctx, func(tx *Tx) error {
			for range n {
				if _, err := tx.schedule(tx.t.now().Add(time.Minute), &store.ScheduledEntry{Draft: draft, Since: tx.t.now()}); err != nil {
					return err
				}
			}
			return tx.notePlanned()
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	delayed, err := th.Delayed(ctx, 0)
	if err != nil || len(delayed) != n {
		t.Fatalf("%d delayed events, %v", len(delayed), err)
	}
	if last := delayed[n-1].At; !last.Equal(now.Add(time.Minute)) {
		t.Errorf("the last is for %v", last)
	}
}

// TestDedupeClockAhead: a key that was stored while the clock was ahead swallows
// nothing, and one that a small correction put into the future still counts.
func TestDedupeClockAhead(t *testing.T) {
	d := event.Draft{Source: "s", Type: "t", DedupeKey: "k"}
	push := func(th *Thread, want int64) {
		t.Helper()
		if e, err := th.Push(ctx, d); err != nil || e.ID != want {
			t.Fatalf("event %d, %v, want %d", e.ID, err, want)
		}
	}
	th, now := ahead(t, func(th *Thread) { push(th, 1); push(th, 1) })
	push(th, 2)
	push(th, 2)
	*now = now.Add(-time.Minute)
	push(th, 2)
	*now = now.Add(-clockSkew)
	push(th, 3)
	if r, err := Check(ctx, th); err != nil || len(r.Faults) > 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestFeedClockAhead: a retry waits as long as its back-off and no longer, also
// for a process that comes later, and Info says the same.
func TestFeedClockAhead(t *testing.T) {
	policy := Policy{Limit: 1, MaxAttempts: 5, Backoff: func(int64) time.Duration { return 5 * time.Minute }}
	fail := func(th *Thread, f *Feed) {
		t.Helper()
		d, err := f.Next(ctx, nil)
		if err != nil || len(d.Events) != 1 {
			t.Fatalf("%+v, %v", d, err)
		}
		if _, err := f.Settle(ctx, Result{Verdict: Failed, ExitCode: 1}); err != nil {
			t.Fatal(err)
		}
	}
	th, now := ahead(t, func(th *Thread) {
		if err := th.Subscribe(ctx, Subscription{Consumer: "c", Handler: "true"}); err != nil {
			t.Fatal(err)
		}
		if _, err := th.Push(ctx, event.Draft{Source: "s", Type: "t"}); err != nil {
			t.Fatal(err)
		}
		fail(th, th.Feed("c", policy))
	})
	info, err := th.Info(ctx)
	if err != nil || info.Subscriptions[0].NextAt.After(*now) {
		t.Errorf("next at %v, %v, now %v", info.Subscriptions[0].NextAt, err, *now)
	}
	killFeeds(th)
	f := th.Feed("c", policy)
	fail(th, f) // at once
	d, err := f.Next(ctx, nil)
	if want := now.Add(5 * time.Minute); err != nil || len(d.Events) != 0 || !d.NotBefore.Equal(want) {
		t.Errorf("%+v, %v, want a wait until %v", d, err, want)
	}
}

// TestPruneClockAhead: an event from a time when the clock was ahead keeps nothing
// from being pruned, and is itself kept until an older one comes after it. A clock
// that is ahead drops no more than KeepLast allows.
func TestPruneClockAhead(t *testing.T) {
	th, now := ahead(t, func(*Thread) {})
	right := *now
	push := func(at time.Time) {
		t.Helper()
		*now = at
		if _, err := th.Push(ctx, event.Draft{Source: "s", Type: "t"}); err != nil {
			t.Fatal(err)
		}
	}
	prune := func(r Retention, dropped int64) {
		t.Helper()
		if c, err := th.Prune(ctx, r); err != nil || c.Dropped != dropped {
			t.Errorf("%+v dropped %d, %v, want %d", r, c.Dropped, err, dropped)
		}
	}
	const day = 24 * time.Hour
	push(right.Add(-50 * day))
	push(right.AddDate(73, 0, 0))
	push(right.Add(-40 * day))
	push(right.AddDate(73, 0, 0))
	push(right)
	push(right.Add(-60 * day)) // the clock was behind: nothing is known of those before
	*now = right
	prune(Retention{OlderThan: right.Add(-30 * day)}, 3)
	prune(Retention{OlderThan: right.Add(-30 * day)}, 0)
	keep := int64(2)
	*now = right.AddDate(80, 0, 0)
	prune(Retention{OlderThan: now.Add(-30 * day), KeepLast: &keep}, 1)
	prune(Retention{OlderThan: right.Add(-30 * day), KeepLast: new(int64)}, 0)
	prune(Retention{OlderThan: now.Add(-30 * day)}, 2)
}
