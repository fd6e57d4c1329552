package engine

import (
	"context"
	"errors"
	"iter"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"thread/event"
	"thread/internal/store"
	"thread/internal/store/bolt"
)

// call is a use of an exported function that takes a context.
type call struct {
	name string
	do   func(ctx context.Context, th *Thread) error
	// asks is how often, at least, the context is looked at next to 5,000 events: 0
	// for what is short.
	asks int
}

const manyEvents = 5000

func last[T any](s iter.Seq2[T, error]) (err error) {
	for _, err = range s {
	}
	return err
}

func calls(t *testing.T) []call {
	d := event.Draft{Source: "a", Type: "t", Content: "x"}
	two := func(yield func(event.Draft, error) bool) {
		for range 2 {
			if !yield(d, nil) {
				return
			}
		}
	}
	return []call{
		{"Ack", func(ctx context.Context, th *Thread) error { return th.Ack(ctx, "c", 1) }, 0},
		{"AddSchedule", func(ctx context.Context, th *Thread) error {
			_, err := th.AddSchedule(ctx, Schedule{Name: "n", Spec: "@daily", Draft: d})
			return err
		}, 0},
		{"Backlog", func(ctx context.Context, th *Thread) error { _, _, err := th.Backlog(ctx, "c"); return err }, 4},
		{"Backlogs", func(ctx context.Context, th *Thread) error { return th.Backlogs(ctx, []string{"c", "c"})[1].Err }, 4},
		{"Before", func(ctx context.Context, th *Thread) error { _, err := th.Before(ctx, time.Now()); return err }, 0},
		{"Cancel", func(ctx context.Context, th *Thread) error {
			if err := th.Cancel(ctx, 7); !errors.Is(err, ErrNoDelayed) { // which it returns last
				return err
			}
			return nil
		}, 0},
		{"Counts", func(ctx context.Context, th *Thread) error { _, err := th.Counts(ctx, Query{}); return err }, 4},
		{"EachCount", func(ctx context.Context, th *Thread) error {
			return th.EachCount(ctx, Query{}, func(*Series, int64) {})
		}, 4},
		{"DelayFor", func(ctx context.Context, th *Thread) error { _, _, err := th.DelayFor(ctx, d, time.Hour); return err }, 0},
		{"DelayUntil", func(ctx context.Context, th *Thread) error {
			_, _, err := th.DelayUntil(ctx, d, time.Now().Add(time.Hour))
			return err
		}, 0},
		{"Check", func(ctx context.Context, th *Thread) error { _, err := Check(ctx, th); return err }, 8},
		{"FixLog", func(ctx context.Context, th *Thread) error { _, err := FixLog(ctx, th); return err }, 8},
		{"Compact", func(ctx context.Context, th *Thread) error { _, err := th.Compact(ctx); return err }, 50},
		{"DeadLetters", func(ctx context.Context, th *Thread) error { return last(th.DeadLetters(ctx, DeadLetterQuery{})) }, 0},
		{"Delayed", func(ctx context.Context, th *Thread) error { _, err := th.Delayed(ctx, 0); return err }, 0},
		{"Digest", func(ctx context.Context, th *Thread) error { _, err := th.Digest(ctx); return err }, 4},
		{"DropDead", func(ctx context.Context, th *Thread) error { _, err := th.DropDead(ctx, nil); return err }, 0},
		{"Due", func(ctx context.Context, th *Thread) error { _, err := th.Due(ctx); return err }, 4},
		{"DueFor", func(ctx context.Context, th *Thread) error { _, err := th.DueFor(ctx, "none", 0); return err }, 4},
		{"Events", func(ctx context.Context, th *Thread) error { return last(th.Events(ctx, Query{})) }, 4},
		{"Explain", func(ctx context.Context, th *Thread) error { _, err := th.Explain(ctx, Query{}); return err }, 4},
		{"EventState", func(ctx context.Context, th *Thread) error { _, err := th.EventState(ctx, "c", 1); return err }, 0},
		{"ParallelFeed.Step", func(ctx context.Context, th *Thread) error {
			f, err := th.ParallelFeed("c", ParallelPolicy{})
			if err == nil {
				defer f.Close()
				_, err = f.Step(ctx, Step{Begin: 1})
			}
			return err
		}, 0},
		{"Feed.Next", func(ctx context.Context, th *Thread) error {
			f := th.Feed("none", Policy{})
			defer f.Close()
			_, err := f.Next(ctx, nil)
			return err
		}, 4},
		{"Feed.Settle", func(ctx context.Context, th *Thread) error {
			f := th.Feed("c", Policy{})
			defer f.Close()
			_, err := f.Settle(ctx, Result{})
			return err
		}, 0},
		{"Follow", func(ctx context.Context, th *Thread) error { return last(th.Follow(ctx, 0, "type = 't'")) }, 0}, // it does not end by itself
		{"Info", func(ctx context.Context, th *Thread) error { _, err := th.Info(ctx); return err }, 0},
		{"AckDelivery", func(ctx context.Context, th *Thread) error { return th.AckDelivery(ctx, "c", 1) }, 0},
		{"SettleDelivery", func(ctx context.Context, th *Thread) error {
			_, err := th.SettleDelivery(ctx, "c", 1, Result{})
			return err
		}, 0},
		{"ExtendDelivery", func(ctx context.Context, th *Thread) error {
			_, err := th.ExtendDelivery(ctx, "c", 1, time.Second)
			return err
		}, 0},
		{"Next", func(ctx context.Context, th *Thread) error { _, err := th.Next(ctx, "c", NextOptions{}); return err }, 0},
		{"Limits", func(ctx context.Context, th *Thread) error { _, err := th.Limits(ctx); return err }, 0},
		{"SetLimits", func(ctx context.Context, th *Thread) error { return th.SetLimits(ctx, Limits{MaxEvents: 10}) }, 0},
		{"SetLines", func(ctx context.Context, th *Thread) error { return th.SetLines(ctx, false) }, 0},
		{"Retain", func(ctx context.Context, th *Thread) error { _, err := th.Retain(ctx); return err }, 0},
		{"RetainDue", func(ctx context.Context, th *Thread) error { _, err := th.RetainDue(ctx); return err }, 0},
		{"NextScheduled", func(ctx context.Context, th *Thread) error { _, err := th.NextScheduled(ctx); return err }, 0},
		{"Pause", func(ctx context.Context, th *Thread) error { return th.Pause(ctx, "c") }, 0},
		{"Peek", func(ctx context.Context, th *Thread) error { _, err := th.Peek(ctx, Query{}); return err }, 4},
		{"Peek newest first", func(ctx context.Context, th *Thread) error {
			_, err := th.Peek(ctx, Query{Reverse: true, Filter: "content > ''"})
			return err
		}, 4},
		{"Pop", func(ctx context.Context, th *Thread) error {
			p, err := th.Pop(ctx, "c", PopQuery{})
			if err == nil {
				err = last(p.Events)
			}
			return err
		}, 4},
		{"Prune", func(ctx context.Context, th *Thread) error {
			_, err := th.Prune(ctx, Retention{OlderThan: time.Now().AddDate(0, 0, -2)})
			return err
		}, 0},
		{"Prune, dry", func(ctx context.Context, th *Thread) error {
			_, err := th.Prune(ctx, Retention{OlderThan: time.Now().Add(-time.Hour), Force: true, DryRun: true})
			return err
		}, 50},
		{"Push", func(ctx context.Context, th *Thread) error { _, err := th.Push(ctx, d); return err }, 0},
		{"PushAll", func(ctx context.Context, th *Thread) error { _, err := th.PushAll(ctx, two); return err }, 2},
		{"PushAfter", func(ctx context.Context, th *Thread) error { _, _, err := th.PushAfter(ctx, d, time.Hour); return err }, 0},
		{"PushAt", func(ctx context.Context, th *Thread) error {
			_, err := th.PushAt(ctx, d, time.Now().Add(time.Hour))
			return err
		}, 0},
		{"PushBatch", func(ctx context.Context, th *Thread) error {
			_, err := th.PushBatch(ctx, []event.Draft{d, d})
			return err
		}, 0},
		{"PushBatch of none", func(ctx context.Context, th *Thread) error { _, err := th.PushBatch(ctx, nil); return err }, 0},
		{"RemoveSchedule", func(ctx context.Context, th *Thread) error { return th.RemoveSchedule(ctx, "old") }, 0},
		{"Repair", func(ctx context.Context, th *Thread) error {
			_, err := Repair(ctx, th.Dir(), filepath.Join(t.TempDir(), "new"))
			return err
		}, 0},
		{"Resume", func(ctx context.Context, th *Thread) error { return th.Resume(ctx, "c") }, 0},
		{"RetryDead", func(ctx context.Context, th *Thread) error { _, err := th.RetryDead(ctx, nil); return err }, 0},
		{"Schedules", func(ctx context.Context, th *Thread) error { _, err := th.Schedules(ctx); return err }, 0},
		{"Seek", func(ctx context.Context, th *Thread) error { return th.Seek(ctx, "c", 1) }, 0},
		{"Snapshot", func(ctx context.Context, th *Thread) error { _, err := store.TakeSnapshot(ctx, dirOf(th)); return err }, 0},
		{"Subscribe", func(ctx context.Context, th *Thread) error {
			return th.Subscribe(ctx, Subscription{Consumer: "new", Handler: "true"})
		}, 0},
		{"Unsubscribe", func(ctx context.Context, th *Thread) error { return th.Unsubscribe(ctx, "none") }, 0},
		{"Update", func(ctx context.Context, th *Thread) error { return th.Update(ctx, func(*Tx) error { return nil }) }, 0},
		{"View", func(ctx context.Context, th *Thread) error { return th.View(ctx, func(*Tx) error { return nil }) }, 0},
	}
}

// manyThread is a thread with 5,000 events, a consumer for all of them, and one
// for none.
func manyThread(t *testing.T) *Thread {
	th, err := Init(filepath.Join(t.TempDir(), "inbox"))
	if err != nil {
		t.Fatal(err)
	}
	th.now = func() time.Time { return time.Now().AddDate(0, 0, -1) }
	ds := make([]event.Draft, manyEvents)
	for i := range ds {
		ds[i] = event.Draft{Source: "a", Type: "t", Content: "x"}
	}
	_, err = th.PushBatch(ctx, ds)
	none := "content = 'none'"
	err = errors.Join(err,
		th.Subscribe(ctx, Subscription{Consumer: "c", Handler: "true"}),
		th.Subscribe(ctx, Subscription{Consumer: "none", Handler: "true", Filter: &none}))
	if releases {
		_, serr := th.AddSchedule(ctx, Schedule{Name: "old", Spec: "@yearly", Draft: ds[0]})
		err = errors.Join(err, serr)
	}
	if err != nil {
		t.Fatal(err)
	}
	th.now = time.Now
	return th
}

// TestCanceled: every exported function that takes a context returns the cause of
// its end, and has changed nothing, when it is called with one that has ended.
func TestCanceled(t *testing.T) {
	th := manyThread(t)
	cause := errors.New("no longer needed")
	over, cancel := context.WithCancelCause(ctx)
	cancel(cause)
	before := everything(t, th)
	var covered []string
	for _, c := range calls(t) {
		covered = append(covered, c.name)
		if c.name == "NextScheduled" && !releases {
			continue // it never looks
		}
		if err := c.do(over, th); !errors.Is(err, cause) {
			t.Errorf("%s: %v", c.name, err)
		}
		if after := everything(t, th); !reflect.DeepEqual(before, after) {
			t.Errorf("%s has changed the thread", c.name)
			before = after
		}
	}
	for _, of := range []struct {
		prefix string
		t      reflect.Type
	}{{"", reflect.TypeFor[*Thread]()}, {"Feed.", reflect.TypeFor[*Feed]()}, {"ParallelFeed.", reflect.TypeFor[*ParallelFeed]()}} {
		for i := range of.t.NumMethod() {
			m := of.t.Method(i)
			if m.Type.NumIn() > 1 && m.Type.In(1) == reflect.TypeFor[context.Context]() && !slices.Contains(covered, of.prefix+m.Name) {
				t.Errorf("%s%s is not tried", of.prefix, m.Name)
			}
		}
	}
}

// everything is what a thread holds.
func everything(t *testing.T, th *Thread) any {
	t.Helper()
	s, err := store.TakeSnapshot(ctx, dirOf(th))
	if err != nil {
		t.Fatal(err)
	}
	sum, err := th.Digest(ctx)
	if err != nil {
		t.Fatal(err)
	}
	list, err := th.Schedules(ctx)
	if err != nil {
		t.Fatal(err)
	}
	delayed, err := th.Delayed(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	return []any{s, sum, list, delayed}
}

// forgetChecked makes looks for work read again what they have read before.
func forgetChecked(tx *Tx) error {
	if bolt.Raw(tx.s).Bucket(bucketChecked) == nil {
		return nil
	}
	return bolt.Raw(tx.s).DeleteBucket(bucketChecked)
}

// counting ends when it has been asked for its error that many times.
type counting struct {
	context.Context
	mu    sync.Mutex
	asked int
	limit int
	end   func()
}

func (c *counting) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked++; c.asked == c.limit {
		c.end()
	}
	return c.Context.Err()
}

// TestCanceledMeanwhile: what is long looks at its context again and again, and
// returns its end when it comes at one of these looks.
func TestCanceledMeanwhile(t *testing.T) {
	old := bolt.SliceTime
	bolt.SliceTime = 0
	defer func() { bolt.SliceTime = old }()
	th := manyThread(t)
	for _, c := range calls(t) {
		try := func(limit int) (asked int, err error) {
			if err := th.Update(ctx, forgetChecked); err != nil {
				t.Fatal(err)
			}
			over, cancel := context.WithCancel(ctx)
			defer cancel()
			counts := &counting{Context: over, limit: limit, end: cancel}
			err = c.do(counts, th)
			counts.mu.Lock()
			defer counts.mu.Unlock()
			return counts.asked, err
		}
		if c.asks == 0 {
			continue
		}
		all, err := try(-1)
		if err != nil || all < c.asks {
			t.Errorf("%s: %d looks, %v", c.name, all, err)
		}
		for _, limit := range []int{1, max(1, all/4), max(1, all/2)} {
			if _, err := try(limit); !errors.Is(err, context.Canceled) {
				t.Errorf("%s, ended at look %d of %d: %v", c.name, limit, all, err)
			}
		}
	}
}
