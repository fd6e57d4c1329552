package fsck

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"thread/engine"
	"thread/event"
	"thread/internal/store/bolt"
)

// TestZeroedTail: after a loss of power a file system may have the size of events.jsonl and zeros
// for its last lines, or for all. The next push writes them again, and so that is not a fault.
func TestZeroedTail(t *testing.T) {
	for _, zeros := range []int{1, 200, 3000, 1 << 20} {
		dir := filepath.Join(t.TempDir(), "inbox")
		th, err := engine.Init(dir)
		if err != nil {
			t.Fatal(err)
		}
		ds := make([]event.Draft, 60)
		for i := range ds {
			ds[i] = event.Draft{Source: "s", Type: "t", Content: fmt.Sprint("number ", i)}
		}
		if _, err := th.PushBatch(ctx, ds); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "events.jsonl")
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		cut := bytes.Clone(whole)
		clear(cut[max(0, len(cut)-zeros):])
		if err := os.WriteFile(path, cut, bolt.FileMode); err != nil {
			t.Fatal(err)
		}
		r := checkOf(t, dir)
		if len(r.Faults) > 0 || len(r.Notes) != 1 {
			t.Errorf("%d zeros: faults %q, notes %v", zeros, faultsOf(r), r.Notes)
		}
		e, err := th.Push(ctx, event.Draft{Source: "s", Type: "t", Content: "next"})
		if err != nil {
			t.Fatal(err)
		}
		is, err := os.ReadFile(path)
		if want := append(e.AppendJSON(whole), '\n'); err != nil || !bytes.Equal(is, want) {
			t.Errorf("%d zeros: after a push there are %d bytes, want %d (%v)", zeros, len(is), len(want), err)
		}
		if r := checkOf(t, dir); len(r.Faults) > 0 || len(r.Notes) > 0 {
			t.Errorf("%d zeros, after a push: %q, %v", zeros, faultsOf(r), r.Notes)
		}
	}
}
