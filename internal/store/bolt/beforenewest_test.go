package bolt_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/store/bolt"
)

// TestBeforeNewest compares with a list of all ids: in threads with and without whole
// column blocks, after a prune that cuts one, and in one that an old program wrote, with a gap.
func TestBeforeNewest(t *testing.T) {
	compare := func(name string, th *engine.Thread) {
		t.Helper()
		var ids []int64
		for e, err := range th.Events(ctx, engine.Query{}) {
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, e.ID)
		}
		err := view(th, func(tx *bolt.Tx) error {
			for n := range len(ids) + 2 {
				want := int64(0)
				if n < len(ids) {
					want = ids[len(ids)-1-n]
				}
				if got, err := tx.BeforeNewest(int64(n)); err != nil || got != want {
					return fmt.Errorf("before the newest %d of %d: %d, %v, want %d", n, len(ids), got, err, want)
				}
			}
			return nil
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	th, err := engine.Init(filepath.Join(t.TempDir(), "inbox"))
	if err != nil {
		t.Fatal(err)
	}
	compare("empty", th)
	for _, n := range []int{1, 1000, 23, 1, 3000} {
		ds := make([]event.Draft, n)
		for i := range ds {
			ds[i] = event.Draft{Source: "s", Type: "t", Content: "x"}
		}
		if _, err := th.PushBatch(ctx, ds); err != nil {
			t.Fatal(err)
		}
		compare(fmt.Sprint("after ", n), th)
	}
	for _, keep := range []int64{2900, 1024, 900} {
		if _, err := th.Prune(ctx, engine.Retention{KeepLast: &keep}); err != nil {
			t.Fatal(err)
		}
		compare(fmt.Sprint("pruned to ", keep), th)
	}
	compare("format 3", openFormat(t, formatFile, time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)))
}
