package fsck

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"thread/engine"
	"thread/event"
	"thread/internal/store"
	"thread/internal/store/bolt"
)

// sideBySide returns a thread of 12 events, each with a separate key. Of consumer c
// last_acked_id is 2, settled are 4, 5 and 8, event 3 has failed and waits for an hour, 12 is a dead
// letter, sent back, and three of the others are in flight.
func sideBySide(t *testing.T) *engine.Thread {
	t.Helper()
	th, err := engine.Init(filepath.Join(t.TempDir(), "inbox"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { th.Close() })
	if err := th.Subscribe(ctx, engine.Subscription{Consumer: "c", Handler: "true"}); err != nil {
		t.Fatal(err)
	}
	ds := make([]event.Draft, 12)
	for i := range ds {
		ds[i] = event.Draft{Source: fmt.Sprint("s", i), Type: "t"}
	}
	if _, err := th.PushBatch(ctx, ds); err != nil {
		t.Fatal(err)
	}
	f, err := th.ParallelFeed("c", engine.ParallelPolicy{Key: "source", Policy: engine.Policy{
		MaxAttempts: 5, Backoff: func(int64) time.Duration { return time.Hour },
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	step := func(q engine.Step) engine.Given {
		t.Helper()
		g, err := f.Step(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	g := step(engine.Step{Begin: 12})
	var q engine.Step
	for _, d := range g.Begin {
		r := engine.Result{Verdict: engine.Succeeded}
		switch d.Events[0].ID {
		case 3:
			r.Verdict = engine.Failed
		case 12:
			r.Verdict = engine.Rejected
		case 6, 7, 9, 10, 11:
			r.Verdict = engine.Returned
		}
		q.Results = append(q.Results, engine.DeliveryResult{Number: d.Number(), Result: r})
	}
	step(q)
	for l, err := range th.DeadLetters(ctx, engine.DeadLetterQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		if _, err := th.RetryDead(ctx, []engine.DeadLetter{l}); err != nil {
			t.Fatal(err)
		}
	}
	step(engine.Step{Begin: 2, Reserve: 1})
	return th
}

func letterRow(id int64, of interface{ Encode(key []byte) []byte }) func(b *bbolt.Bucket) error {
	key := store.LetterKey("c", id)
	return func(b *bbolt.Bucket) error { return b.Put(key, of.Encode(key)) }
}

// TestCheckSettled damages what is kept above a consumer's progress, each time in another way
// that the checksums do not show. Check names it; Repair makes a thread without it, in
// which every event that was not settled comes.
func TestCheckSettled(t *testing.T) {
	spoil := func(table store.Table, id int64) func(b *bbolt.Bucket) error {
		return func(b *bbolt.Bucket) error {
			key := store.LetterKey("c", id)
			v := slices.Clone(b.Get(key))
			if v == nil {
				return fmt.Errorf("%s has no %d", table, id)
			}
			v[len(v)/2] ^= 1
			return b.Put(key, v)
		}
	}
	for _, c := range []struct {
		table store.Table
		edit  func(b *bbolt.Bucket) error
		want  string // "": no fault
	}{
		{"", nil, ""},
		{store.Settled, letterRow(5, &store.SettledRange{First: 5, Last: 6, Count: 2}), `settled range 5 to 6 of "c": overlaps the one before, which ends at 5`},
		{store.Settled, letterRow(1, &store.SettledRange{First: 1, Last: 2, Count: 2}), `settled range 1 to 2 of "c": is not above last_acked_id 2`},
		{store.Settled, letterRow(2, &store.SettledRange{First: 2, Last: 2, Count: 1}), `settled range 2 to 2 of "c": is not above last_acked_id 2`},
		{store.Settled, letterRow(4, &store.SettledRange{First: 4, Last: 3, Count: 1}), `settled range 4 to 3 of "c": is not a range of ids`},
		{store.Settled, letterRow(10, &store.SettledRange{First: 10, Last: 13, Count: 1}), `settled range 10 to 13 of "c": ends above the highest id that was given, 12`},
		{store.Settled, letterRow(4, &store.SettledRange{First: 4, Last: 5, Count: 3}), `settled range 4 to 5 of "c": counts 3 events`},
		{store.Settled, letterRow(4, &store.SettledRange{First: 4, Last: 5, Count: 0}), `settled range 4 to 5 of "c": counts 0 events`},
		{store.Settled, letterRow(4, &store.SettledRange{First: 4, Last: 7, Count: 4}), `settled range 4 to 7 of "c": holds event 6, which is in flight or waits`},
		{store.Settled, spoil(store.Settled, 4), "of bucket settled: is damaged"},
		{store.Settled, func(b *bbolt.Bucket) error { return b.Put([]byte("c"), []byte("x")) }, `record "c" of bucket settled: is damaged`},
		{store.Attempts, letterRow(13, &store.Attempt{State: store.AttemptRunning, Group: 1}), `attempt at event 13 of "c": is at no event: the highest id that was given is 12`},
		{store.Attempts, letterRow(2, &store.Attempt{State: store.AttemptRunning, Group: 1}), `attempt at event 2 of "c": is at a settled event: last_acked_id is 2`},
		{store.Attempts, letterRow(8, &store.Attempt{Most: 1}), `settled range 8 to 8 of "c": holds event 8, which is in flight or waits`},
		{store.Attempts, letterRow(6, &store.Attempt{State: 3, Group: 1}), `attempt at event 6 of "c": has state 3 and group 1, which there are not`},
		{store.Attempts, spoil(store.Attempts, 3), "of bucket attempts: is damaged"},
		{store.Deliveries, func(b *bbolt.Bucket) error { return b.Put(store.ConsumerKey("c"), []byte("damaged")) }, "of bucket deliveries: is damaged"},
	} {
		t.Run(c.want, func(t *testing.T) {
			th := sideBySide(t)
			dir := th.Dir()
			if r, err := Check(ctx, th); err != nil || len(r.Faults) > 0 || len(r.Notes) > 0 {
				t.Fatalf("before the damage: %+v, %v", r, err)
			}
			if c.edit == nil {
				return
			}
			db, err := bolt.OpenRaw(ctx, storeOf(th))
			if err != nil {
				t.Fatal(err)
			}
			if err := db.Update(func(tx *bbolt.Tx) error { return c.edit(tx.Bucket([]byte(c.table))) }); err != nil {
				t.Fatal(err)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			r, err := Check(ctx, th)
			if err != nil {
				t.Fatal(err)
			}
			named := false
			for _, f := range r.Faults {
				named = named || strings.Contains(f.Place+": "+f.What, c.want)
			}
			if !named {
				t.Errorf("check finds %v, want %s", r.Faults, c.want)
			}
			repairedSound(t, dir)
		})
	}
}

// repairedSound repairs a thread of sideBySide and consumes the rest of it.
func repairedSound(t *testing.T, dir string) {
	t.Helper()
	to := filepath.Join(t.TempDir(), "repaired")
	report, err := Repair(ctx, dir, to)
	if err != nil || len(report.Problems) == 0 || report.Saved != 12 || report.NextID != 13 {
		t.Fatalf("repair: %+v, %v", report, err)
	}
	th, err := engine.Open(to)
	if err != nil {
		t.Fatal(err)
	}
	defer th.Close()
	if r, err := Check(ctx, th); err != nil || len(r.Faults) > 0 {
		t.Fatalf("after the repair: %+v, %v", r, err)
	}
	f, err := th.ParallelFeed("c", engine.ParallelPolicy{Key: "source", Policy: engine.Policy{MaxAttempts: 5}})
	if err != nil {
		t.Fatal(err)
	}
	came := make(map[int64]bool)
	q := engine.Step{Begin: 12}
	for n := 0; n < 100; n++ {
		g, err := f.Step(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		q = engine.Step{Begin: 12}
		for _, d := range g.Begin {
			came[d.Events[0].ID] = true
			q.Results = append(q.Results, engine.DeliveryResult{Number: d.Number()})
		}
	}
	for _, id := range []int64{6, 7, 9, 10, 11, 12} { // 3 waits an hour, where that is still known
		if !came[id] {
			t.Errorf("after the repair event %d does not come, only %v", id, came)
		}
	}
}

// TestCheckWindow notes what is not a fault: more above the progress than the window, which was
// larger before.
func TestCheckWindow(t *testing.T) {
	th := sideBySide(t)
	f, err := th.ParallelFeed("c", engine.ParallelPolicy{Key: "source", Window: 2, Policy: engine.Policy{MaxAttempts: 5}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Step(ctx, engine.Step{Begin: 1}); err != nil {
		t.Fatal(err)
	}
	r, err := Check(ctx, th)
	if err != nil || len(r.Faults) > 0 || len(r.Notes) != 1 || !strings.Contains(r.Notes[0].What, "and a window of 2: nothing new is given out") {
		t.Errorf("%+v, %v", r, err)
	}
}
