package bolt_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"thread/engine"
	"thread/event"
	"thread/filter"
	"thread/index"
	"thread/internal/faults"
	"thread/internal/store"
	"thread/internal/store/bolt"
	"thread/internal/store/bolt/disk"
	"thread/jsonlog"
	"thread/lock"
)

// calls are the calls of a store that need its database.
var calls = map[string]func(ctx context.Context, s *bolt.Store) error{
	"view": func(ctx context.Context, s *bolt.Store) error {
		return s.View(ctx, func(store.Tx) error { return nil })
	},
	"update": func(ctx context.Context, s *bolt.Store) error {
		return s.Update(ctx, func(store.Session) error { return nil })
	},
	"push": func(ctx context.Context, s *bolt.Store) error {
		_, err := s.Push(ctx, []event.Draft{draft("new")})
		return err
	},
	"large push": func(ctx context.Context, s *bolt.Store) error {
		_, err := s.Push(ctx, []event.Draft{draft(strings.Repeat("x", 2<<20))})
		return err
	},
	"push all": func(ctx context.Context, s *bolt.Store) error { _, err := s.PushAll(ctx, drafts(3, "")); return err },
	"batch":    func(ctx context.Context, s *bolt.Store) error { _, err := s.PushAll(ctx, drafts(17, "")); return err },
	"compact":  func(ctx context.Context, s *bolt.Store) error { _, err := s.Compact(ctx); return err },
	"prune": func(ctx context.Context, s *bolt.Store) error {
		_, err := s.Prune(ctx, store.Dropping{Through: func(store.Tx) (int64, error) { return 1, nil }})
		return err
	},
	"copy": func(ctx context.Context, s *bolt.Store) error {
		_, _, err := s.CopyTo(ctx, bolt.CopyOptions{To: copied(s.Dir)})
		return err
	},
	"snapshot": func(ctx context.Context, s *bolt.Store) error { _, err := s.Snapshot(ctx); return err },
	"lines":    func(ctx context.Context, s *bolt.Store) error { return s.LockLines(ctx, func() error { return nil }) },
	"view lines": func(ctx context.Context, s *bolt.Store) error {
		return s.ViewLines(ctx, func(disk.State, disk.LogStart) error { return nil })
	},
	"start of lines": func(ctx context.Context, s *bolt.Store) error { return s.SetLogStart(ctx, disk.LogStart{From: 1}) },
	"replace lines": func(ctx context.Context, s *bolt.Store) error {
		return s.ReplaceLines(ctx, func(store.Tx) (jsonlog.Position, error) { return jsonlog.Position{}, errMine })
	},
	"lock for reading": func(ctx context.Context, s *bolt.Store) error {
		f, err := s.LockForReading(ctx)
		if err == nil {
			err = f.Close()
		}
		return err
	},
}

var errMine = errors.New("mine")

// TestRefused: what no call can do, each says: without the database it returns why, changes
// nothing and leaves nothing open.
func TestRefused(t *testing.T) {
	prepared := faults.Dir(t)
	fiveEvents(t, prepared)
	for reason, prepare := range map[string]func(t *testing.T, dir string, s *bolt.Store) (c context.Context, want error){
		"closed": func(t *testing.T, _ string, s *bolt.Store) (context.Context, error) {
			must(t, s.Close())
			return ctx, store.ErrClosed
		},
		"called off": func(*testing.T, string, *bolt.Store) (context.Context, error) {
			c, cancel := context.WithCancelCause(ctx)
			cancel(errMine)
			return c, errMine
		},
		"busy": func(t *testing.T, dir string, _ *bolt.Store) (context.Context, error) {
			held, err := lock.Try(filepath.Join(dir, bolt.DatabaseName), lock.Exclusive)
			must(t, err)
			t.Cleanup(func() { held.Close() })
			return ctx, store.ErrBusy
		},
		"the gate held": func(t *testing.T, dir string, _ *bolt.Store) (context.Context, error) {
			held, err := lock.Try(filepath.Join(dir, store.RunName, ".gate"), lock.Exclusive)
			must(t, err)
			t.Cleanup(func() { held.Close() })
			past := time.Now() // a kept reader passes the gate once in a while only
			eventually(t, "a while", func() bool { return time.Since(past) > 2*time.Millisecond })
			return ctx, store.ErrBusy
		},
		"a file that is refused": func(_ *testing.T, _ string, s *bolt.Store) (context.Context, error) {
			s.CheckFile = func(os.FileInfo) error { return errMine }
			return ctx, errMine
		},
		"a database that is gone": func(t *testing.T, dir string, _ *bolt.Store) (context.Context, error) {
			must(t, os.Remove(filepath.Join(dir, bolt.DatabaseName)))
			return ctx, store.ErrNotThread
		},
		"another kind of file": func(t *testing.T, dir string, _ *bolt.Store) (context.Context, error) {
			must(t, os.WriteFile(filepath.Join(dir, bolt.DatabaseName), []byte(strings.Repeat("something else", 1000)), 0o600))
			return ctx, store.ErrNotDatabase
		},
	} {
		for name, call := range calls {
			for _, kept := range []bool{false, true} {
				t.Run(fmt.Sprint(reason, " ", name, " ", kept), func(t *testing.T) {
					dir := filepath.Join(faults.Dir(t), "t")
					must(t, os.CopyFS(dir, os.DirFS(prepared)))
					s, err := openStore(dir, bolt.Options{MaxGroup: 4, KeepOpen: kept, LockTimeout: 20 * time.Millisecond})
					must(t, err)
					defer s.Close()
					if kept { // it has a reader and a writer
						must(t, calls["push"](ctx, s))
						must(t, calls["view"](ctx, s))
					}
					c, want := prepare(t, dir, s)
					if err := call(c, s); !errors.Is(err, want) {
						t.Errorf("%v, want %v", err, want)
					}
					must(t, s.Close())
					if left := leftovers(t, dir); left != nil {
						t.Errorf("left are %q", left)
					}
					if reason == "busy" || reason == "the gate held" {
						return
					}
					if open := faults.Open(t, dir); open != nil {
						t.Errorf("open are %q", open)
					}
				})
			}
		}
	}
}

// TestOwnErrors: the error of a function that is given to a store is returned unchanged,
// and nothing that came before it is stored.
func TestOwnErrors(t *testing.T) {
	dir := faults.Dir(t)
	fiveEvents(t, dir)
	s, err := openStore(dir, bolt.Options{MaxGroup: 4})
	must(t, err)
	defer s.Close()
	for name, err := range map[string]error{
		"view":   s.View(ctx, func(store.Tx) error { return errMine }),
		"update": s.Update(ctx, func(store.Session) error { return errMine }),
		"through": func() error {
			_, err := s.Prune(ctx, store.Dropping{Through: func(store.Tx) (int64, error) { return 1, errMine }})
			return err
		}(),
		"may": func() error {
			_, err := s.Prune(ctx, store.Dropping{Through: func(store.Tx) (int64, error) { return 1, nil }, May: func(store.Tx, int64) error { return errMine }})
			return err
		}(),
		"events after": s.View(ctx, func(tx store.Tx) error { return tx.EventsAfter(0, func(*event.Event) error { return errMine }) }),
		"ascend": s.View(ctx, func(tx store.Tx) error {
			return tx.Ascend(store.Dedupe, nil, func(_, _ []byte) (bool, error) { return true, errMine })
		}),
		"descend": s.View(ctx, func(tx store.Tx) error {
			return tx.Descend(store.Dedupe, nil, func(_, _ []byte) (bool, error) { return true, errMine })
		}),
		"view lines": s.ViewLines(ctx, func(disk.State, disk.LogStart) error { return errMine }),
		"lines":      s.LockLines(ctx, func() error { return errMine }),
		"replace":    calls["replace lines"](ctx, s),
		"identity": func() error {
			_, _, err := s.CopyTo(ctx, bolt.CopyOptions{To: copied(dir), Identity: func(*os.File) (string, error) { return "", errMine }})
			return err
		}(),
		"a sequence": func() error {
			_, err := s.PushAll(ctx, func(yield func(event.Draft, error) bool) {
				for i := range 9 {
					if i == 8 {
						yield(event.Draft{}, errMine)
						return
					}
					if !yield(draft("new"), nil) {
						return
					}
				}
			})
			return err
		}(),
	} {
		if !errors.Is(err, errMine) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, ds := range map[string][]event.Draft{"one": {{}}, "two": {draft("new"), {}}} {
		if _, err := s.Push(ctx, ds); !errors.Is(err, event.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if list := contents(t, dir); len(list) != 5 || leftovers(t, dir) != nil {
		t.Errorf("%q, left are %q", list, leftovers(t, dir))
	}
}

// TestDamagedReceipt: a receipt that is damaged is not one, and its owner is told so.
func TestDamagedReceipt(t *testing.T) {
	th := initThread(t)
	token, ds := []byte("0123456789abcdef"), []event.Draft{draft("one"), draft("two")}
	must(t, bolt.Write(ctx, dirOf(th), func(tx *bolt.Tx, s store.Session) error {
		return tx.StorePending(s, token, ds, "2026-03-18T10:30:00.123Z")
	}))
	has := func(ds []event.Draft) (ok bool, err error) {
		err = view(th, func(tx *bolt.Tx) (err error) { ok, err = tx.Receipt(token, ds); return err })
		return ok, err
	}
	if ok, err := has(ds); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if ok, err := has(append(ds, draft("three"))); ok || !errors.Is(err, store.ErrCorrupt) { // of fewer drafts
		t.Errorf("%v %v", ok, err)
	}
	for _, damage := range []func(v []byte) []byte{
		func(v []byte) []byte { v[0] ^= 1; return v },
		func(v []byte) []byte { return v[:len(v)-1] },
		func([]byte) []byte { return index.AppendSum([]byte("short"), token) },
		func([]byte) []byte { return index.AppendSum(binary.BigEndian.AppendUint64(nil, 5), token) },
		// A duplicate of an event that there never was.
		func([]byte) []byte {
			return index.AppendSum(append(binary.BigEndian.AppendUint64(nil, 5), 0xff), token)
		},
	} {
		must(t, bolt.UpdateRaw(ctx, dirOf(th), func(b *bbolt.Tx) error {
			r := b.Bucket([]byte(store.Receipts))
			return r.Put(token, damage(append([]byte{}, r.Get(token)...)))
		}))
		if ok, err := has(ds); ok || !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%v %v", ok, err)
		}
	}
}

// TestColumnsOfOthers: a column that says of an event that it is of another series is
// damage, not an answer.
func TestColumnsOfOthers(t *testing.T) {
	th := initThread(t)
	ds := make([]event.Draft, index.BlockEvents+10)
	for i := range ds {
		ds[i] = event.Draft{Source: "s", Type: fmt.Sprint("t", i%2), Content: fmt.Sprint(i)}
	}
	_, err := th.PushBatch(ctx, ds)
	must(t, err)
	must(t, bolt.UpdateRaw(ctx, dirOf(th), func(b *bbolt.Tx) error {
		columns := b.Bucket(disk.BucketColumns)
		k, v := columns.Cursor().First()
		block, err := index.DecodeBlock(k, v)
		if err != nil {
			return err
		}
		var ids []int64
		var series []uint32
		for i := range block.Count {
			ids, series = append(ids, block.ID(i)), append(series, 3-block.Series(i))
		}
		return columns.Put(append([]byte{}, k...), index.EncodeBlock(ids, series, block.Times))
	}))
	for _, where := range []string{"content = '17'", "type = 't0'"} {
		if es, err := th.Peek(ctx, engine.Query{Filter: where}); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%s: %d events, %v", where, len(es), err)
		}
	}
}

// TestGapsBetweenBlocks: the id before the newest ones, and searches from any id on, in a
// thread with gaps between all ids.
func TestGapsBetweenBlocks(t *testing.T) {
	th := initThread(t)
	const events = 2*index.BlockEvents + 3
	must(t, write(th, func(tx *bolt.Tx) error {
		for i := range int64(events) {
			e := event.Event{ID: 5 * (i + 1), CreatedAt: "2026-03-18T10:30:00.123Z", Source: "s", Type: fmt.Sprint("t", i%3), Content: fmt.Sprint(i % 7)}
			if err := tx.Insert(&e); err != nil {
				return err
			}
		}
		return nil
	}))
	f, err := filter.Compile("type = 't1' AND content = '3'")
	must(t, err)
	must(t, view(th, func(tx *bolt.Tx) error {
		for n := range int64(events + 2) {
			want := max(0, 5*(events-n))
			if got, err := tx.BeforeNewest(n); err != nil || got != want {
				return fmt.Errorf("before the newest %d: %d, want %d, %v", n, got, want, err)
			}
		}
		for _, at := range []int64{0, 5, index.BlockEvents - 1, index.BlockEvents, index.BlockEvents + 1, 2 * index.BlockEvents, 2*index.BlockEvents + 1, events} {
			for _, off := range []int64{-6, -5, -1, 0, 1, 5} {
				after, upto := 5*at+off, 5*at+200
				var want, got []int64
				for i := range int64(events) {
					if id := 5 * (i + 1); i%3 == 1 && i%7 == 3 && id > after && id <= upto {
						want = append(want, id)
					}
				}
				pos, err := tx.Scan(store.Scan{Selection: store.NewSelection(f, nil), After: after, Upto: upto}, func(id int64) (bool, error) {
					got = append(got, id)
					return true, nil
				})
				if err != nil || fmt.Sprint(got) != fmt.Sprint(want) || pos != max(min(upto, 5*events), after, 0) {
					return fmt.Errorf("(%d, %d]: %d to %d, want %d, %v", after, upto, got, pos, want, err)
				}
			}
		}
		return nil
	}))
}

// TestRestoreRefused: what an interrupted restore left is in no one's way; what cannot be
// removed is an error, and then nothing is made.
func TestRestoreRefused(t *testing.T) {
	for _, name := range []string{bolt.DatabaseName + ".new", "events.jsonl.new"} {
		dir := filepath.Join(faults.Dir(t), "t")
		must(t, os.Mkdir(dir, 0o700))
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, []byte("half"), 0o600))
		must(t, restore(dir))
		if list := contents(t, dir); len(list) != 5 || leftovers(t, dir) != nil {
			t.Errorf("%q, left are %q", list, leftovers(t, dir))
		}
		dir = filepath.Join(faults.Dir(t), "t")
		path = filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Join(path, "full"), 0o700))
		if err := restore(dir); err == nil {
			t.Errorf("over a directory %s", name)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
			t.Errorf("made %v, %v", entries, err)
		}
	}
	dir := filepath.Join(faults.Dir(t), "t")
	r, err := bolt.StartRestore(dir, false)
	must(t, err)
	for name, err := range map[string]error{
		"a subscription without a name": r.Subscription(store.Subscription{}, 1, nil),
		"one with a long name":          r.Subscription(store.Subscription{Consumer: strings.Repeat("x", event.MaxNameBytes+1)}, 1, nil),
		"one without an ordinal":        r.Subscription(store.Subscription{Consumer: "c"}, 0, nil),
		"progress without a name":       r.Progress("", store.ProgressRecord{}),
		"an entry without a bucket":     r.Extra(store.Extra{Key: []byte("k")}),
		"fewer than no events":          r.Finish(0, -1),
		"publish":                       r.Publish(),
	} {
		if !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	must(t, r.Subscription(store.Subscription{Consumer: strings.Repeat("x", event.MaxNameBytes)}, 1, nil))
	must(t, r.Close())
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a restore that was closed left its directory: %v", err)
	}
}
