//go:build unix

package engine

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"thread/event"
	"thread/internal/store"
	"thread/internal/store/bolt"
)

// cutEvents is enough for a tree of events with branches, most of it far behind the
// first pages.
const cutEvents = 4000

// cutThread returns a thread and a function that truncates its database, as
// another process could at any moment, to n bytes.
func cutThread(t *testing.T) (th *Thread, cut func(n int64)) {
	t.Helper()
	th, err := Init(filepath.Join(t.TempDir(), "thread"))
	if err != nil {
		t.Fatal(err)
	}
	drafts := make([]event.Draft, cutEvents)
	for i := range drafts {
		drafts[i] = event.Draft{Source: "s", Type: "t", Content: strings.Repeat("x", 1000)}
	}
	if _, err := th.PushBatch(ctx, drafts); err != nil {
		t.Fatal(err)
	}
	return th, func(n int64) {
		if err := os.Truncate(dirOf(th).Path(bolt.DatabaseName), n); err != nil {
			t.Fatal(err)
		}
	}
}

// cuts are the lengths to which the file is truncated: not at all a page, the meta
// pages only, some, most of it.
var cuts = []int64{0, 100, 8 << 10, 64 << 10, 3 << 20}

// TestTruncatedUnderReader: a page that the file does not have any more is a memory
// fault for who has it mapped, and an error of the call, not the end of the process.
func TestTruncatedUnderReader(t *testing.T) {
	for _, n := range cuts {
		t.Run("", func(t *testing.T) {
			th, cut := cutThread(t)
			read := 0
			err := th.View(ctx, func(tx *Tx) error {
				return tx.s.EventsAfter(0, func(*event.Event) error {
					if read++; read == 10 {
						cut(n)
					}
					return nil
				})
			})
			if !errors.Is(err, ErrCorrupt) || read < 10 || read >= cutEvents {
				t.Errorf("cut to %d bytes: %d events, %v", n, read, err)
			}
			stillWorks(t, th)
		})
	}
}

// TestTruncatedBetweenSlices: Events has nothing open while its caller has an event,
// and finds the file cut short when it continues.
func TestTruncatedBetweenSlices(t *testing.T) {
	for _, n := range cuts {
		t.Run("", func(t *testing.T) {
			th, cut := cutThread(t)
			read := 0
			var last error
			for _, err := range th.Events(ctx, Query{}) {
				if last = err; err != nil {
					break
				}
				if read++; read == 10 {
					cut(n)
				}
			}
			if !errors.Is(last, ErrCorrupt) && !errors.Is(last, ErrNotDatabase) || read < 10 || read >= cutEvents {
				t.Errorf("cut to %d bytes: %d events, %v", n, read, last)
			}
			stillWorks(t, th)
		})
	}
}

// TestTruncatedUnderWriter: the same within a transaction that writes, whether it has
// changed something by then or not, and within a compaction.
func TestTruncatedUnderWriter(t *testing.T) {
	for _, n := range cuts {
		for _, before := range []int{0, 3} {
			t.Run("", func(t *testing.T) {
				th, cut := cutThread(t)
				err := th.Update(ctx, func(tx *Tx) error {
					for range before {
						if _, err := tx.Push(event.Draft{Source: "s", Type: "t"}); err != nil {
							return err
						}
					}
					cut(n)
					return tx.s.EventsAfter(0, func(*event.Event) error { return nil })
				})
				if !errors.Is(err, ErrCorrupt) {
					t.Errorf("cut to %d bytes after %d events: %v", n, before, err)
				}
				stillWorks(t, th)
			})
		}
		t.Run("commit", func(t *testing.T) {
			th, cut := cutThread(t)
			err := th.Update(ctx, func(tx *Tx) error {
				cut(n)
				_, err := tx.Push(event.Draft{Source: "s", Type: "t"})
				return err
			})
			// What a commit writes behind the new end leaves a hole before it, and whether
			// it met the hole depends on where the end is. A process that reads on does.
			if err != nil && !errors.Is(err, ErrCorrupt) {
				t.Errorf("cut to %d bytes: %v", n, err)
			}
			if _, err := th.Peek(ctx, Query{}); !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNotDatabase) {
				t.Errorf("cut to %d bytes: peek: %v", n, err)
			}
		})
		t.Run("prune", func(t *testing.T) {
			th, cut := cutThread(t)
			_, err := th.s.Prune(ctx, store.Dropping{Through: func(store.Tx) (int64, error) { cut(n); return 1, nil }})
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNotDatabase) {
				t.Errorf("cut to %d bytes: %v", n, err)
			}
			if _, err := os.Stat(dirOf(th).Path(bolt.CompactName)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the copy was left behind: %v", err)
			}
			stillWorks(t, th)
		})
	}
}

// stillWorks requires that a handle that met a fault has let go of the locks and
// continues to name the damage, to readers and to writers.
func stillWorks(t *testing.T, th *Thread) {
	t.Helper()
	_, err := th.Info(ctx)
	if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNotDatabase) {
		t.Errorf("info: %v", err)
	}
	_, err = th.Push(ctx, event.Draft{Source: "s", Type: "t"})
	if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNotDatabase) {
		t.Errorf("push: %v", err)
	}
}
