package trigger

import (
	"context"
	"errors"
	"testing"

	"thread/engine"
)

// TestExact: a message whose place has no order is a duplicate when the broker says
// that it was delivered before and the same is stored at its place; and so is one
// whose commit has an outcome that no process knows. Another at its place takes it.
func TestExact(t *testing.T) {
	r := newRig(t, t.TempDir()+"/t", nil)
	ctx := context.Background()
	r.tr.told = nil
	store := func(at string, redelivered, tried bool) {
		t.Helper()
		items := r.tr.prepare([]Message{{ID: "x", Positional: true, Body: []byte("{}"), Redelivered: redelivered, Position: &Position{Key: "packet:1", At: []byte(at), Exact: true}}})
		if err := r.tr.look(ctx, items); err != nil {
			t.Fatal(err)
		}
		if tried {
			was := *items[0]
			was.event = 1
			items[0].tried = &was
		}
		if err := r.tr.store(ctx, items); err != nil {
			t.Fatal(err)
		}
	}
	for i, step := range []struct {
		at                 string
		redelivered, tried bool
		events             int64
	}{
		{"b", true, false, 1},  // delivered before, and not stored
		{"b", true, false, 1},  // again
		{"b", false, true, 1},  // the first of two attempts had stored it
		{"a", true, false, 2},  // another one, though it comes before in the order of bytes
		{"a", false, false, 3}, // the same once more, and not a redelivery
		{"b", true, false, 4},
	} {
		store(step.at, step.redelivered, step.tried)
		info, err := r.th.Info(ctx)
		if err != nil || info.EventCount != step.events {
			t.Errorf("step %d: %d events, want %d, %v", i, info.EventCount, step.events, err)
		}
	}
	found, err := newState(r.th, &r.cfg).Load("packet:")
	if err != nil || string(found["packet:1"]) != "b" {
		t.Errorf("%v %v", found, err)
	}
}

// TestStoredBefore: what an attempt has stored whose outcome is not known is not a
// duplicate, however many of those after it fail.
func TestStoredBefore(t *testing.T) {
	for _, m := range []Message{{ID: "m-1", Body: []byte("{}")}, {ID: "q:0:7", Positional: true, Body: []byte("{}"), Position: &Position{Key: "0", At: []byte{8}}}} {
		r := newRig(t, t.TempDir()+"/t", nil)
		ctx := t.Context()
		items := r.tr.prepare([]Message{m})
		if err := r.tr.store(ctx, items); err != nil {
			t.Fatal(err)
		}
		was := *items[0]
		items[0].tried = &was
		failed := errors.New("not stored")
		for range 3 {
			err := r.th.Update(ctx, func(tx *engine.Tx) error {
				records, err := tx.Records(table)
				if err != nil {
					return err
				}
				book, err := openLedger(records, &r.cfg)
				if err != nil {
					return err
				}
				k, err := newKnown(records, &r.cfg)
				if err == nil {
					err = r.tr.storeOne(tx, k, book, items[0])
				}
				return errors.Join(err, failed)
			})
			if !errors.Is(err, failed) || items[0].known || items[0].event != 1 {
				t.Fatalf("%s: known %t, event %d, %v", m.ID, items[0].known, items[0].event, err)
			}
		}
		if err := r.tr.store(ctx, items); err != nil || items[0].known || items[0].event != 1 {
			t.Errorf("%s: known %t, event %d, %v", m.ID, items[0].known, items[0].event, err)
		}
		if info, err := r.th.Info(ctx); err != nil || info.EventCount != 1 {
			t.Errorf("%s: %d events, %v", m.ID, info.EventCount, err)
		}
	}
}
