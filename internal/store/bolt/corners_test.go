package bolt_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"thread/engine"
	"thread/event"
	"thread/index"
	"thread/internal/faults"
	"thread/internal/store"
	"thread/internal/store/bolt"
	"thread/internal/store/bolt/disk"
	"thread/lock"
)

// newestGroup changes the newest group of events, and gives it its checksum again.
func newestGroup(change func(value []byte) []byte) func(b *bbolt.Tx) error {
	return func(b *bbolt.Tx) error {
		events := b.Bucket(disk.BucketEvents)
		k, v := events.Cursor().Last()
		k = bytes.Clone(k)
		return events.Put(k, index.AppendSum(change(bytes.Clone(v[:len(v)-disk.SumBytes])), k))
	}
}

// TestDamagedRecordsOfAThread: what a record says that no program writes is damage for each
// call that meets it, and for no other.
func TestDamagedRecordsOfAThread(t *testing.T) {
	sound := filepath.Join(faults.Dir(t), "t")
	everything(t, sound)
	ask := questions()
	push := func(th *engine.Thread) error { _, err := th.Push(ctx, draft("new")); return err }
	compact := func(th *engine.Thread) error { _, err := th.Compact(ctx); return err }
	prune := func(th *engine.Thread) error {
		keep := int64(1400)
		_, err := th.Prune(ctx, engine.Retention{KeepLast: &keep})
		return err
	}
	of := func(name string) func(th *engine.Thread) error {
		return func(th *engine.Thread) error { _, err := ask[name](th); return err }
	}
	for name, tt := range map[string]struct {
		damage func(b *bbolt.Tx) error
		met    map[string]func(th *engine.Thread) error
		want   error
	}{
		"the newest group of another form":    {newestGroup(func(v []byte) []byte { v[0] = 9; return v }), map[string]func(*engine.Thread) error{"push": push, "events": of("events")}, store.ErrCorrupt},
		"the newest group without a checksum": {func(b *bbolt.Tx) error { return b.Bucket(disk.BucketEvents).Put(disk.EventKey(1503), []byte("x")) }, map[string]func(*engine.Thread) error{"push": push, "events": of("events")}, store.ErrCorrupt},
		"a first of a pair of 4 GiB": {newestGroup(func(v []byte) []byte {
			rest := v[1:]
			if v[0] == disk.GroupSecond {
				_, w := binary.Uvarint(rest)
				rest = rest[w:]
			}
			return append(binary.AppendUvarint([]byte{disk.GroupSecond}, 1<<32), rest...)
		}), map[string]func(*engine.Thread) error{"push": push}, store.ErrCorrupt},
		"an event that is cut": {newestGroup(func(v []byte) []byte { return v[:len(v)-3] }), map[string]func(*engine.Thread) error{"push": push, "events": of("events"), "compact": compact}, store.ErrCorrupt},
		"ids that do not rise": {func(b *bbolt.Tx) error { // as in a group before the newest
			events := b.Bucket(disk.BucketEvents)
			c := events.Cursor()
			k, _ := c.Last()
			_, v := c.Prev()
			k, v = bytes.Clone(k), bytes.Clone(v[:len(v)-disk.SumBytes])
			key := disk.EventKey(int64(binary.BigEndian.Uint64(k)) - 1)
			if v[0] == disk.GroupSecond {
				_, w := binary.Uvarint(v[1:])
				v = append([]byte{disk.GroupFirst}, v[1+w:]...)
			}
			return events.Put(key, index.AppendSum(v, key))
		}, map[string]func(*engine.Thread) error{"events": of("events")}, store.ErrCorrupt},
		"a series of three bytes": {func(b *bbolt.Tx) error {
			series := b.Bucket(disk.BucketSeries)
			k, _ := series.Cursor().First()
			return series.Put(bytes.Clone(k), []byte("abc"))
		}, map[string]func(*engine.Thread) error{"compact": compact}, store.ErrCorrupt},
		"progress without a name": {func(b *bbolt.Tx) error {
			return b.Bucket(disk.BucketProgress).Put([]byte("c"), []byte("x"))
		}, map[string]func(*engine.Thread) error{"snapshot": of("snapshot")}, store.ErrCorrupt},
		"a column that is missing": {func(b *bbolt.Tx) error {
			columns := b.Bucket(disk.BucketColumns)
			k, _ := columns.Cursor().First()
			return columns.Delete(bytes.Clone(k))
		}, map[string]func(*engine.Thread) error{"push": nil, "prune": prune}, store.ErrCorrupt},
		"a column that is not one": {func(b *bbolt.Tx) error {
			columns := b.Bucket(disk.BucketColumns)
			k, _ := columns.Cursor().First()
			return columns.Put(bytes.Clone(k), []byte("x"))
		}, map[string]func(*engine.Thread) error{"prune": prune}, store.ErrCorrupt},
		"no bucket of events": {func(b *bbolt.Tx) error { return b.DeleteBucket(disk.BucketEvents) },
			map[string]func(*engine.Thread) error{"push": push, "events": of("events")}, store.ErrNotDatabase},
		"a table with a bucket, of an older version": {func(b *bbolt.Tx) error {
			_, err := b.Bucket([]byte("mine")).CreateBucket([]byte("in it"))
			return err
		}, map[string]func(*engine.Thread) error{"records": of("records")}, nil},
	} {
		dir := filepath.Join(faults.Dir(t), "t")
		must(t, os.CopyFS(dir, os.DirFS(sound)))
		th, err := engine.Open(dir)
		must(t, err)
		must(t, bolt.UpdateRaw(ctx, dirOf(th), tt.damage))
		for call, do := range tt.met {
			if do == nil {
				continue
			}
			if err := do(th); !errors.Is(err, tt.want) || tt.want == nil && err != nil {
				t.Errorf("%s: %s returns %v", name, call, err)
			}
		}
		must(t, th.Close())
	}
}

// TestLinesOffAndOn: while lines are off no push writes one, and the first one after them
// writes its own; nothing is lost of the files before.
func TestLinesOffAndOn(t *testing.T) {
	th := initThread(t)
	s, err := openStore(th.Dir(), bolt.Options{MaxGroup: 4})
	must(t, err)
	defer s.Close()
	other, err := openStore(th.Dir(), bolt.Options{LockTimeout: time.Millisecond})
	must(t, err)
	defer other.Close()
	lines := func() (n int) {
		names, err := filepath.Glob(filepath.Join(th.Dir(), "events*.jsonl"))
		must(t, err)
		for _, name := range names {
			text, err := os.ReadFile(name)
			must(t, err)
			n += bytes.Count(text, []byte("\n"))
		}
		return n
	}
	pushes := func() {
		t.Helper()
		_, err := th.PushBatch(ctx, []event.Draft{draft("one"), draft(large), draft("two"), draft(large)})
		must(t, err)
		_, err = s.PushAll(ctx, drafts(17, ""))
		must(t, err)
	}
	pushes()
	if n := lines(); n != 21 {
		t.Errorf("%d lines", n)
	}
	must(t, s.SetLines(ctx, false))
	pushes()
	if n := lines(); n != 21 {
		t.Errorf("%d lines while they are off", n)
	}
	must(t, os.WriteFile(filepath.Join(th.Dir(), "events.jsonl"), nil, 0o600)) // of an older program
	must(t, s.SetLines(ctx, true))
	pushes()
	if n := lines(); n != 42 {
		t.Errorf("%d lines when they are on again", n)
	}
	// What another handle turns on meanwhile is not put aside.
	for at := int64(1); at < 12; at++ {
		must(t, s.SetLines(ctx, true))
		c := &hooked{Context: ctx, at: at, hook: func() { _ = other.SetLines(ctx, true) }}
		must(t, s.SetLines(c, false))
		_, err := th.Push(ctx, draft("after it"))
		must(t, err)
	}
	if got, err := held(th); err != nil || !strings.HasSuffix(got, "[]") {
		t.Errorf("%s, %v", got, err)
	}
}

// hooked is a context that calls a function at a look.
type hooked struct {
	context.Context
	n, at int64
	hook  func()
}

func (c *hooked) Err() error {
	if c.n++; c.n == c.at {
		c.hook()
	}
	return c.Context.Err()
}

// TestKept: what a store keeps open is closed with it, also what a call has then; and a
// database that was damaged meanwhile is not read.
func TestKept(t *testing.T) {
	dir := filepath.Join(faults.Dir(t), "t")
	fiveEvents(t, dir)
	s, err := openStore(dir, bolt.Options{KeepOpen: true})
	must(t, err)
	must(t, s.View(ctx, func(store.Tx) error { return s.Close() }))
	if open := faults.Open(t, dir); open != nil {
		t.Errorf("open are %q", open)
	}
	s, err = openStore(dir, bolt.Options{KeepOpen: true})
	must(t, err)
	defer s.Close()
	must(t, s.View(ctx, func(store.Tx) error { return nil }))
	f, err := os.OpenFile(filepath.Join(dir, bolt.DatabaseName), os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	for page := range int64(2) {
		var b [1]byte
		_, err := f.ReadAt(b[:], page*disk.PageBytes+40)
		must(t, err)
		b[0] ^= 1
		_, err = f.WriteAt(b[:], page*disk.PageBytes+40)
		must(t, err)
		if err := s.View(ctx, func(store.Tx) error { return nil }); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("page %d: %v", page, err)
		}
	}
}

// TestInTheWay: files and locks of others in a thread directory.
func TestInTheWay(t *testing.T) {
	dir := filepath.Join(faults.Dir(t), "t")
	must(t, os.MkdirAll(filepath.Join(dir, store.RunName), 0o700))
	held, err := lock.Try(filepath.Join(dir, store.RunName, ".init"), lock.Exclusive)
	must(t, err)
	_, err = bolt.Init(dir, bolt.Options{LockTimeout: 20 * time.Millisecond})
	_, rerr := bolt.StartRestore(dir, false)
	for _, err := range []error{err, rerr} {
		if !errors.Is(err, store.ErrBusy) {
			t.Error(err)
		}
	}
	must(t, held.Close())
	must(t, os.RemoveAll(filepath.Join(dir, store.RunName)))
	must(t, os.WriteFile(filepath.Join(dir, store.RunName), nil, 0o600))
	if _, err := bolt.StartRestore(dir, true); err == nil {
		t.Error("run is a file")
	}
	must(t, os.Remove(filepath.Join(dir, store.RunName)))
	r, err := bolt.StartRestore(dir, false)
	must(t, err)
	defer r.Close()
	if err := r.Subscription(store.Subscription{Consumer: "c"}, 1, []byte("not options")); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("options: %v", err)
	}
	for _, bucket := range []string{"", string(store.Events), string(store.Checked), string(store.Pieces)} {
		if err := r.Extra(store.Extra{Bucket: []string{bucket}, Key: []byte("k")}); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("bucket %q: %v", bucket, err)
		}
	}
	must(t, r.Close())
	fiveEvents(t, dir)
	s, err := openStore(dir, bolt.Options{MaxGroup: 4})
	must(t, err)
	defer s.Close()
	must(t, os.RemoveAll(filepath.Join(dir, store.RunName)))
	if b, err := s.PushAll(ctx, drafts(17, "")); err != nil || b.Count != 17 {
		t.Errorf("without run/: %+v, %v", b, err)
	}
	ds := slices.Collect(func(yield func(event.Draft) bool) {
		for range 9 {
			if !yield(draft("new")) {
				return
			}
		}
	})
	ds[5].Source = ""
	if _, err := s.Push(ctx, ds); !errors.Is(err, event.ErrInvalid) && !errors.Is(err, store.ErrInvalid) {
		t.Errorf("an invalid draft in a long push: %v", err)
	}
	must(t, s.View(ctx, func(tx store.Tx) error {
		path := filepath.Join(dir, bolt.DatabaseName)
		defer os.Rename(path+".moved", path)
		if err := os.Rename(path, path+".moved"); err != nil {
			return err
		}
		if n := tx.Unused(); n != 0 {
			return fmt.Errorf("%d bytes are unused in a database without a name", n)
		}
		return nil
	}))
	if n := len(contents(t, dir)); n != 22 {
		t.Errorf("%d events", n)
	}
	must(t, s.Close())
	for name, err := range map[string]error{"fold": bolt.Fold(ctx, s), "cut batch": bolt.CutBatch(ctx, s, ds), "raw": second(bolt.OpenRaw(ctx, s))} {
		if err == nil {
			t.Errorf("%s of a closed store", name)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestJournalWithoutADatabase: what the journal alone tells where it cannot be read.
func TestJournalWithoutADatabase(t *testing.T) {
	s, err := bolt.New(filepath.Join(t.TempDir(), "gone"), bolt.Options{})
	must(t, err)
	var j bolt.Journal
	if all := j.Alone(s); all != nil {
		t.Errorf("%v of no journal", all)
	}
	if all := j.Sound(nil); all != nil {
		t.Errorf("%v of no journal", all)
	}
	if all, err := j.Read(s, []byte("not a record"), nil); all != nil || !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("%v, %v", all, err)
	}
	if all, err := j.Read(s, disk.Base{Epoch: 1, Used: true}.Encode(), nil); all != nil || !errors.Is(err, store.ErrNotThread) {
		t.Errorf("%v, %v", all, err)
	}
}
