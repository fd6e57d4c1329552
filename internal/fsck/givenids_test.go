package fsck

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"thread/engine"
	"thread/event"
	"thread/internal/store/bolt"
	"thread/internal/store/bolt/disk"
)

// TestRepairWithoutState: where the record of the ids that were given is lost, and
// no line tells, repair says what it does not know, and gives no id again.
func TestRepairWithoutState(t *testing.T) {
	dir, db := threeEvents(t, pushFourth)
	for at := bytes.Index(db, disk.KeyState); at >= 0; {
		db[at+20] ^= 0xff // in every page that has it, old ones too
		next := bytes.Index(db[at+1:], disk.KeyState)
		if next < 0 {
			break
		}
		at += 1 + next
	}
	if err := errors2(os.WriteFile(filepath.Join(dir, bolt.DatabaseName), db, bolt.FileMode), os.Remove(filepath.Join(dir, "events.jsonl"))); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "new")
	r, err := Repair(ctx, dir, to)
	if err != nil || r.Saved != 4 || len(r.Lost) > 0 || r.Complete() {
		t.Fatalf("%+v, %v", r, err)
	}
	if want := []IDRange{{5, r.NextID - 1}}; r.NextID < 10000 || !slices.Equal(r.Unknown, want) {
		t.Errorf("not known: %v, next %d", r.Unknown, r.NextID)
	}
	th, err := engine.Open(to)
	if err != nil {
		t.Fatal(err)
	}
	e, err := th.Push(ctx, event.Draft{Source: "s", Type: "t", Content: "next"})
	if err != nil || e.ID != r.NextID {
		t.Errorf("%d, %v", e.ID, err)
	}
	if info, err := th.Info(ctx); err != nil || info.Newest != e.ID {
		t.Error(info, err)
	}
}
