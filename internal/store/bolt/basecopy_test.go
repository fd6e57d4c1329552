package bolt_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"thread/engine"
	"thread/event"
	"thread/internal/faults"
	"thread/internal/progress"
	"thread/internal/store"
	"thread/internal/store/bolt"
)

// TestCopyBehindABase: a copy that continues behind an earlier one copies only what came since,
// and says how far it is.
func TestCopyBehindABase(t *testing.T) {
	dir := filepath.Join(faults.Dir(t), "t")
	th, err := engine.Init(dir)
	must(t, err)
	defer th.Close()
	_, err = th.PushAll(ctx, drafts(12_000, ""))
	must(t, err)
	var told []int64 // done, total
	counts := progress.With(ctx, func(what string, done, total int64) {
		if what == "copying events" {
			told = append(told, done, total)
		}
	})
	var writes int
	copies := func(o bolt.CopyOptions) bolt.Moment {
		t.Helper()
		told = nil
		var f faults.Fault
		var m bolt.Moment
		f.Run(t, filepath.Dir(dir), func() {
			s, err := openStore(dir, bolt.Options{})
			must(t, err)
			defer s.Close()
			o.To, o.Identity = copied(dir), func(*os.File) (string, error) { return "one", nil }
			m, _, err = s.CopyTo(counts, o)
			must(t, err)
		})
		writes = len(f.Names("pwrite64"))
		return m
	}
	since := copies(bolt.CopyOptions{})
	if n := len(told) / 2; n != 12_000 || told[0] != 1 || told[2*n-2] != 12_000 || told[2*n-1] != 12_000 {
		t.Errorf("told %d times, the last %v", n, told[max(0, len(told)-2):])
	}
	whole := writes
	base := copied(dir) + ".base"
	must(t, os.Rename(copied(dir), base))
	for range 3 {
		_, err = th.Push(ctx, draft("behind it"))
		must(t, err)
	}
	copies(bolt.CopyOptions{Base: base, Since: since})
	if len(told) != 6 || told[4] != 3 || told[5] != 3 {
		t.Errorf("of three new events it tells %v", told)
	}
	if writes*4 > whole {
		t.Errorf("%d pages are written behind a base, and %d without one", writes, whole)
	}
}

// TestUnidentifiedBase: a base of a file that has no identity is not built upon, also where none
// was noted of the base either.
func TestUnidentifiedBase(t *testing.T) {
	dir := filepath.Join(faults.Dir(t), "t")
	fiveEvents(t, dir)
	s, err := openStore(dir, bolt.Options{})
	must(t, err)
	defer s.Close()
	none := func(*os.File) (string, error) { return "", nil }
	base := copied(dir) + ".base"
	since, _, err := s.CopyTo(ctx, bolt.CopyOptions{To: base, Identity: none})
	must(t, err)
	_, more, err := s.CopyTo(ctx, bolt.CopyOptions{To: copied(dir), Identity: none, Base: base, Since: since})
	if err != nil || more != 5 || since.File != "" {
		t.Errorf("%d events were copied, behind %q: %v", more, since.File, err)
	}
}

// TestLinesOfLongEvents: a push of long and short events has a line for each, in order.
func TestLinesOfLongEvents(t *testing.T) {
	dir := filepath.Join(faults.Dir(t), "t")
	th, err := engine.Init(dir)
	must(t, err)
	defer th.Close()
	var want []byte
	for _, lengths := range [][]int{{1, 65 << 10, 2, 66 << 10, 3}, {64<<10 + 1}, {64 << 10, 4}} {
		var ds []event.Draft
		for _, n := range lengths {
			ds = append(ds, draft(strings.Repeat("x", n)))
		}
		events, err := th.PushBatch(ctx, ds)
		must(t, err)
		for _, e := range events {
			want = append(e.AppendJSON(want), '\n')
		}
		if got, err := os.ReadFile(filepath.Join(dir, "events.jsonl")); err != nil || !bytes.Equal(got, want) {
			t.Errorf("after a push of %v: %d bytes, want %d: %v", lengths, len(got), len(want), err)
		}
	}
}

// TestNothingIsKeptOpen: a store that is not to keep its files open has none open between calls.
func TestNothingIsKeptOpen(t *testing.T) {
	s := five(t, bolt.Options{})
	for name, call := range calls {
		if name == "close" {
			continue
		}
		_ = call(ctx, s)
		if open := faults.Open(t, s.Dir); open != nil {
			t.Errorf("after %s open are %q", name, open)
		}
	}
	for _, on := range []bool{false, true} {
		must(t, calls["push"](ctx, s)) // so that there are lines, or would be
		must(t, s.SetLines(ctx, on))
		if open := faults.Open(t, s.Dir); open != nil {
			t.Errorf("lines: %v; open are %q", on, open)
		}
	}
}

// TestPageIsFull: a page has as many events as there are, or as were asked for, unless they are
// large.
func TestPageIsFull(t *testing.T) {
	th := initThread(t)
	for range 2 {
		_, err := th.PushAll(ctx, drafts(50, ""))
		must(t, err)
	}
	for limit, want := range map[int64]int{1: 1, 30: 30, 100: 100, 1 << 40: 100} {
		must(t, view(th, func(tx *bolt.Tx) error {
			page, pos, err := tx.Page(store.Scan{Selection: store.NewSelection(nil, nil), Upto: 100}, limit, []event.Event{})
			if len(page) != want || err == nil && want > 0 && pos < int64(want) {
				t.Errorf("limit %d: %d events up to %d, %v", limit, len(page), pos, err)
			}
			return err
		}))
	}
}

// TestKeptDatabaseIsNotOpenedAgain: a store that keeps its files open opens none again for what
// follows its own calls.
func TestKeptDatabaseIsNotOpenedAgain(t *testing.T) {
	s := five(t, bolt.Options{KeepOpen: true})
	must(t, errors.Join(calls["push"](ctx, s), calls["view"](ctx, s)))       // each opens them for itself
	for _, first := range []string{"push", "view", "update", "large push"} { // the last goes to events.db, which those who read look at again
		must(t, calls[first](ctx, s))
		for _, then := range []string{"push", "view"} {
			if first == "large push" && then == "view" {
				continue
			}
			var f faults.Fault
			var err error
			f.Run(t, s.Dir, func() { err = calls[then](ctx, s) })
			must(t, err)
			for _, call := range f.Names("openat") {
				if strings.HasSuffix(call, bolt.DatabaseName) || strings.HasSuffix(call, bolt.JournalName) {
					t.Errorf("%s after %s: %s", then, first, call)
				}
			}
		}
	}
}

// TestBucketsGoBehindABase: a bucket within a table of other programs that was removed since an
// earlier copy is not in the copy that continues behind it, and one that was made is.
func TestBucketsGoBehindABase(t *testing.T) {
	s := five(t, bolt.Options{})
	inner := func(change func(other *bbolt.Bucket) error) {
		t.Helper()
		must(t, bolt.UpdateRaw(ctx, s, func(b *bbolt.Tx) error {
			other, err := b.CreateBucketIfNotExists([]byte("other"))
			return errors.Join(err, change(other))
		}))
	}
	add := func(names ...string) func(other *bbolt.Bucket) error {
		return func(other *bbolt.Bucket) error {
			for _, name := range names {
				b, err := other.CreateBucketIfNotExists([]byte(name))
				if err = errors.Join(err, other.Put([]byte("key "+name), []byte("x"))); err != nil {
					return err
				}
				if err := b.Put([]byte("k"), []byte("v")); err != nil {
					return err
				}
			}
			return nil
		}
	}
	inner(add("a", "c"))
	since, err := copyTo(ctx, s.Dir, bolt.CopyOptions{})
	must(t, err)
	base := copied(s.Dir) + ".base"
	must(t, os.Rename(copied(s.Dir), base))
	inner(func(other *bbolt.Bucket) error {
		return errors.Join(other.DeleteBucket([]byte("a")), other.Delete([]byte("key a")), add("b")(other))
	})
	_, err = copyTo(ctx, s.Dir, bolt.CopyOptions{Base: base, Since: since})
	must(t, err)
	db, err := bbolt.Open(copied(s.Dir), 0o600, nil)
	must(t, err)
	defer db.Close()
	var got []string
	must(t, db.View(func(b *bbolt.Tx) error {
		return b.Bucket([]byte("other")).ForEach(func(k, _ []byte) error { got = append(got, string(k)); return nil })
	}))
	if want := "b,c,key b,key c"; strings.Join(got, ",") != want {
		t.Errorf("%q, want %s", got, want)
	}
}

// TestLinesAreSoAlready: lines that are on, or off, are not turned on, or off, again.
func TestLinesAreSoAlready(t *testing.T) {
	s := five(t, bolt.Options{})
	lines := func() string {
		t.Helper()
		names, err := filepath.Glob(filepath.Join(s.Dir, "events*.jsonl"))
		must(t, err)
		var all strings.Builder
		for _, name := range names {
			text, err := os.ReadFile(name)
			must(t, err)
			all.WriteString(filepath.Base(name) + ": " + string(text))
		}
		return all.String()
	}
	for _, on := range []bool{true, false, true} {
		must(t, s.SetLines(ctx, on))
		must(t, calls["push"](ctx, s))
		before := lines()
		must(t, s.SetLines(ctx, on))
		if after := lines(); after != before {
			t.Errorf("on: %v: %s became %s", on, before, after)
		}
	}
}

// countdown is a context that ends when it is asked for the so-manieth time.
type countdown struct {
	context.Context
	left *int
}

func (c countdown) Err() error {
	if *c.left--; *c.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestCopyCalledOff: a copy of many rows that is called off, wherever it looks, is an error and
// leaves nothing, or is whole.
func TestCopyCalledOff(t *testing.T) {
	dir := filepath.Join(faults.Dir(t), "t")
	fiveEvents(t, dir)
	th, err := engine.Open(dir)
	must(t, err)
	const rows = 300
	must(t, th.Update(ctx, func(tx *engine.Tx) error {
		r, err := tx.Records("other")
		for n := 0; n < rows && err == nil; n++ {
			err = r.Put(fmt.Appendf(nil, "%03d", n), []byte("x"))
		}
		return err
	}))
	must(t, th.Close())
	s, err := openStore(dir, bolt.Options{})
	must(t, err)
	defer s.Close()
	for looks := 0; ; looks++ {
		left := looks
		_, _, err := s.CopyTo(countdown{ctx, &left}, bolt.CopyOptions{To: copied(dir)})
		if err == nil {
			db, err := bbolt.Open(copied(dir), 0o600, nil)
			must(t, err)
			defer db.Close()
			must(t, db.View(func(b *bbolt.Tx) error {
				if n := b.Bucket([]byte("other")).Stats().KeyN; n != rows {
					t.Errorf("called off at look %d: %d rows", looks, n)
				}
				return nil
			}))
			if looks < 5 {
				t.Errorf("it looks %d times", looks)
			}
			return
		}
		if !errors.Is(err, context.Canceled) || exists(copied(dir)) {
			t.Errorf("called off at look %d: %v", looks, err)
		}
	}
}
