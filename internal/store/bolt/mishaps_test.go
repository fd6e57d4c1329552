package bolt_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"thread/engine"
	"thread/event"
	"thread/index"
	"thread/internal/faults"
	"thread/internal/fsck"
	"thread/internal/store"
	"thread/internal/store/bolt"
)

// five makes a thread of five events and a store on it.
func five(t *testing.T, o bolt.Options) *bolt.Store {
	t.Helper()
	dir := filepath.Join(faults.Dir(t), "t")
	fiveEvents(t, dir)
	s, err := openStore(dir, o)
	must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// hasOnly requires that many events, that a check finds no fault, and that nothing is open or
// left behind.
func hasOnly(t *testing.T, s *bolt.Store, n int) {
	t.Helper()
	must(t, s.Close())
	if open, left := faults.Open(t, s.Dir), leftovers(t, s.Dir); open != nil || left != nil {
		t.Errorf("open are %q, left %q", open, left)
	}
	if list := contents(t, s.Dir); len(list) != n {
		t.Errorf("%d events, want %d", len(list), n)
	}
	th, err := engine.Open(s.Dir)
	must(t, err)
	defer th.Close()
	if report, err := fsck.Check(ctx, th); err != nil || len(report.Faults) > 0 {
		t.Errorf("check: %v, %v", report.Faults, err)
	}
}

// TestGuardWordsErrors: damage is ErrCorrupt whether it shows as an error or as a panic, a full
// database is ErrTooLarge, and a panic of the caller's function continues.
func TestGuardWordsErrors(t *testing.T) {
	for _, tt := range []struct {
		fn   func() error
		want error
	}{
		{func() error { return nil }, nil},
		{func() error { return errMine }, errMine},
		{func() error { return fmt.Errorf("page 7: %w", index.ErrDamaged) }, store.ErrCorrupt},
		{func() error { panic("page 7") }, store.ErrCorrupt},
		{func() error { return fmt.Errorf("grow: %w", bolterrors.ErrMaxSizeReached) }, store.ErrTooLarge},
	} {
		if err := bolt.Guard(tt.fn); !errors.Is(err, tt.want) || tt.want == nil && err != nil {
			t.Errorf("%v, want %v", err, tt.want)
		}
	}
	defer func() {
		if r := recover(); r != errMine {
			t.Errorf("the panic became %v", r)
		}
	}()
	_ = bolt.Guard(func() error { return store.Call(func() error { panic(errMine) }) })
}

// TestJournalOfOthers: a file in the place of the journal that has another name is not written
// to, and a push says so. Without it, the push succeeds.
func TestJournalOfOthers(t *testing.T) {
	s := five(t, bolt.Options{})
	must(t, calls["compact"](ctx, s)) // the next push makes a journal
	path, mine := s.Path(bolt.JournalName), s.Path("mine")
	must(t, errors.Join(os.Remove(path), os.WriteFile(mine, []byte("mine"), 0o600), os.Link(mine, path)))
	if err := calls["push"](ctx, s); !errors.Is(err, store.ErrOwner) {
		t.Error(err)
	}
	if text, err := os.ReadFile(mine); string(text) != "mine" {
		t.Errorf("%q, %v", text, err)
	}
	if list := contents(t, s.Dir); len(list) != 5 {
		t.Errorf("%q", list)
	}
	must(t, os.Remove(path))
	must(t, calls["push"](ctx, s))
	hasOnly(t, s, 6)
}

// TestCutWhileItIsLookedAt: a database that a program makes shorter while a store that keeps it
// open looks whether it is the same is damage, and no end of this process.
func TestCutWhileItIsLookedAt(t *testing.T) {
	s := five(t, bolt.Options{KeepOpen: true})
	must(t, errors.Join(calls["push"](ctx, s), calls["view"](ctx, s)))
	path := s.Path(bolt.DatabaseName)
	b, err := os.ReadFile(path)
	must(t, err)
	f := faults.Fault{Before: func(c faults.Call, _ int) {
		if c.Name == "newfstatat" && strings.HasSuffix(c.Path, bolt.JournalName) {
			_ = os.Truncate(path, 0)
		}
	}}
	f.Run(t, s.Dir, func() { err = calls["view"](ctx, s) })
	if !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("%v, after %v", err, f.Calls)
	}
	must(t, os.WriteFile(path, b, 0o600))
	must(t, calls["view"](ctx, s))
	hasOnly(t, s, 6)
}

// TestFailuresOfLinesOn: when a system call of turning lines on fails, an events.jsonl of an
// older program is there under one of its names, and the next try turns them on.
func TestFailuresOfLinesOn(t *testing.T) {
	prepared := five(t, bolt.Options{})
	must(t, prepared.SetLines(ctx, false))
	pushed, err := prepared.Push(ctx, []event.Draft{draft("by an older program")})
	must(t, err)
	must(t, os.WriteFile(prepared.Path("events.jsonl"), append(pushed.Events[0].AppendJSON(nil), '\n'), 0o600))
	must(t, prepared.Close())
	faults.Each(t, syscall.EIO, []string{"renameat", "renameat2", "fsync", "openat", "newfstatat"}, func(t *testing.T, f *faults.Fault) {
		dir := filepath.Join(faults.Dir(t), "t")
		must(t, os.CopyFS(dir, os.DirFS(prepared.Dir)))
		s, err := openStore(dir, bolt.Options{})
		must(t, err)
		defer s.Close()
		var failed error
		f.Run(t, dir, func() { failed = s.SetLines(ctx, true) })
		if f.Hit == nil && failed != nil {
			t.Error(failed)
		}
		must(t, s.SetLines(ctx, true))
		must(t, calls["push"](ctx, s))
		names, err := filepath.Glob(s.Path("events*.jsonl"))
		must(t, err)
		lines, old := 0, 0
		for _, name := range names {
			text, err := os.ReadFile(name)
			must(t, err)
			lines, old = lines+strings.Count(string(text), `"content":"new"`), old+strings.Count(string(text), "by an older program")
		}
		if lines != 1 || old != 1 {
			t.Errorf("%d new lines and %d old ones, after %v", lines, old, failed)
		}
		hasOnly(t, s, 7)
	})
}

// TestFailuresOfLongLines: when lines that are longer than a buffer cannot be written, the push
// has succeeded and warns, and the next one writes them.
func TestFailuresOfLongLines(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.ENOSPC, faults.Short} {
		for at := 1; at < 4; at++ {
			s := five(t, bolt.Options{})
			var ds []event.Draft
			for range 7 { // each is short, and all are not
				ds = append(ds, draft(large[:60_000]))
			}
			ds = append(ds, draft(large), draft("last"))
			var err error
			var p store.Pushed
			written := 0
			f := faults.Fault{Before: func(c faults.Call, _ int) {
				if c.Name == "write" && strings.HasSuffix(c.Path, "events.jsonl") {
					written++
				}
			}, At: at, Errno: errno, Only: []string{"write"}}
			f.Run(t, s.Dir, func() { p, err = s.Push(ctx, ds) })
			if err != nil || len(p.Events) != len(ds) || (p.Warning != nil) != (f.Hit != nil && strings.HasSuffix(f.Hit.Path, "events.jsonl")) {
				t.Errorf("%v, and the warning %v, after %v failed", err, p.Warning, f.Hit)
			}
			if at == 1 && written == 0 {
				t.Errorf("no line was written: %v", f.Calls)
			}
			must(t, calls["push"](ctx, s))
			text, err := os.ReadFile(s.Path("events.jsonl"))
			if n := strings.Count(string(text), "\n"); n != 15 || err != nil {
				t.Errorf("%d lines, %v", n, err)
			}
			hasOnly(t, s, 15)
		}
	}
}

// TestGreatestIDIsCopied: behind the greatest id nothing can be left of a batch that was cut
// short, and a compaction keeps the event that has it.
func TestGreatestIDIsCopied(t *testing.T) {
	th := initThread(t)
	must(t, write(th, func(tx *bolt.Tx) error {
		return tx.Insert(&event.Event{ID: 1<<63 - 1, CreatedAt: "2026-03-18T10:30:00.123Z", Source: "s", Type: "t", Content: "last"})
	}))
	must(t, bolt.Fold(ctx, dirOf(th)))
	_, err := th.Compact(ctx)
	must(t, err)
	if _, err := th.Push(ctx, draft("behind it")); !errors.Is(err, store.ErrIDsExhausted) {
		t.Error(err)
	}
	if list := contents(t, th.Dir()); len(list) != 1 || list[0] != "last" {
		t.Errorf("%q", list)
	}
	sound(t, th)
}

// TestBatchCutShortBehindAPrune: what is left of a batch is removed also where no event before
// it is there any more.
func TestBatchCutShortBehindAPrune(t *testing.T) {
	s := five(t, bolt.Options{MaxGroup: 4})
	_, err := s.Prune(ctx, store.Dropping{Through: func(store.Tx) (int64, error) { return 5, nil }})
	must(t, err)
	must(t, bolt.CutBatch(ctx, s, append(make([]event.Draft, 0, 6), draft("lost"), draft("lost"), draft("lost"), draft("lost"), draft("lost"), draft("lost"))))
	p, err := s.Push(ctx, []event.Draft{draft("new")})
	if err != nil || p.Events[0].ID != 6 {
		t.Errorf("%+v, %v", p, err)
	}
	hasOnly(t, s, 1)
}

// TestRestoreBesideInit: a thread that another process makes while a restore begins stays, and
// the restore says that it exists.
func TestRestoreBesideInit(t *testing.T) {
	root := faults.Dir(t)
	dir := filepath.Join(root, "t")
	f := faults.Fault{Before: func(c faults.Call, _ int) {
		if c.Name == "openat" && strings.HasSuffix(c.Path, ".init") && !exists(filepath.Join(dir, bolt.DatabaseName)) {
			s, err := bolt.Init(dir, bolt.Options{LockTimeout: bolt.DefaultLockTimeout})
			if err != nil {
				t.Error(err)
				return
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}}
	var err error
	f.Run(t, root, func() { err = restore(dir) })
	if !errors.Is(err, store.ErrExists) {
		t.Error(err)
	}
	if list := contents(t, dir); len(list) != 0 || leftovers(t, dir) != nil || faults.Open(t, root) != nil {
		t.Errorf("%q, left are %q, open %q", list, leftovers(t, dir), faults.Open(t, root))
	}
	th, err := engine.Open(dir)
	must(t, err)
	defer th.Close()
	must(t, pushOne(th))
	sound(t, th)
}

// spoolOf returns the path by which the spool of a batch can be reached, "" for none.
func spoolOf() string {
	links, _ := filepath.Glob("/proc/self/fd/*")
	for _, link := range links {
		if path, _ := os.Readlink(link); strings.Contains(path, "/batch-") {
			return link
		}
	}
	return ""
}

// TestSpoolIsCut: a batch whose temporary file is made shorter is not stored, also not the part
// that could be read.
func TestSpoolIsCut(t *testing.T) {
	for _, size := range []int64{0, 5, 200} {
		s := five(t, bolt.Options{MaxGroup: 4})
		cut := false
		f := faults.Fault{Before: func(c faults.Call, _ int) {
			if c.Name == "lseek" && strings.Contains(c.Path, "batch-") {
				cut = os.Truncate(spoolOf(), size) == nil
			}
		}}
		var err error
		f.Run(t, s.Dir, func() { _, err = s.PushAll(ctx, drafts(17, "")) })
		if err == nil || !cut {
			t.Errorf("cut at %d bytes: %v, %v", size, cut, err)
		}
		hasOnly(t, s, 5)
	}
}

// TestRawAccessFails: what tests use to damage a database returns errors, and changes nothing.
func TestRawAccessFails(t *testing.T) {
	s := five(t, bolt.Options{MaxGroup: 4})
	ds := make([]event.Draft, 6)
	for i := range ds {
		ds[i] = draft("lost")
	}
	if err := bolt.UpdateRaw(ctx, s, func(b *bbolt.Tx) error { return errors.Join(b.DeleteBucket([]byte(store.Events)), errMine) }); !errors.Is(err, errMine) {
		t.Errorf("update: %v", err)
	}
	var err error
	f := faults.Fault{At: 1, Errno: syscall.EIO, Only: []string{"lseek"}}
	f.Run(t, s.Dir, func() { err = bolt.CutBatch(ctx, s, ds) })
	if !errors.Is(err, syscall.EIO) {
		t.Errorf("the spool cannot be read: %v", err)
	}
	run := s.Path(store.RunName)
	must(t, errors.Join(os.Rename(run, run+".away"), os.WriteFile(run, nil, 0o600)))
	if err := bolt.CutBatch(ctx, s, ds); err == nil {
		t.Error("without a place for the spool")
	}
	must(t, errors.Join(os.Remove(run), os.Rename(run+".away", run)))
	if list := contents(t, s.Dir); len(list) != 5 {
		t.Errorf("%q", list)
	}
	must(t, bolt.UpdateRaw(ctx, s, newestGroup(func(v []byte) []byte { v[0] = 9; return v })))
	if err := bolt.CutBatch(ctx, s, ds); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("the newest group is damaged: %v", err)
	}
}
