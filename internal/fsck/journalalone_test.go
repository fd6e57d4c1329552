package fsck

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"thread/engine"
	"thread/event"
	"thread/internal/store/bolt"
)

// TestJournalAlone: of a thread that has lost events.db and events.jsonl, repair saves what
// the journal has by itself, and reports what may be lost.
func TestJournalAlone(t *testing.T) {
	for _, lose := range []struct {
		name string
		db   func(path string) error
	}{
		{"emptied", func(path string) error { return os.Truncate(path, 0) }},
		{"zeroed", func(path string) error { return os.WriteFile(path, make([]byte, 64<<10), 0o600) }},
		{"gone", os.Remove},
	} {
		t.Run(lose.name, func(t *testing.T) {
			dir, to := filepath.Join(t.TempDir(), "thread"), filepath.Join(t.TempDir(), "new")
			want := journalledThread(t, dir)
			if err := errors.Join(lose.db(filepath.Join(dir, bolt.DatabaseName)), os.Remove(filepath.Join(dir, "events.jsonl"))); err != nil {
				t.Fatal(err)
			}
			r, err := Repair(ctx, dir, to)
			if err != nil {
				t.Fatal(err)
			}
			if r.FromDatabase != int64(len(want)) || r.Complete() {
				t.Errorf("%+v, want %d events", r, len(want))
			}
			th, err := engine.Open(to)
			if err != nil {
				t.Fatal(err)
			}
			defer th.Close()
			if have, err := th.Peek(ctx, engine.Query{}); err != nil || !slices.Equal(have, want) {
				t.Errorf("%v, want %v; %v", have, want, err)
			}
			if info, err := th.Info(ctx); err != nil || len(info.Subscriptions) != 1 || info.Subscriptions[0].Consumer != "c" {
				t.Errorf("%+v, %v", info, err)
			}
		})
	}
}

// journalledThread makes a thread, and returns the events that the journal has together with
// their series, which came after the last commit in events.db.
func journalledThread(t *testing.T, dir string) (want []event.Event) {
	t.Helper()
	th, err := engine.Init(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer th.Close()
	push := func(source string) {
		for i := range 3 {
			e, err := th.Push(ctx, event.Draft{Source: source, Type: "t", Content: fmt.Sprint(source, i)})
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, e)
		}
	}
	push("old")
	want = nil
	push("new")
	if err := th.Subscribe(ctx, engine.Subscription{Consumer: "c", Handler: "true"}); err != nil {
		t.Fatal(err)
	}
	return want
}
