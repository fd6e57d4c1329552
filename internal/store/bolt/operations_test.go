package bolt_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"thread/engine"
	"thread/event"
	"thread/internal/faults"
	"thread/internal/store"
	"thread/internal/store/bolt"
)

// operation is something that is done to a thread of five events, with faults.
type operation struct {
	// prepare is done before, without faults.
	prepare func(t *testing.T, dir string)
	do      func(ctx context.Context, dir string) error
	// before is called at each system call of do, after with its end.
	before func(dir string, c faults.Call)
	after  func()
	// effect returns what can be seen of do: "" for nothing, "done" for all of it, and
	// anything else is a mistake.
	effect func(t *testing.T, dir string) string
}

var large = strings.Repeat("large ", 20_000)

// fiveEvents makes a thread in dir: of five events, one of which is large and one has a
// dedupe key.
func fiveEvents(t *testing.T, dir string) {
	t.Helper()
	th, err := engine.Init(dir)
	must(t, err)
	defer th.Close()
	for i := range 5 {
		d := draft(fmt.Sprint("old ", i))
		switch i {
		case 1:
			d.Content += large
		case 2:
			d.DedupeKey = "key"
		}
		_, err := th.Push(ctx, d)
		must(t, err)
	}
}

func openStore(dir string, o bolt.Options) (*bolt.Store, error) {
	o.LockTimeout = cmp.Or(o.LockTimeout, bolt.DefaultLockTimeout)
	th, err := engine.Open(dir, engine.WithLockWait(o.LockTimeout))
	if err != nil {
		return nil, err
	}
	o.Logic = th.Store().(*bolt.Store).Logic
	return bolt.Open(dir, o)
}

// contents returns the first words of the contents of all events of dir.
func contents(t *testing.T, dir string) (list []string) {
	t.Helper()
	th, err := engine.Open(dir)
	must(t, err)
	defer th.Close()
	for e, err := range th.Events(ctx, engine.Query{}) {
		must(t, err)
		list = append(list, e.Content[:min(5, len(e.Content))])
	}
	return list
}

// added says "done" when the new events are there behind the old ones, all n.
func added(n int) func(t *testing.T, dir string) string {
	return func(t *testing.T, dir string) string {
		list := contents(t, dir)
		if len(list) == 5 {
			return ""
		}
		for i := range n {
			if len(list) != 5+n || !strings.HasPrefix(list[5+i], "new") {
				return fmt.Sprint(list)
			}
		}
		return "done"
	}
}

func drafts(n int, last string) iter.Seq2[event.Draft, error] {
	return func(yield func(event.Draft, error) bool) {
		for i := range n {
			d := draft(fmt.Sprint("new ", i))
			if i == n-1 {
				d.Content += last
			}
			if !yield(d, nil) {
				return
			}
		}
	}
}

func restore(dir string) (err error) {
	r, err := bolt.StartRestore(dir, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	for i := range int64(5) {
		e := event.Event{ID: i + 1, CreatedAt: "2026-03-18T10:30:00.123Z", Source: "s", Type: "t", Content: "old"}
		if i == 3 {
			e.Content += large
		}
		if err := r.Event(&e); err != nil {
			return err
		}
	}
	if err := r.Subscription(store.Subscription{Consumer: "c", Handler: "true"}, 1, nil); err != nil {
		return err
	}
	if err := r.Finish(9, 2); err != nil {
		return err
	}
	return r.Publish()
}

// fresh is the effect of a thread that is made.
func fresh(stored int) func(t *testing.T, dir string) string {
	return func(t *testing.T, dir string) string {
		if _, err := os.Lstat(filepath.Join(dir, bolt.DatabaseName)); errors.Is(err, os.ErrNotExist) {
			return ""
		}
		if n := len(contents(t, dir)); n != stored {
			return fmt.Sprint(n, " events")
		}
		return "done"
	}
}

// same is the effect of what changes no event: whether it was done is for the operation.
func same(done func(dir string) bool) func(t *testing.T, dir string) string {
	return func(t *testing.T, dir string) string {
		if list := contents(t, dir); len(list) != 5 {
			return fmt.Sprint(list)
		}
		if done(dir) {
			return "done"
		}
		return ""
	}
}

func exists(path string) bool { _, err := os.Lstat(path); return err == nil }

func copied(dir string) string { return filepath.Join(dir, "copy") }

// compactable drops a table of others, so that a compaction makes the file smaller.
func compactable(t *testing.T, dir string) {
	fiveEvents(t, dir)
	th, err := engine.Open(dir)
	must(t, err)
	defer th.Close()
	for _, size := range []int{300_000, 0} {
		must(t, th.Update(ctx, func(tx *engine.Tx) error {
			r, err := tx.Records("mine")
			if err != nil {
				return err
			}
			return r.Put([]byte("k"), []byte(strings.Repeat("x", size)))
		}))
	}
}

func sizeOf(dir string) int64 {
	info, err := os.Stat(filepath.Join(dir, bolt.DatabaseName))
	if err != nil {
		return 0
	}
	return info.Size()
}

// copyTo copies the database, behind an earlier copy when there is one.
func copyTo(ctx context.Context, dir string, o bolt.CopyOptions) (bolt.Moment, error) {
	s, err := openStore(dir, bolt.Options{})
	if err != nil {
		return bolt.Moment{}, err
	}
	defer s.Close()
	o.To = copied(dir)
	o.Identity = func(f *os.File) (string, error) {
		_, err := f.Stat()
		return "one", err
	}
	m, _, err := s.CopyTo(ctx, o)
	return m, err
}

func operations() map[string]operation {
	var moment bolt.Moment // of the base
	var gate gateHeld
	var waits waitingPush
	return map[string]operation{
		"init": {
			do: func(ctx context.Context, dir string) error {
				_, err := engine.Init(filepath.Join(dir, "in", "t"))
				return err
			},
			effect: func(t *testing.T, dir string) string { return fresh(0)(t, filepath.Join(dir, "in", "t")) },
		},
		"restore": {
			do:     func(ctx context.Context, dir string) error { return restore(filepath.Join(dir, "in", "t")) },
			effect: func(t *testing.T, dir string) string { return fresh(5)(t, filepath.Join(dir, "in", "t")) },
		},
		"a batch of five transactions": {
			prepare: fiveEvents,
			do: func(ctx context.Context, dir string) error {
				s, err := openStore(dir, bolt.Options{MaxGroup: 4})
				if err != nil {
					return err
				}
				defer s.Close()
				_, err = s.PushAll(ctx, drafts(17, large))
				return err
			},
			effect: added(17),
		},
		"a push of a kept database": {
			prepare: fiveEvents,
			do: func(ctx context.Context, dir string) error {
				th, err := engine.Open(dir, engine.WithKeepOpen())
				if err != nil {
					return err
				}
				defer th.Close()
				for i := range 3 {
					if i == 1 {
						err = th.View(ctx, func(*engine.Tx) error { return nil })
					} else {
						_, err = th.Push(ctx, draft("new"))
					}
					if err != nil {
						break
					}
				}
				return err
			},
			effect: func(t *testing.T, dir string) string { // of two pushes, the first can be there
				if len(contents(t, dir)) == 6 {
					return ""
				}
				return added(2)(t, dir)
			},
		},
		"a push behind another one": {
			prepare: fiveEvents,
			before:  func(dir string, c faults.Call) { gate.asked(dir, c) },
			after:   gate.end,
			do:      func(ctx context.Context, dir string) error { return gate.push(ctx, dir) },
			effect:  added(1),
		},
		"compact": {
			prepare: compactable,
			do: func(ctx context.Context, dir string) error {
				th, err := engine.Open(dir)
				if err != nil {
					return err
				}
				defer th.Close()
				_, err = th.Compact(ctx)
				return err
			},
			effect: same(func(dir string) bool { return sizeOf(dir) < 300_000 }),
		},
		"compact over a linked copy": {
			prepare: compactable,
			before: func(dir string, c faults.Call) { // a directory is copied without its links
				if mine := filepath.Join(dir, "mine"); !exists(mine) {
					_ = os.WriteFile(mine, nil, 0o600)
					_ = os.Link(mine, filepath.Join(dir, bolt.CompactName))
				}
			},
			do: func(ctx context.Context, dir string) error {
				mine, copied := filepath.Join(dir, "mine"), filepath.Join(dir, bolt.CompactName)
				defer os.Remove(mine)
				err := operations()["compact"].do(ctx, dir)
				if err != nil { // what is mine stays, and is not left by a copy
					of, _ := os.Stat(mine)
					if is, _ := os.Stat(copied); os.SameFile(of, is) {
						os.Remove(copied)
					}
				}
				return err
			},
			effect: same(func(dir string) bool { return sizeOf(dir) < 300_000 }),
		},
		"a push that takes another one": {
			prepare: fiveEvents,
			before:  func(dir string, c faults.Call) { waits.begin(dir) },
			after:   waits.end,
			do:      func(ctx context.Context, dir string) error { return gate.push(ctx, dir) },
			effect: func(t *testing.T, dir string) string {
				list := slices.DeleteFunc(contents(t, dir), func(c string) bool { return c == "other" })
				switch len(list) {
				case 5:
					return ""
				case 6:
					return "done"
				}
				return fmt.Sprint(list)
			},
		},
		"prune": {
			prepare: fiveEvents,
			do: func(ctx context.Context, dir string) error {
				th, err := engine.Open(dir)
				if err != nil {
					return err
				}
				defer th.Close()
				keep := int64(3)
				_, err = th.Prune(ctx, engine.Retention{KeepLast: &keep})
				return err
			},
			effect: func(t *testing.T, dir string) string {
				switch list := contents(t, dir); len(list) {
				case 5:
					return ""
				case 3:
					return "done"
				default:
					return fmt.Sprint(list)
				}
			},
		},
		"copy": {
			prepare: fiveEvents,
			do: func(ctx context.Context, dir string) error {
				_, err := copyTo(ctx, dir, bolt.CopyOptions{})
				return err
			},
			effect: same(func(dir string) bool { return exists(copied(dir)) }),
		},
		"copy behind an earlier one": {
			prepare: func(t *testing.T, dir string) {
				fiveEvents(t, dir)
				var err error
				moment, err = copyTo(ctx, dir, bolt.CopyOptions{})
				must(t, err)
				must(t, os.Rename(copied(dir), copied(dir)+".base"))
			},
			do: func(ctx context.Context, dir string) error {
				_, err := copyTo(ctx, dir, bolt.CopyOptions{Base: copied(dir) + ".base", Since: moment})
				return err
			},
			effect: same(func(dir string) bool { return exists(copied(dir)) }),
		},
	}
}
