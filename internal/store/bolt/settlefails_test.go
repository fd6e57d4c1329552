package bolt_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"thread/engine"
	"thread/internal/faults"
	"thread/internal/store"
	"thread/internal/store/bolt"
)

// TestSettleFails: where it is not known that the newest transaction is on the disk, a writer
// that cannot make it durable writes nothing, and returns the error.
func TestSettleFails(t *testing.T) {
	prepared := five(t, bolt.Options{})
	for range 3 { // the newest are in the journal
		must(t, calls["push"](ctx, prepared))
	}
	must(t, prepared.Close())
	met := map[string]int{}
	faults.Each(t, syscall.EIO, []string{"fsync", "fdatasync", "pwrite64"}, func(t *testing.T, f *faults.Fault) {
		dir := filepath.Join(faults.Dir(t), "t")
		must(t, os.CopyFS(dir, os.DirFS(prepared.Dir)))
		must(t, os.RemoveAll(filepath.Join(dir, store.RunName)))
		s, err := openStore(dir, bolt.Options{})
		must(t, err)
		var failed error
		f.Run(t, dir, func() { failed = calls["push"](ctx, s) })
		must(t, s.Close())
		if f.Hit == nil {
			must(t, failed)
			return
		}
		met[f.Hit.String()]++
		optional := strings.Contains(f.Hit.Path, ".synced") || strings.HasSuffix(f.Hit.Path, ".jsonl")
		stored := len(contents(t, dir)) == 9
		if failed == nil && (!optional || !stored) || failed != nil && stored && !errors.Is(failed, store.ErrUnknownOutcome) {
			t.Errorf("%v fails: %v, stored: %v", f.Hit, failed, stored)
		}
		again, err := openStore(dir, bolt.Options{})
		must(t, err)
		must(t, calls["push"](ctx, again))
		must(t, again.Close())
	})
	for _, call := range []string{"fsync ./events.db", "fdatasync ./events.journal"} {
		if met[call] == 0 && !testing.Short() {
			t.Errorf("%s was not met: %v", call, met)
		}
	}
}

// TestCopyOfLargeTablesFails: where a sync of a part of a large table fails, the compaction does,
// and the thread is as it was.
func TestCopyOfLargeTablesFails(t *testing.T) {
	dir := filepath.Join(faults.Dir(t), "t")
	fiveEvents(t, dir)
	th, err := engine.Open(dir)
	must(t, err)
	defer th.Close()
	must(t, th.Update(ctx, func(tx *engine.Tx) error {
		for table := range 2 {
			r, err := tx.Records(fmt.Sprint("mine", table))
			for i := 0; i < 180 && err == nil; i++ {
				err = r.Put(fmt.Append(nil, i), make([]byte, 60<<10))
			}
			if err != nil {
				return err
			}
		}
		return nil
	}))
	compact := func() error { _, err := th.Compact(ctx); return err }
	syncs := 0
	must(t, atSync(func(n int) error { syncs = n; return nil }, compact))
	if syncs < 3 {
		t.Fatalf("%d syncs: the tables are not copied in parts", syncs)
	}
	mine := errors.New("mine")
	for at := 1; at <= syncs; at++ {
		err := atSync(func(n int) error {
			if n == at {
				return mine
			}
			return nil
		}, compact)
		if !errors.Is(err, mine) {
			t.Errorf("sync %d of %d fails: %v", at, syncs, err)
		}
		if left := leftovers(t, dir); left != nil {
			t.Errorf("sync %d of %d fails: left are %q", at, syncs, left)
		}
	}
	if list := contents(t, dir); len(list) != 5 {
		t.Errorf("%q", list)
	}
	sound(t, th)
}
