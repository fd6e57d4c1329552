package bolt_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"thread/internal/faults"
	"thread/internal/store"
	"thread/internal/store/bolt"
	"thread/lock"
)

// TestKeptReaderWaitsAtTheGate: a reader that keeps the gate open waits for a writer that holds
// it, also one that holds a gate which was made again.
func TestKeptReaderWaitsAtTheGate(t *testing.T) {
	for _, again := range []bool{false, true} {
		s := five(t, bolt.Options{KeepOpen: true, LockTimeout: 20 * time.Millisecond})
		pause := func() {
			t.Helper()
			past := time.Now() // it passes the gate once in a while only
			eventually(t, "a while", func() bool { return time.Since(past) > 2*time.Millisecond })
		}
		for range 3 { // the first one keeps the database, the second the gate
			must(t, calls["view"](ctx, s))
			pause()
		}
		gate := s.Path(store.RunName, ".gate")
		if again {
			must(t, os.RemoveAll(s.Path(store.RunName)))
			must(t, os.Mkdir(s.Path(store.RunName), 0o700))
		}
		held, err := lock.Try(gate, lock.Exclusive)
		must(t, err)
		if err := calls["view"](ctx, s); !errors.Is(err, store.ErrBusy) {
			t.Errorf("made again: %v: %v", again, err)
		}
		must(t, held.Close())
		untilGateClosed(t, s)
		for range 3 {
			must(t, calls["view"](ctx, s))
			pause()
		}
		held, err = lock.Try(gate, lock.Exclusive) // nothing holds it between calls
		must(t, err)
		must(t, held.Close())
		hasOnly(t, s, 5)
	}
}

// untilGateClosed waits for the end of a call's wait at the gate: a call that gives up leaves
// it in the kernel, and it ends with the lock, for a moment.
func untilGateClosed(t *testing.T, s *bolt.Store) {
	t.Helper()
	eventually(t, "the wait that was given up ends", func() bool {
		return !slices.ContainsFunc(faults.Open(t, s.Dir), func(path string) bool {
			return strings.Contains(path, "/.gate") // " (deleted)" may follow
		})
	})
}

// TestKeptJournalIsReplaced: a store that keeps the database open reads and writes the journal
// that has the name now, where an older copy of it was put in its place.
func TestKeptJournalIsReplaced(t *testing.T) {
	s := five(t, bolt.Options{KeepOpen: true})
	path := s.Path(bolt.JournalName)
	must(t, calls["push"](ctx, s))
	older, err := os.ReadFile(path)
	must(t, err)
	must(t, calls["push"](ctx, s))
	sees := func(want int64) {
		t.Helper()
		must(t, s.View(ctx, func(tx store.Tx) error {
			if got := tx.State().Head; got != want {
				t.Errorf("head %d, want %d", got, want)
			}
			return nil
		}))
	}
	sees(7)
	must(t, os.WriteFile(path+".new", older, 0o600))
	must(t, os.Rename(path+".new", path))
	sees(6)
	must(t, calls["push"](ctx, s))
	sees(7)
	other, err := openStore(s.Dir, bolt.Options{})
	must(t, err)
	must(t, calls["push"](ctx, other))
	must(t, other.Close())
	sees(8)
	must(t, s.Close())
	if list := contents(t, s.Dir); len(list) != 8 || faults.Open(t, s.Dir) != nil {
		t.Errorf("%q, open are %q", list, faults.Open(t, s.Dir))
	}
}

// TestRestoreOverAnotherKindIsDurable: each directory that a restore makes in the place of
// another kind of file is synced, also the one that it makes last.
func TestRestoreOverAnotherKindIsDurable(t *testing.T) {
	th := initThread(t)
	must(t, os.MkdirAll(filepath.Join(th.Dir(), "in", "t"), 0o700))
	var f faults.Fault
	var err error
	f.Run(t, th.Dir(), func() { _, err = restoreAll(true, false, large)(th) })
	must(t, err)
	inOrder(t, f.Calls)
	dir := filepath.Join(th.Dir(), "in", "t")
	if list := contents(t, dir); len(list) != 5 || !exists(filepath.Join(dir, store.LogsName)) {
		t.Errorf("%q", list)
	}
}
