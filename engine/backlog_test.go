package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"thread/event"
	"thread/internal/store"
	"thread/internal/store/bolt"
)

// views counts the read transactions of a store.
type views struct {
	store.Store
	n int
}

func (v *views) View(ctx context.Context, fn func(tx store.Tx) error) error {
	v.n++
	return v.Store.View(ctx, fn)
}

func emptyThread(t *testing.T) *Thread {
	t.Helper()
	th, err := Init(filepath.Join(t.TempDir(), "inbox"))
	if err != nil {
		t.Fatal(err)
	}
	return th
}

func openAgain(t *testing.T, th *Thread) *Thread {
	t.Helper()
	again, err := Open(th.Dir())
	if err != nil {
		t.Fatal(err)
	}
	return again
}

// TestBacklogsTransactions: many consumers are counted in a few transactions.
func TestBacklogsTransactions(t *testing.T) {
	old := bolt.SliceTime
	bolt.SliceTime = 1 << 40 // no slice ends for its time
	defer func() { bolt.SliceTime = old }()
	th := emptyThread(t)
	var names []string
	for i := range 100 {
		where := fmt.Sprintf("content = '%d'", i%4)
		names = append(names, fmt.Sprint(i))
		if err := th.Subscribe(ctx, Subscription{Consumer: names[i], Handler: "true", Filter: &where}); err != nil {
			t.Fatal(err)
		}
		if _, err := th.Push(ctx, event.Draft{Source: "s", Type: "t", Content: fmt.Sprint(i % 5)}); err != nil {
			t.Fatal(err)
		}
	}
	v := &views{Store: th.s}
	th.s = v
	for i, b := range th.Backlogs(ctx, append(names, "unknown")) {
		if i == 100 {
			if !errors.Is(b.Err, ErrNoSubscription) {
				t.Error(b)
			}
		} else if first, _, err := event0(th, int64(i%4+1)); b.Err != nil || b.Count != 20 || err != nil || b.Oldest != first || b.At.IsZero() {
			t.Errorf("%d: %+v, want 20 from %s, %v", i, b, first, err)
		}
	}
	if v.n -= 100; v.n > 3 { // the ids of event0
		t.Errorf("%d transactions", v.n)
	}
	v.n = 0
	if info, err := th.Info(ctx); err != nil || len(info.Subscriptions) != 100 || v.n > 2 { // one for the limits
		t.Errorf("%d consumers in %d transactions: %v", len(info.Subscriptions), v.n, err)
	}
}

// event0 returns created_at of an event.
func event0(th *Thread, id int64) (at string, ok bool, err error) {
	err = th.View(ctx, func(tx *Tx) error {
		e, stored, err := tx.s.Event(id)
		at, ok = e.CreatedAt, stored
		return err
	})
	return at, ok, err
}

// TestBacklogsDear: a count that does not end in time leaves out no other one,
// wherever it stands, and what was counted before stays known.
func TestBacklogsDear(t *testing.T) {
	old := bolt.SliceTime
	bolt.SliceTime = 0
	defer func() { bolt.SliceTime = old }()
	th := emptyThread(t)
	push := func(n int) {
		t.Helper()
		ds := make([]event.Draft, n)
		for i := range ds {
			ds[i] = event.Draft{Source: "s", Type: "t", Content: "x"}
		}
		if _, err := th.PushBatch(ctx, ds); err != nil {
			t.Fatal(err)
		}
	}
	dear, cheap, all := "dear", "cheap", "all"
	content, series := "content = 'x'", "source = 's'"
	push(manyEvents)
	for _, s := range []Subscription{{Consumer: dear, Filter: &content}, {Consumer: cheap, Filter: &content}, {Consumer: all}, {Consumer: "series", Filter: &series}} {
		s.Handler = "true"
		if err := th.Subscribe(ctx, s); err != nil {
			t.Fatal(err)
		}
	}
	if err := th.Ack(ctx, cheap, manyEvents-100); err != nil {
		t.Fatal(err)
	}
	names := []string{dear, cheap, all, "series"}
	want := []int64{manyEvents, 100, manyEvents, manyEvents}
	looks := &counting{Context: ctx, limit: -1}
	for i, b := range th.Backlogs(looks, names) {
		if b.Err != nil || b.Count != want[i] {
			t.Fatalf("%s: %+v", names[i], b)
		}
	}
	push(1)
	cut := func(th *Thread, limit int) []Backlog {
		over, cancel := context.WithCancel(ctx)
		defer cancel()
		return th.Backlogs(&counting{Context: over, limit: limit, end: cancel}, names)
	}
	again := openAgain(t, th)
	for i, b := range cut(again, looks.asked-2) {
		if i == 0 {
			if !errors.Is(b.Err, context.Canceled) || b.Count != 0 || !b.At.IsZero() {
				t.Errorf("the dear one: %+v", b)
			}
		} else if b.Err != nil || b.Count != want[i]+1 {
			t.Errorf("%s: %+v", names[i], b)
		}
	}
	// What was counted is not counted again: a few that are cut off come to the end.
	for i, th := range []*Thread{again, th} {
		tries := 0
		for ; cut(th, looks.asked/2)[0].Err != nil; tries++ {
			if tries > 10 {
				t.Fatalf("handle %d: the count never ends", i)
			}
		}
		if b := th.Backlogs(ctx, names)[0]; b.Err != nil || b.Count != want[0]+1 {
			t.Errorf("handle %d: %+v", i, b)
		}
	}
	push(3 * manyEvents)
	if b := cut(th, looks.asked)[0]; !errors.Is(b.Err, context.Canceled) || b.Count != want[0]+1 || b.At.IsZero() {
		t.Errorf("%+v, want the last count", b)
	}
}

// TestBacklogsKept: a handle that keeps parts of its counts has the counts of one that keeps
// nothing, whatever happens to the thread, its consumers and their progress.
func TestBacklogsKept(t *testing.T) {
	old, olds := partIDs, partsIDs
	partIDs, partsIDs = 3, 5
	defer func() { partIDs, partsIDs = old, olds }()
	filters := []string{"content = 'x'", "content <> 'x'", "source = 'a' AND content LIKE '%x%'", "source = 'a'"}
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "t")
		if err != nil {
			rt.Fatal(err)
		}
		th, err := Init(filepath.Join(dir, "t"))
		if err != nil {
			rt.Fatal(err)
		}
		names, head := []string{"a", "b"}, int64(0)
		do := func(err error) {
			if err != nil {
				rt.Fatal(err)
			}
		}
		for _, name := range names {
			do(th.Subscribe(ctx, Subscription{Consumer: name, Handler: "true", Filter: &filters[0]}))
		}
		rt.Repeat(map[string]func(*rapid.T){
			"push": func(rt *rapid.T) {
				for range rapid.IntRange(1, 8).Draw(rt, "events") {
					e, err := th.Push(ctx, event.Draft{Source: rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "source"), Type: "t" + rapid.SampledFrom([]string{"", "2"}).Draw(rt, "type"),
						Content: rapid.SampledFrom([]string{"x", "y", "xx"}).Draw(rt, "content")})
					do(err)
					head = e.ID
				}
			},
			"ack": func(rt *rapid.T) {
				do(th.Ack(ctx, rapid.SampledFrom(names).Draw(rt, "consumer"), rapid.Int64Range(0, head).Draw(rt, "id")))
			},
			"filter": func(rt *rapid.T) {
				do(th.Update(ctx, func(tx *Tx) error {
					return tx.Replace(rapid.SampledFrom(names).Draw(rt, "consumer"), func(s *Subscription) { s.Filter = &filters[rapid.IntRange(0, 3).Draw(rt, "filter")] })
				}))
			},
			"again": func(rt *rapid.T) {
				name := rapid.SampledFrom(names).Draw(rt, "consumer")
				do(th.Unsubscribe(ctx, name))
				do(th.Subscribe(ctx, Subscription{Consumer: name, Handler: "true", Filter: &filters[1]}))
			},
			"prune": func(rt *rapid.T) {
				keep := rapid.Int64Range(0, 20).Draw(rt, "keep")
				_, err := th.Prune(ctx, Retention{KeepLast: &keep, Force: true})
				do(err)
			},
			"count": func(rt *rapid.T) {
				kept := th.Backlogs(ctx, names)
				for i, b := range openAgain(t, th).Backlogs(ctx, names) {
					do(errors.Join(b.Err, kept[i].Err))
					if kept[i].Count != b.Count || kept[i].Oldest != b.Oldest {
						rt.Fatalf("%s: %d from %q, want %d from %q", names[i], kept[i].Count, kept[i].Oldest, b.Count, b.Oldest)
					}
				}
			},
		})
	})
}

// TestBacklogsChecked: a count begins where a look for work has ended.
func TestBacklogsChecked(t *testing.T) {
	th := manyThread(t)
	if _, err := th.Due(ctx); err != nil { // it remembers what it has read
		t.Fatal(err)
	}
	err := th.View(ctx, func(tx *Tx) error {
		l, err := tx.unread("none", new(Backlog), &seenEvents{s: tx.s})
		if err == nil && l.after != manyEvents {
			t.Errorf("begins after %d", l.after)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if n, oldest, err := th.Backlog(ctx, "none"); n != 0 || oldest != "" || err != nil {
		t.Error(n, oldest, err)
	}
}
