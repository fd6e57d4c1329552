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
	"syscall"
	"testing"

	"thread/engine"
	"thread/event"
	"thread/internal/faults"
	"thread/internal/fsck"
	"thread/internal/store"
	"thread/internal/store/bolt"
	"thread/lock"
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

// gateHeld is a gate that another process holds until a push waits for it.
type gateHeld struct {
	held  *lock.File
	tries int
}

func (g *gateHeld) asked(dir string, c faults.Call) {
	if c.Name != "flock" || !strings.HasSuffix(c.Path, "run/.gate") {
		return
	}
	switch g.tries++; g.tries {
	case 1:
		g.held, _ = lock.Try(filepath.Join(dir, store.RunName, ".gate"), lock.Exclusive)
	case 2:
		g.held.Close()
	}
}

func (g *gateHeld) end() {
	if g.held != nil {
		g.held.Close()
	}
	*g = gateHeld{}
}

func (g *gateHeld) push(ctx context.Context, dir string) error {
	th, err := engine.Open(dir)
	if err != nil {
		return err
	}
	defer th.Close()
	_, err = th.Push(ctx, draft("new"))
	return err
}

// leftovers returns the temporary files below dir.
func leftovers(t *testing.T, dir string) (list []string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		name := filepath.Base(path)
		if strings.HasSuffix(name, ".new") || strings.HasSuffix(name, ".compact") || strings.HasPrefix(name, "batch-") || strings.HasSuffix(name, ".taken") {
			list = append(list, path)
		}
		return err
	}))
	return list
}

// changing are the calls that fail: those that look at a file fail for none alone.
var changing = []string{"openat", "read", "write", "pread64", "pwrite64", "fsync", "fdatasync", "ftruncate", "fchmod", "flock", "close", "unlinkat", "mkdirat", "fchmodat", "renameat", "renameat2"}

// TestFailures: each system call of an operation fails once. Without an error its effect
// is there; with one nothing is, unless the error leaves that open. No file stays open or
// is left behind, the old events stay, and the operation can be done again.
func TestFailures(t *testing.T) {
	for name, op := range operations() {
		t.Run(name, func(t *testing.T) {
			prepared := filepath.Join(faults.Dir(t), "t")
			if op.prepare == nil {
				must(t, os.Mkdir(prepared, 0o700))
			} else {
				op.prepare(t, prepared)
			}
			faults.Each(t, syscall.EIO, changing, func(t *testing.T, f *faults.Fault) { op.fail(t, f, prepared) })
		})
	}
}

func (op *operation) fail(t *testing.T, f *faults.Fault, prepared string) {
	root := faults.Dir(t)
	dir := filepath.Join(root, "t")
	must(t, os.CopyFS(dir, os.DirFS(prepared)))
	if op.before != nil {
		f.Before = func(c faults.Call, _ int) { op.before(dir, c) }
	}
	var failed error
	f.Run(t, root, func() { failed = op.do(ctx, dir) })
	if op.after != nil {
		op.after()
	}
	if open := faults.Open(t, root); open != nil {
		t.Errorf("open are %q", open)
	}
	if f.Hit == nil {
		inOrder(t, f.Calls)
		if failed != nil {
			t.Error(failed)
		}
	}
	unknown := errors.Is(failed, store.ErrUnknownOutcome)
	// What cannot be locked is not removed.
	left := leftovers(t, root)
	if left != nil && !unknown && f.Hit.Name != "unlinkat" && f.Hit.Name != "flock" {
		t.Errorf("left are %q, after %v", left, failed)
	}
	want := "done"
	if failed != nil {
		want = ""
	}
	got := op.effect(t, dir)
	if got != want && !unknown {
		t.Errorf("%q, and the error %v", got, failed)
	}
	if op.prepare == nil && got == "done" || f.At%4 != 0 && !unknown { // the rest takes half of the time
		return
	}
	if err := op.do(ctx, dir); err != nil {
		t.Errorf("done again: %v", err)
	}
	if !exists(filepath.Join(dir, bolt.DatabaseName)) {
		return
	}
	th, err := engine.Open(dir)
	must(t, err)
	defer th.Close()
	if report, err := fsck.Check(ctx, th); err != nil || len(report.Faults) > 0 {
		t.Errorf("check: %v, %v", report.Faults, err)
	}
}

// inOrder: what was written is synced before it is given its name, and before the end;
// a new name is synced with its directory.
func inOrder(t *testing.T, calls []faults.Call) {
	t.Helper()
	unsynced, unnamed := map[string]bool{}, map[string]bool{}
	for _, c := range calls {
		path := filepath.Clean(c.Path)
		if passing(path) {
			continue
		}
		switch c.Name {
		case "write", "pwrite64", "ftruncate":
			unsynced[path] = true
		case "fsync", "fdatasync":
			delete(unsynced, path)
			delete(unnamed, path)
		case "mkdirat":
			unnamed[filepath.Dir(path)] = true
		case "renameat", "renameat2":
			if unsynced[path] {
				t.Errorf("%s is renamed before it is synced", path)
			}
			delete(unsynced, path)
			unnamed[filepath.Dir(path)] = true
		case "unlinkat":
			delete(unsynced, path)
		}
	}
	for path := range unsynced {
		t.Errorf("%s is not synced", path)
	}
	for dir := range unnamed {
		t.Errorf("a new name in %s is not synced", dir)
	}
	if t.Failed() {
		t.Logf("%v", calls)
	}
}

// passing reports whether a file need not outlast a loss of power: the lines are written
// again, and run/ may be deleted.
func passing(path string) bool {
	return strings.HasSuffix(path, "events.jsonl") || slices.Contains(strings.Split(path, "/"), store.RunName)
}
