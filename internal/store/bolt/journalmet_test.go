package bolt_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"thread/internal/faults"
	"thread/internal/store"
	"thread/internal/store/bolt"
	"thread/internal/store/bolt/journal"
)

// TestJournalIsDamaged: a journal that is not what was written any more is damage for what reads and
// what writes, it stays as it is, and with the journal put back everything is there.
func TestJournalIsDamaged(t *testing.T) {
	five := five(t, bolt.Options{})
	must(t, calls["compact"](ctx, five))
	must(t, calls["push"](ctx, five)) // into events.db, as there is no journal
	older, err := os.ReadFile(five.Path(bolt.DatabaseName))
	must(t, err)
	for range 3 {
		must(t, calls["push"](ctx, five))
	}
	must(t, five.Close())
	sound, err := os.ReadFile(five.Path(bolt.JournalName))
	must(t, err)
	without := func(from, to int) func(path string) error {
		return func(path string) error {
			b := append([]byte(nil), sound...)
			clear(b[from:to])
			return os.WriteFile(path, b, 0o600)
		}
	}
	cut := func(size int64) func(path string) error {
		return func(path string) error { return os.Truncate(path, size) }
	}
	type called struct {
		call string
		keep bool
	}
	for what, damage := range map[string]func(path string) error{
		"it is empty":                      cut(0),
		"it ends in its first record":      cut(100),
		"it ends in its second record":     cut(journal.SlotBytes + 100),
		"its first record is missing":      without(0, journal.SlotBytes),
		"its second record is missing":     without(journal.SlotBytes, 2*journal.SlotBytes),
		"its second record has no header":  without(journal.SlotBytes, journal.SlotBytes+4),
		"its second record has no changes": without(journal.SlotBytes+40, 2*journal.SlotBytes),
		"there is none":                    os.Remove,
	} {
		for _, tt := range []called{{"view", false}, {"push", false}, {"view", true}, {"push", true}} {
			dir := filepath.Join(faults.Dir(t), "t")
			path := filepath.Join(dir, bolt.JournalName)
			must(t, os.CopyFS(dir, os.DirFS(five.Dir)))
			must(t, damage(path))
			damaged, _ := os.ReadFile(path)
			s, err := openStore(dir, bolt.Options{KeepOpen: tt.keep})
			must(t, err)
			if err := calls[tt.call](ctx, s); !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("%s: %+v returns %v", what, tt, err)
			}
			must(t, s.Close())
			if now, _ := os.ReadFile(path); string(now) != string(damaged) {
				t.Errorf("%s: %+v has changed it", what, tt)
			}
			if open := faults.Open(t, dir); open != nil {
				t.Errorf("%s: %+v leaves %q open", what, tt, open)
			}
			must(t, os.WriteFile(path, sound, 0o600))
			if list := contents(t, dir); len(list) != 9 {
				t.Errorf("%s, put back: %q", what, list)
			}
		}
	}
	// An older database under a journal of the same base has what the journal has.
	must(t, os.WriteFile(five.Path(bolt.DatabaseName), older, 0o600))
	if list := contents(t, five.Dir); len(list) != 9 {
		t.Errorf("with the database of before the pushes: %q", list)
	}
}

// TestCopyWithoutLines: a copy of a thread that writes no lines writes none either.
func TestCopyWithoutLines(t *testing.T) {
	s := five(t, bolt.Options{})
	must(t, s.SetLines(ctx, false))
	to := filepath.Join(t.TempDir(), "t")
	must(t, os.Mkdir(to, 0o700))
	_, _, err := s.CopyTo(ctx, bolt.CopyOptions{To: filepath.Join(to, bolt.DatabaseName)})
	must(t, err)
	copied, err := openStore(to, bolt.Options{})
	must(t, err)
	defer copied.Close()
	must(t, calls["push"](ctx, copied))
	if names, err := filepath.Glob(filepath.Join(to, "events*.jsonl")); len(names) != 0 || err != nil {
		t.Errorf("there are %q, %v", names, err)
	}
	hasOnly(t, copied, 6)
}
