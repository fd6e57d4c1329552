package bolt_test

import (
	"path/filepath"
	"testing"
	"time"

	"thread/engine"
	"thread/filter"
	"thread/internal/store"
	"thread/internal/store/bolt"
	"thread/lock"
)

// TestSearchYieldsToWriter: a long read ends its slice when a writer waits, and only then.
func TestSearchYieldsToWriter(t *testing.T) {
	th, err := engine.Init(filepath.Join(t.TempDir(), "t"))
	if err != nil {
		t.Fatal(err)
	}
	const n = 900
	if _, err := th.PushBatch(ctx, plainDrafts(n)); err != nil {
		t.Fatal(err)
	}
	f, err := filter.Compile("content = 'y'")
	if err != nil {
		t.Fatal(err)
	}
	err = view(th, func(tx *bolt.Tx) error {
		run := func() int64 {
			at, err := tx.RunFor(time.Hour, store.NewSelection(f, nil))
			if err != nil {
				t.Error(err)
			}
			return at
		}
		if at := run(); at != n {
			t.Errorf("ended at %d of %d although nobody waits", at, n)
		}
		writer, err := lock.Try(dirOf(th).Path(store.RunName, ".gate"), lock.Exclusive)
		if err != nil {
			return err
		}
		if at := run(); at != bolt.YieldEvery {
			t.Errorf("ended at %d, and a writer waits", at)
		}
		return writer.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
}
