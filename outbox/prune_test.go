//go:build unix

package outbox

import (
	"strings"
	"testing"
	"time"

	"thread/engine"
)

// prune drops what is older than that, in as many transactions as it takes.
func prune(t *testing.T, th *engine.Thread, before time.Time, dry bool) (sum Pruned) {
	t.Helper()
	var at PruneCursor
	for more := true; more; {
		noError(t, th.Update(ctx, func(tx *engine.Tx) (err error) {
			var p Pruned
			p, at, more, err = Prune(tx, before, at, dry)
			sum.Records += p.Records
			sum.Notifications += p.Notifications
			return err
		}))
	}
	return sum
}

// Prune drops what was processed, or read, long ago, and nothing else; what is redelivered
// is a duplicate all the same (O-06), and nothing is handed on or told of twice.
func TestPrune(t *testing.T) {
	c := newClock()
	th := newThread(t, engine.WithClock(c.Now))
	set(t, th, func(s *Settings) { s.MaxAttempts = 1 })
	failed := reply(1)
	failed.EventID = "failed"
	insert(t, th, failed)
	once(t, th, "exit 1")
	read, unread := like(1), like(2)
	read.EventID, unread.EventID = "read", "unread"
	in := insert(t, th, read)
	kept := insert(t, th, unread)
	later := like(3)
	later.EventID, later.AvailableAt = "later", c.Now().Add(10_000*time.Hour)
	insert(t, th, later)
	once(t, th, "")
	mark := func(id int64) {
		t.Helper()
		noError(t, th.Update(ctx, func(tx *engine.Tx) error { _, _, err := MarkRead(tx, id); return err }))
	}
	mark(in.ID)
	c.move(time.Hour)
	if got := prune(t, th, c.Now().Add(time.Hour), false); got != (Pruned{}) {
		t.Errorf("within the window of their dedupe keys: %+v", got)
	}
	c.move(48 * time.Hour)
	young := like(4)
	young.EventID = "young"
	insert(t, th, young)
	once(t, th, "")
	before := c.Now().Add(-24 * time.Hour)
	want := Pruned{Records: 3, Notifications: 1} // two likes and the feedback
	for _, dry := range []bool{true, false} {
		if got := prune(t, th, before, dry); got != want {
			t.Errorf("dry %v: got %+v", dry, got)
		}
	}
	if got := prune(t, th, before, false); got != (Pruned{}) {
		t.Errorf("again: %+v", got)
	}
	left := ""
	for _, r := range records(t, th, Query{}) {
		left += r.EventID + " " + string(r.Status) + ", "
	}
	if left != "failed failed, later pending, young processed, " {
		t.Errorf("left are %s", left)
	}
	if list := notifications(t, th, "7"); len(list) != 2 || list[1].ID != kept.ID {
		t.Errorf("notifications %+v", list)
	}
	check := func(what string) {
		t.Helper()
		again := like(77)
		again.EventID = "read"
		if got := insert(t, th, again); !got.Duplicate || got.ID != in.ID || got.EventID != "read" {
			t.Errorf("%s: %+v", what, got)
		}
		noError(t, th.Seek(ctx, Consumer, 0))
		if sum := once(t, th, "exit 1"); sum.Triggered != 0 {
			t.Errorf("%s: handed on again: %+v", what, sum)
		}
		if list := notifications(t, th, "7"); len(list) != 2 {
			t.Errorf("%s: notifications %+v", what, list)
		}
		for l, err := range th.DeadLetters(ctx, engine.DeadLetterQuery{Consumer: Consumer}) {
			if noError(t, err); l.Event.ID == in.ID {
				t.Errorf("%s: a record that was pruned is a dead letter", what)
			}
		}
	}
	check("with the event")
	if _, err := th.Prune(ctx, engine.Retention{Through: kept.ID, Force: true}); err != nil {
		t.Fatal(err)
	}
	check("without it")
	// One that is read later goes though its record went before.
	mark(kept.ID)
	c.move(48 * time.Hour)
	if got := prune(t, th, c.Now().Add(-24*time.Hour), false); got.Notifications != 1 {
		t.Errorf("got %+v", got)
	}
}

// Many are dropped in several transactions.
func TestPruneMany(t *testing.T) {
	c := newClock()
	th := newThread(t, engine.WithClock(c.Now))
	const n = pruneAtOnce + 7
	noError(t, th.Update(ctx, func(tx *engine.Tx) error {
		for i := range int64(n) {
			if _, err := Insert(tx, like(i+1)); err != nil {
				return err
			}
		}
		return nil
	}))
	once(t, th, "")
	noError(t, th.Update(ctx, func(tx *engine.Tx) error {
		for i := range int64(n) {
			if _, _, err := MarkRead(tx, i+1); err != nil {
				return err
			}
		}
		return nil
	}))
	c.move(48 * time.Hour)
	if got := prune(t, th, c.Now(), false); got != (Pruned{n, n}) {
		t.Errorf("got %+v", got)
	}
}

// receipts counts the records of the table of receipts.
func receipts(t *testing.T, th *engine.Thread) (n int) {
	t.Helper()
	noError(t, th.View(ctx, func(tx *engine.Tx) error {
		table, err := tx.Records(tableReceipts)
		if err != nil {
			return err
		}
		for _, err := range table.Ascend(nil, nil) {
			if err != nil {
				return err
			}
			n++
		}
		return nil
	}))
	return n
}

// O-09: receipts go with their record, and no others.
func TestPruneReceipts(t *testing.T) {
	c := newClock()
	th := newThread(t, engine.WithClock(c.Now))
	insert(t, th, reply(1))
	once(t, th, "exit 75")
	c.move(10 * time.Minute)
	once(t, th, "true")
	c.move(48 * time.Hour)
	in := insert(t, th, reply(2))
	once(t, th, "true")
	if n := receipts(t, th); n != 3 {
		t.Fatalf("%d receipts", n)
	}
	prune(t, th, c.Now().Add(-24*time.Hour), false)
	if n := receipts(t, th); n != 1 || len(get(t, th, in.ID).Receipts) != 1 {
		t.Errorf("%d receipts are left", n)
	}
}

// The receipts of an older program, which are in the row, come before the others.
func TestReceiptsOfOlderProgram(t *testing.T) {
	th := newThread(t)
	in := insert(t, th, reply(1))
	noError(t, th.Update(ctx, func(tx *engine.Tx) error {
		rows, err := tx.Records(tableRows)
		if err != nil {
			return err
		}
		r, _, err := getRow(rows, in.ID)
		if err != nil {
			return err
		}
		r.Receipts = []StoredReceipt{{Receipt: Receipt{Status: Refused, Reason: "old"}, Attempt: 1}}
		return putRow(rows, in.ID, &r)
	}))
	once(t, th, "true")
	list := get(t, th, in.ID).Receipts
	if len(list) != 2 || list[0].Reason != "old" || list[1].Status != Accepted {
		t.Errorf("got %+v", list)
	}
	if fb := records(t, th, Query{Type: ActionFeedback}); len(fb) != 1 || !strings.HasSuffix(fb[0].EventID, "_2") {
		t.Errorf("got %+v", fb)
	}
}
