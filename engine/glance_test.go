package engine

import (
	"math"
	"path/filepath"
	"testing"
	"time"

	"thread/filter"
	"thread/lock"
)

// TestGlance: a long read ends its slice when a writer waits, and only then.
func TestGlance(t *testing.T) {
	th, err := Init(filepath.Join(t.TempDir(), "t"))
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
	err = th.View(ctx, func(tx *Tx) error {
		run := func() int64 {
			s := tx.search(newVerdicts(f))
			s.deadline = time.Now().Add(time.Hour)
			at, err := s.run(0, math.MaxInt64, func(*hit) (bool, error) { return true, nil })
			if err != nil {
				t.Error(err)
			}
			return at
		}
		if at := run(); at != n {
			t.Errorf("ended at %d of %d although nobody waits", at, n)
		}
		writer, err := lock.Try(th.path(runName, ".gate"), lock.Exclusive)
		if err != nil {
			return err
		}
		if at := run(); at != lateEvery {
			t.Errorf("ended at %d, and a writer waits", at)
		}
		return writer.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
}
