package pgstore

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/fsck"
	"thread/internal/store"
)

// openEngine returns the engine's handle on a thread.
func openEngine(t *testing.T, a *Address) *engine.Thread {
	t.Helper()
	th := engine.OpenStore(a.URL, store.Place{Dir: t.TempDir()}, func(l store.Logic, wait time.Duration) store.Store {
		return Open(a, Options{Logic: l, LockTimeout: wait})
	})
	t.Cleanup(func() { _ = th.Close() })
	return th
}

// furnish stores something of every kind in a thread.
func furnish(t *testing.T, th *engine.Thread) {
	t.Helper()
	ctx := context.Background()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(th.Subscribe(ctx, engine.Subscription{Consumer: "all", Pull: true}))
	must(th.Subscribe(ctx, engine.Subscription{Consumer: "some", Handler: "true", Filter: event.Text("type = 't1'")}))
	for i := range 30 {
		d := event.Draft{Source: fmt.Sprint("s", i%3), Type: fmt.Sprint("t", i%2), Content: fmt.Sprint("content\x00", i)}
		if i%5 == 0 {
			d.DedupeKey, d.Subtype = fmt.Sprint("key ", i), event.Text("")
		}
		_, err := th.Push(ctx, d)
		must(err)
	}
	_, err := th.Pop(ctx, "all", engine.PopQuery{LastAcked: 7, Limit: 2})
	must(err)
	_, err = th.AddSchedule(ctx, engine.Schedule{Name: "nightly", Spec: "@daily", Draft: event.Draft{Source: "s", Type: "t", Content: "c"}})
	must(err)
	_, _, err = th.PushAfter(ctx, event.Draft{Source: "s", Type: "later", Content: "c"}, time.Hour)
	must(err)
}

// TestCheck: a thread is sound, and every damage is found.
func TestCheck(t *testing.T) {
	in := newSchema(t)
	ctx := context.Background()
	for _, c := range []struct{ name, sql, fault string }{
		{"sound", "", ""},
		{"a lost event", "DELETE FROM events WHERE thread = $1 AND id = 12", "^event 12: is missing$"},
		{"lost events", "DELETE FROM events WHERE thread = $1 AND id BETWEEN 12 AND 14", "^events 12 to 14: are missing$"},
		{"the first events are lost", "DELETE FROM events WHERE thread = $1 AND id < 3", "^events 1 to 2: are missing$"},
		{"a dropped event", "UPDATE threads SET floor = 3 WHERE thread = $1", "^event 1: was dropped, and is there"},
		{"a lost series", "DELETE FROM series WHERE thread = $1 AND id = 2", "^event 2: belongs to series 2, which is missing$"},
		{"another series", "UPDATE series SET source = 'x' WHERE thread = $1 AND id = 2", "^series 2: is not what its digest says$"},
		{"a damaged subscription", damage("subscriptions"), `^record "call" of table subscriptions: is damaged`},
		{"a damaged position", damage("progress"), `^record "call" of table progress: is damaged`},
		{"a position beyond the end", "DELETE FROM events WHERE thread = $1 AND id > 5", `^record "call" of table progress: was made at event 30, but the newest is 5$`},
		{"a damaged dedupe key", damage("dedupe"), `^record "kkey 0" of table dedupe: is damaged`},
		{"a dedupe key for ever", "DELETE FROM records WHERE thread = $1 AND tab = 'dedupe_expiry'", `^record "kkey 0" of table dedupe: has no entry in table dedupe_expiry`},
		{"a forgotten dedupe key", "DELETE FROM records WHERE thread = $1 AND tab = 'dedupe'", `^record .* of table dedupe_expiry: is of dedupe key "key 0", which is missing`},
		{"a schedule that is never due", "DELETE FROM records WHERE thread = $1 AND tab = 'scheduled'", `^schedule "nnightly": has no entry in bucket scheduled$`},
		{"an entry of no schedule", "DELETE FROM records WHERE thread = $1 AND tab = 'schedules'", `is of schedule "nightly", which is missing$`},
		{"a turn without a fence", "INSERT INTO turns VALUES ($1, 'c', 0, 'h', now())", `^turn of "c": has no fence$`},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newThread(t, in)
			th := openEngine(t, a)
			furnish(t, th)
			if c.sql != "" {
				on(t, a, c.sql, text(a.Thread))
			}
			r, err := fsck.CheckStore(ctx, th, Check)
			if err != nil {
				t.Fatal(err)
			}
			if c.fault == "" {
				if len(r.Faults) > 0 || len(r.Digest) != 64 || r.Events != 30 {
					t.Errorf("a sound thread: %+v", r)
				}
				return
			}
			for _, f := range r.Faults {
				if regexp.MustCompile(c.fault).MatchString(f.Place + ": " + f.What) {
					return
				}
			}
			t.Errorf("not found; the faults are %+v", r.Faults)
		})
	}
}

// TestCheckGaps: the gaps that a thread came with are none, and what is lost next to them is
// found.
func TestCheckGaps(t *testing.T) {
	in := newSchema(t)
	ctx := context.Background()
	for _, c := range []struct{ name, sql, fault string }{
		{"sound", "", ""},
		{"a lost event among gaps", "DELETE FROM events WHERE thread = $1 AND id = 9", "^thread: 7 events are there, the counters say 8$"},
		{"a lost event above them", "DELETE FROM events WHERE thread = $1 AND id = 13", "^event 13: is missing$"},
		{"the first one above them", "DELETE FROM events WHERE thread = $1 AND id = 12", "^event 12: is missing$"},
		{"lost counters", "UPDATE records SET value = set_byte(value, 0, 1) WHERE thread = $1 AND tab = 'meta'", "the record of gaps"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := *in
			a.Thread = c.name
			snap := store.Snapshot{Head: 9, LastID: 11, Stored: 5, Pruned: 1, Floor: 2}
			r, err := StartRestore(ctx, &a, &snap)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			var list []event.Event
			for _, id := range []int64{3, 4, 6, 7, 9} {
				list = append(list, event.Event{ID: id, CreatedAt: "2026-03-18T10:30:00.123Z", Source: "s", Type: "t"})
			}
			if err := errors.Join(r.Add(ctx, list), r.Finish(ctx, &snap), r.Publish(ctx)); err != nil {
				t.Fatal(err)
			}
			th := openEngine(t, &a)
			for want := int64(12); want < 15; want++ {
				if e, err := th.Push(ctx, event.Draft{Source: "s", Type: "t"}); err != nil || e.ID != want {
					t.Fatalf("id %d, want %d: %v", e.ID, want, err)
				}
			}
			if c.sql != "" {
				on(t, &a, c.sql, text(a.Thread))
			}
			found, err := fsck.CheckStore(ctx, th, Check)
			if err != nil {
				if c.fault == "" || !regexp.MustCompile(c.fault).MatchString(err.Error()) {
					t.Error(err)
				}
				return
			}
			var faults []string
			for _, f := range found.Faults {
				faults = append(faults, f.Place+": "+f.What)
			}
			if c.fault == "" && (len(faults) > 0 || found.Events != 8) || c.fault != "" && (len(faults) != 1 || !regexp.MustCompile(c.fault).MatchString(faults[0])) {
				t.Errorf("%d events, faults %q", found.Events, faults)
			}
		})
	}
}

// damage changes a byte of the first record of a table.
func damage(table string) string {
	return `UPDATE records SET value = set_byte(value, 0, get_byte(value, 0) # 1) WHERE thread = $1 AND tab = '` + table + `' AND key =
		(SELECT key FROM records WHERE thread = $1 AND tab = '` + table + `' ORDER BY key LIMIT 1)`
}
