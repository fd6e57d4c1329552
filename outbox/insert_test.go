package outbox

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"thread/engine"
)

// O-01: a new record has the fields of the document, with their first values.
func TestNewRecord(t *testing.T) {
	th := newThread(t)
	m, err := ParseMessage([]byte(example))
	noError(t, err)
	rec := get(t, th, insert(t, th, m).ID)
	if rec.EventID != "evt_20260226_9f3a1c" || rec.EventType != CommentReplied || rec.ThreadID.String() != "101" || rec.CommentID.String() != "8801" ||
		rec.TargetUserID.String() != "5" || rec.ActorUserID.String() != "12" || rec.Status != Pending || rec.RetryCount != 0 || rec.Error != nil ||
		rec.AvailableAt != rec.CreatedAt || rec.DedupeKey != "reply:8801:5" || rec.TraceID != "trc_7c1d2e" || len(rec.Receipts) != 0 || rec.RunID != nil {
		t.Errorf("got %+v", rec)
	}
	rec = get(t, th, insert(t, th, Message{EventType: ThreadCreated, ThreadID: NumberID(102)}).ID)
	if !rec.CommentID.IsNull() || !rec.TargetUserID.IsNull() || !strings.HasPrefix(rec.EventID, "evt_") || !strings.HasPrefix(rec.TraceID, "trc_") {
		t.Errorf("got %+v", rec)
	}
}

// O-02: the application's record and the outbox's are stored together or not
// at all, wherever the transaction fails: an error before, between and after them,
// and a panic.
func TestBothOrNeither(t *testing.T) {
	th := newThread(t)
	fault := errors.New("fault")
	const steps = 4
	for _, how := range []string{"error", "panic"} {
		for at := range steps + 1 {
			name := fmt.Sprint(how, at)
			err := func() (err error) {
				defer func() {
					if p := recover(); p != nil {
						err = p.(error)
					}
				}()
				return th.Update(ctx, func(tx *engine.Tx) error {
					step := 0
					failing := func() error {
						if step++; step-1 != at {
							return nil
						}
						if how == "panic" {
							panic(fault)
						}
						return fault
					}
					comments, err := tx.Records("comments")
					if err != nil {
						return err
					}
					for _, do := range []func() error{
						failing,
						func() error { return comments.Put([]byte(name), []byte("a comment")) },
						failing,
						func() error { m := reply(1); m.EventID, m.DedupeKey = name, name; _, err := Insert(tx, m); return err },
						failing,
						func() error { return comments.Put([]byte(name+"'"), []byte("its author")) },
						failing,
					} {
						if err := do(); err != nil {
							return err
						}
					}
					return nil
				})
			}()
			want := at == steps // the step after the last one never comes
			if (err == nil) != want {
				t.Errorf("%s: got %v", name, err)
			}
			noError(t, th.View(ctx, func(tx *engine.Tx) error {
				comments, err := tx.Records("comments")
				if err != nil {
					return err
				}
				id, known, err := Find(tx, name)
				if err != nil {
					return err
				}
				_, isRecord, err := Get(tx, id)
				_, stored, _ := tx.Event(id)
				if known != want || isRecord != want || stored != want || (comments.Get([]byte(name)) != nil) != want || (comments.Get([]byte(name+"'")) != nil) != want {
					t.Errorf("%s: known %v, record %v, event %v, want %v", name, known, isRecord, stored, want)
				}
				return err
			}))
		}
	}
	if n := len(records(t, th, Query{})); n != 2 {
		t.Errorf("%d records, want 2", n)
	}
}

// O-06: a dedupe key counts within its window, an event_id for ever.
func TestDedupe(t *testing.T) {
	c := newClock()
	th := newThread(t, engine.WithClock(c.Now))
	m := reply(8801)
	m.EventID = "evt_1"
	first := insert(t, th, m)
	if first.Duplicate || first.DedupeKey != "reply:8801:5" {
		t.Fatalf("got %+v", first)
	}
	again := reply(8801)
	again.EventID = "evt_2"
	if in := insert(t, th, again); !in.Duplicate || in.EventID != "evt_1" || in.ID != first.ID || in.TraceID != first.TraceID {
		t.Errorf("within the window: %+v", in)
	}
	// A duplicate within one transaction is one, too.
	noError(t, th.Update(ctx, func(tx *engine.Tx) error {
		a, err := Insert(tx, like(1))
		if err != nil {
			return err
		}
		b, err := Insert(tx, like(1))
		if !b.Duplicate || a.Duplicate || b.EventID != a.EventID {
			t.Errorf("got %+v, %+v", a, b)
		}
		return err
	}))
	c.move(24*time.Hour - time.Millisecond)
	if in := insert(t, th, again); !in.Duplicate {
		t.Errorf("at the end of the window: %+v", in)
	}
	c.move(time.Millisecond)
	if in := insert(t, th, again); in.Duplicate || in.EventID != "evt_2" {
		t.Errorf("after the window: %+v", in)
	}
	for range 3 {
		c.move(365 * 24 * time.Hour)
		other := reply(1)
		other.EventID = "evt_1"
		if in := insert(t, th, other); !in.Duplicate || in.ID != first.ID {
			t.Errorf("the same event_id: %+v", in)
		}
	}
	set(t, th, func(s *Settings) { s.DedupeWindow = time.Minute })
	insert(t, th, reply(5))
	c.move(time.Minute)
	if in := insert(t, th, reply(5)); in.Duplicate {
		t.Errorf("after a window of a minute: %+v", in)
	}
	// Who uses the thread next to the outbox has separate keys.
	if n := len(records(t, th, Query{})); n != 5 {
		t.Errorf("%d records, want 5", n)
	}
}

// O-06: the default keys tell apart what is not the same.
func TestDefaultDedupeKeys(t *testing.T) {
	m := reply(8801)
	seen := map[string]string{}
	for _, typ := range EventTypes {
		m.EventType, m.EventID = typ, "e"
		key := m.DefaultDedupeKey()
		if other := seen[key]; other != "" {
			t.Errorf("%s and %s have the key %s", typ, other, key)
		}
		seen[key] = typ
	}
	a, b := like(1), like(1)
	b.ActorUserID = NumberID(13)
	if a.DefaultDedupeKey() == b.DefaultDedupeKey() {
		t.Error("the likes of two users have one key")
	}
}

// O-17: a record that is not yet available is pending, counted and found, and is
// handed on at its time; an earlier time than now is now.
func TestAvailableAt(t *testing.T) {
	c := newClock()
	th := newThread(t, engine.WithClock(c.Now))
	m := like(1)
	m.AvailableAt = c.Now().Add(time.Hour)
	later := insert(t, th, m)
	m = like(2)
	m.AvailableAt = c.Now().Add(-time.Hour)
	now := insert(t, th, m)
	if sum := once(t, th, ""); sum.Processed != 1 || get(t, th, now.ID).Status != Processed {
		t.Fatalf("got %+v", sum)
	}
	rec := get(t, th, later.ID)
	if rec.Status != Pending || rec.AvailableAt != "2027-01-15T09:00:00.000Z" || rec.RetryCount != 0 || rec.Error != nil {
		t.Errorf("got %+v", rec)
	}
	if in := insert(t, th, like(1)); !in.Duplicate || in.ID != later.ID {
		t.Errorf("got %+v", in)
	}
	noError(t, th.View(ctx, func(tx *engine.Tx) error {
		s, err := ReadStats(tx)
		if id, ok, _ := Find(tx, later.EventID); s.Pending != 1 || id != later.ID || !ok {
			t.Errorf("got %+v, record %d", s, id)
		}
		return err
	}))
	c.move(time.Hour - time.Millisecond)
	if sum := once(t, th, ""); sum.Processed != 0 {
		t.Errorf("too early: %+v", sum)
	}
	c.move(time.Millisecond)
	if sum := once(t, th, ""); sum.Processed != 1 || get(t, th, later.ID).Status != Processed {
		t.Errorf("got %+v", sum)
	}
}
