package bolt_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/faults"
	"thread/internal/store"
	"thread/internal/store/bolt"
	"thread/lock"
)

// withSliceTime sets how long a slice is until the test ends.
func withSliceTime(t *testing.T, d time.Duration) {
	was := bolt.SliceTime
	t.Cleanup(func() { bolt.SliceTime = was })
	bolt.SliceTime = d
}

// TestSlicesOfOneEntry: a prune each of whose slices ends after one entry keeps all that is to
// stay, with the events that are pushed meanwhile for series whose other events are dropped.
func TestSlicesOfOneEntry(t *testing.T) {
	withSliceTime(t, 0)
	dir := filepath.Join(faults.Dir(t), "t")
	th, err := engine.Init(dir)
	must(t, err)
	defer th.Close()
	for i := range 20 {
		_, err := th.Push(ctx, event.Draft{Source: fmt.Sprint("source ", i), Type: "t", Content: fmt.Sprint(i)})
		must(t, err)
	}
	must(t, atSync(func(n int) error {
		if n > 1 {
			return nil
		}
		other, err := engine.Open(dir)
		if err != nil {
			return err
		}
		defer other.Close()
		for i := range 5 {
			if _, err := other.Push(ctx, event.Draft{Source: fmt.Sprint("source ", i), Type: "t", Content: "late"}); err != nil {
				return err
			}
		}
		_, err = other.PushAll(ctx, drafts(300, "")) // or the rest is copied in one step
		return err
	}, func() error { return keepLast(3)(th) }))
	es, err := th.Peek(ctx, engine.Query{Limit: 8})
	must(t, err)
	var got []string
	for i := range es {
		got = append(got, fmt.Sprint(es[i].ID, " ", es[i].Source, " ", es[i].Content))
	}
	want := "18 source 17 17, 19 source 18 18, 20 source 19 19, 21 source 0 late, 22 source 1 late, 23 source 2 late, 24 source 3 late, 25 source 4 late"
	if strings.Join(got, ", ") != want {
		t.Errorf("%q, want %s", got, want)
	}
	if info, err := th.Info(ctx); err != nil || info.Stored != 308 {
		t.Errorf("%d events, %v", info.Stored, err)
	}
	sound(t, th)
}

// TestCopyYieldsToWriter: a copy looks for a waiting writer also after an entry that took
// longer than the time between two looks, and ends its slice then.
func TestCopyYieldsToWriter(t *testing.T) {
	withSliceTime(t, time.Hour)
	dir := filepath.Join(faults.Dir(t), "t")
	th, err := engine.Init(dir)
	must(t, err)
	_, err = th.PushAll(ctx, drafts(6000, ""))
	must(t, errors.Join(err, th.Close()))
	s, err := openStore(dir, bolt.Options{LockTimeout: 20 * time.Millisecond})
	must(t, err)
	defer s.Close()
	var writer *lock.File
	looks := 0
	during(func() { _, err = s.Compact(ctx) }, func(at place) error {
		if !strings.Contains(at.String(), "(*copying).events") {
			return nil
		}
		if looks++; writer != nil {
			return nil
		}
		var err error
		writer, err = lock.Try(filepath.Join(dir, store.RunName, ".gate"), lock.Exclusive)
		past := time.Now()
		eventually(t, "a long entry", func() bool { return time.Since(past) > 10*bolt.WriterCheckTime })
		return err
	})
	must(t, writer.Close())
	if !errors.Is(err, store.ErrBusy) { // the next slice had to wait for the writer
		t.Error(err)
	}
	if looks > 30 {
		t.Errorf("it went on for %d pages, and a writer waited", looks)
	}
	untilGateClosed(t, s)
	if _, err := s.Compact(ctx); err != nil || leftovers(t, dir) != nil {
		t.Errorf("%v, left are %q", err, leftovers(t, dir))
	}
}

// TestCopyEndsBesideFastWriters: a copy ends although writers push more in each of its rounds
// than goes into the last step. It has all that was pushed.
func TestCopyEndsBesideFastWriters(t *testing.T) {
	th, compact := compacted(t)
	other, err := engine.Open(th.Dir(), engine.WithLockWait(20*time.Millisecond))
	must(t, err)
	defer other.Close()
	syncs, pushed := 0, 0
	must(t, atSync(func(n int) error {
		if syncs = n; n > 50 {
			return errors.New("a copy without end")
		}
		_, err := other.PushAll(ctx, drafts(300, ""))
		if errors.Is(err, engine.ErrBusy) { // the last step has the lock
			return nil
		}
		pushed += 300
		return err
	}, compact))
	if syncs < 8 {
		t.Errorf("%d syncs", syncs)
	}
	intact(t, th, pushed)
}

// TestCopyIsCalledOffAtItsEnd: also the last step of a copy, in which others wait, ends when
// its context does.
func TestCopyIsCalledOffAtItsEnd(t *testing.T) {
	th, _ := compacted(t)
	other, err := engine.Open(th.Dir())
	must(t, err)
	defer other.Close()
	before := contents(t, th.Dir())
	called, cancel := context.WithCancelCause(ctx)
	inLast := false
	must(t, atSync(func(n int) error {
		if n > 1 {
			return nil
		}
		_, err := other.PushAll(ctx, drafts(200, "")) // what goes into the last step
		return err
	}, func() error {
		during(func() { _, err = th.Compact(called) }, func(at place) error {
			if s := at.String(); strings.Contains(s, "(*copying).finish") && strings.Contains(s, "(*copying).event") {
				inLast = true
				cancel(errMine)
			}
			return nil
		})
		return nil
	}))
	if !inLast || !errors.Is(err, errMine) {
		t.Errorf("called off: %v; %v", inLast, err)
	}
	if list := contents(t, th.Dir()); len(list) != len(before)+200 || leftovers(t, th.Dir()) != nil {
		t.Errorf("%d events, left are %q", len(list), leftovers(t, th.Dir()))
	}
	sound(t, th)
}

// TestRecordsChangeMeanwhile: of records that are removed, added and changed while a database is
// copied, the copy has what there is at its end, also where many have one value.
func TestRecordsChangeMeanwhile(t *testing.T) {
	th, compact := compacted(t)
	other, err := engine.Open(th.Dir())
	must(t, err)
	defer other.Close()
	want := map[string]string{}
	change := func(th *engine.Thread, put, removed func(i int) bool, value string) error {
		return th.Update(ctx, func(tx *engine.Tx) error {
			r, err := tx.Records("more")
			for i := range 60 {
				key := fmt.Sprintf("key %02d", i)
				switch {
				case err != nil:
				case put(i):
					want[key] = value
					err = r.Put([]byte(key), []byte(value))
				case removed(i):
					delete(want, key)
					err = r.Delete([]byte(key))
				}
			}
			return err
		})
	}
	must(t, change(th, func(i int) bool { return i%2 == 0 }, func(int) bool { return false }, "same"))
	must(t, atSync(func(n int) error {
		if n > 1 {
			return nil
		}
		err := change(other, func(i int) bool { return i%7 == 1 }, func(i int) bool { return i%3 == 0 }, "same")
		return errors.Join(err, change(other, func(i int) bool { return i%11 == 2 }, func(int) bool { return false }, "other"))
	}, compact))
	got := map[string]string{}
	must(t, th.View(ctx, func(tx *engine.Tx) error {
		r, err := tx.Records("more")
		for i := range 60 {
			key := fmt.Sprintf("key %02d", i)
			if v := r.Get([]byte(key)); v != nil {
				got[key] = string(v)
			}
		}
		return err
	}))
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	sound(t, th)
}
