package engine

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"thread/event"
)

// aboveMark returns a thread with ten events of which the fourth and the seventh on are
// open: out of order, the others are settled.
func aboveMark(t *testing.T) *Thread {
	t.Helper()
	th, err := Init(filepath.Join(t.TempDir(), "t"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { th.Close() })
	if err := th.Subscribe(ctx, Subscription{Consumer: "c", Handler: "true"}); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		if _, err := th.Push(ctx, event.Draft{Source: fmt.Sprint("s", i), Type: "t"}); err != nil {
			t.Fatal(err)
		}
	}
	f, err := th.ParallelFeed("c", ParallelPolicy{Key: "source"})
	if err != nil {
		t.Fatal(err)
	}
	g, err := f.Step(ctx, Step{Begin: 10})
	if err != nil || len(g.Begin) != 10 {
		t.Fatalf("got %+v, %v", g, err)
	}
	var q Step
	for _, d := range g.Begin {
		r := Result{Verdict: Succeeded}
		if id := d.Events[0].ID; id == 4 || id >= 7 {
			r.Verdict = Returned
		}
		q.Results = append(q.Results, DeliveryResult{d.Number(), r})
	}
	if _, err := f.Step(ctx, q); err != nil {
		t.Fatal(err)
	}
	if c := consumerInfo(t, th); c.LastAcked != 3 || c.Settled != 2 || c.Ranges != 1 || c.Out != 0 {
		t.Fatalf("got %d and %+v", c.LastAcked, c.ParallelState)
	}
	return th
}

func consumerInfo(t *testing.T, th *Thread) ConsumerInfo {
	t.Helper()
	info, err := th.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return info.Subscriptions[0]
}

// left returns what a ParallelFeed gives out, and leaves nothing.
func left(t *testing.T, th *Thread) (ids []int64) {
	t.Helper()
	killFeeds(th)
	f, err := th.ParallelFeed("c", ParallelPolicy{Key: "source"})
	if err != nil {
		t.Fatal(err)
	}
	var q Step
	for {
		q.Begin = 20
		g, err := f.Step(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		if q.Results = nil; len(g.Begin) == 0 && !g.More {
			break
		}
		for _, d := range g.Begin {
			ids = append(ids, d.Events[0].ID)
			q.Results = append(q.Results, DeliveryResult{Number: d.Number()})
		}
	}
	slices.Sort(ids)
	if c := consumerInfo(t, th); c.LastAcked != 10 || c.Settled != 0 {
		t.Fatalf("got %d and %+v", c.LastAcked, c.ParallelState)
	}
	return ids
}

// Each verb has its answer to what is settled above the mark.
func TestParallelVerbs(t *testing.T) {
	open := []int64{4, 7, 8, 9, 10}
	for _, c := range []struct {
		name string
		do   func(th *Thread) error
		want []int64
	}{
		{"nothing", func(*Thread) error { return nil }, open},
		{"ack before", func(th *Thread) error { return th.Ack(ctx, "c", 2) }, open},
		{"ack up to it", func(th *Thread) error { return th.Ack(ctx, "c", 4) }, []int64{7, 8, 9, 10}},
		{"ack into it", func(th *Thread) error { return th.Ack(ctx, "c", 5) }, []int64{7, 8, 9, 10}},
		{"ack over it", func(th *Thread) error { return th.Ack(ctx, "c", 8) }, []int64{9, 10}},
		{"seek back", func(th *Thread) error { return th.Seek(ctx, "c", 1) }, []int64{2, 3, 4, 5, 6, 7, 8, 9, 10}},
		{"seek to the same place", func(th *Thread) error { return th.Seek(ctx, "c", 3) }, []int64{4, 5, 6, 7, 8, 9, 10}},
		{"seek forward", func(th *Thread) error { return th.Seek(ctx, "c", 4) }, []int64{7, 8, 9, 10}},
		{"pop back", func(th *Thread) error { _, err := th.Pop(ctx, "c", PopQuery{LastAcked: 2, Limit: 1}); return err }, []int64{3, 4, 5, 6, 7, 8, 9, 10}},
		{"pop at the same place", func(th *Thread) error { _, err := th.Pop(ctx, "c", PopQuery{LastAcked: 3, Limit: 1}); return err }, open},
		{"pop forward", func(th *Thread) error { _, err := th.Pop(ctx, "c", PopQuery{LastAcked: 5, Limit: 1}); return err }, []int64{7, 8, 9, 10}},
		{"compact", func(th *Thread) error { _, err := th.Compact(ctx); return err }, open},
		{"unsubscribe and subscribe", func(th *Thread) error {
			return errors.Join(th.Unsubscribe(ctx, "c"), th.Subscribe(ctx, Subscription{Consumer: "c", Handler: "true"}))
		}, open},
		{"prune what is acked", func(th *Thread) error {
			r, err := th.Prune(ctx, Retention{Acked: true})
			if err == nil && r.Through != 3 {
				err = fmt.Errorf("dropped up to %d", r.Through)
			}
			return err
		}, open},
		{"prune by force", func(th *Thread) error {
			keep := int64(5)
			_, err := th.Prune(ctx, Retention{KeepLast: &keep, Force: true})
			return err
		}, []int64{7, 8, 9, 10}},
		{"prune what is not acked", func(th *Thread) error {
			keep := int64(5)
			_, err := th.Prune(ctx, Retention{KeepLast: &keep})
			if held := new(HeldBackError); !errors.As(err, &held) || held.First != 4 || held.LastAcked != 3 {
				return fmt.Errorf("got %v", err)
			}
			return nil
		}, open},
		{"a Feed", func(th *Thread) error {
			killFeeds(th)
			f := th.Feed("c", Policy{})
			d, err := f.Next(ctx, nil)
			if err == nil && d.Events[0].ID != 4 {
				return fmt.Errorf("got event %d", d.Events[0].ID)
			}
			if err == nil {
				d, err = f.Next(ctx, &Result{})
			}
			if err == nil && (d.Events[0].ID != 7 || consumerInfo(t, th).LastAcked != 6) {
				return fmt.Errorf("got event %d", d.Events[0].ID)
			}
			if err == nil {
				_, err = f.Settle(ctx, Result{})
			}
			return err
		}, []int64{8, 9, 10}},
	} {
		t.Run(c.name, func(t *testing.T) {
			th := aboveMark(t)
			if err := c.do(th); err != nil {
				t.Fatal(err)
			}
			if got := left(t, th); !slices.Equal(got, c.want) {
				t.Fatalf("got %v, want %v", got, c.want)
			}
		})
	}
}

// A dead letter that was sent back is given out though progress has not passed it.
func TestParallelLetters(t *testing.T) {
	th := aboveMark(t)
	killFeeds(th)
	f, err := th.ParallelFeed("c", ParallelPolicy{Key: "source"})
	if err != nil {
		t.Fatal(err)
	}
	g, err := f.Step(ctx, Step{Begin: 5})
	if err != nil || len(g.Begin) != 5 {
		t.Fatalf("got %+v, %v", g, err)
	}
	last := g.Begin[4]
	if _, err := f.Step(ctx, Step{Results: []DeliveryResult{{last.Number(), Result{Verdict: Rejected}}}}); err != nil {
		t.Fatal(err)
	}
	if n, err := th.RetryDead(ctx, []DeadLetter{{Consumer: "c", Event: last.Events[0]}}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if g, err = f.Step(ctx, Step{Begin: 5}); err != nil || len(g.Begin) != 1 || !g.Begin[0].Retry || g.Begin[0].Attempt != 2 {
		t.Fatalf("got %+v, %v", g, err)
	}
	// A Feed gives it out, too.
	killFeeds(th)
	d, err := th.Feed("c", Policy{MaxAttempts: 5}).Next(ctx, nil)
	if err != nil || !d.Retry || d.Attempt != 3 || d.Events[0].ID != last.Events[0].ID {
		t.Fatalf("got %+v, %v", d, err)
	}
}

// A program that does not know the set moves progress: back, and drops the field that says
// of which progress the set is; or forward, into a range. What was settled then does not
// count again after the next one that knows the set has stored something, and no
// range is left below progress.
func TestSetBesideOlderProgram(t *testing.T) {
	for _, c := range []struct {
		to    int64
		seeks bool
		want  []int64
	}{
		{1, true, []int64{2, 3, 4, 5, 6, 7, 8, 9, 10}},
		{5, false, []int64{7, 8, 9, 10}},
		{3, true, []int64{4, 5, 6, 7, 8, 9, 10}},
	} {
		th := aboveMark(t)
		err := th.Update(ctx, func(tx *Tx) error {
			state, err := tx.delivery("c")
			if err != nil {
				return err
			}
			if c.seeks {
				state.Mark, state.Moved, state.Window = 0, 0, 0
			}
			if err := tx.putProgress("c", c.to); err != nil {
				return err
			}
			return tx.putDelivery("c", &state)
		})
		if err != nil {
			t.Fatal(err)
		}
		var got []int64
		for range 10 { // each is another process, which settles one event, the last first
			killFeeds(th)
			f, err := th.ParallelFeed("c", ParallelPolicy{Key: "source"})
			if err != nil {
				t.Fatal(err)
			}
			g, err := f.Step(ctx, Step{Begin: 10})
			if err != nil {
				t.Fatal(err)
			}
			var q Step
			for i, d := range g.Begin {
				r := Result{Verdict: Returned}
				if i == len(g.Begin)-1 {
					r.Verdict = Succeeded
					got = append(got, d.Events[0].ID)
				}
				q.Results = append(q.Results, DeliveryResult{d.Number(), r})
			}
			if _, err := f.Step(ctx, q); err != nil {
				t.Fatal(err)
			}
			if r, err := Check(ctx, th); err != nil || len(r.Faults) > 0 {
				t.Fatalf("%+v, %v", r, err)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("progress moved to %d: %v came, want %v", c.to, got, c.want)
		}
		if c := consumerInfo(t, th); c.LastAcked != 10 || c.Settled != 0 {
			t.Errorf("%+v", c)
		}
	}
}

// A postponed event is not tried before its time, and holds up the events of its key after
// it: also for the next process, and for a consumer without ParallelFeed. No failure is
// noted.
func TestParallelPostponed(t *testing.T) {
	for _, next := range []string{"the same feed", "another feed", "in order"} {
		now := time.Date(2026, 3, 18, 10, 30, 0, 0, time.UTC)
		th, err := Init(filepath.Join(t.TempDir(), "t"), WithClock(func() time.Time { return now }))
		if err != nil {
			t.Fatal(err)
		}
		defer th.Close()
		if err := th.Subscribe(ctx, Subscription{Consumer: "c", Handler: "true"}); err != nil {
			t.Fatal(err)
		}
		for _, source := range []string{"a", "a", "b"} {
			if _, err := th.Push(ctx, event.Draft{Source: source, Type: "t"}); err != nil {
				t.Fatal(err)
			}
		}
		feed := func() *ParallelFeed {
			killFeeds(th)
			f, err := th.ParallelFeed("c", ParallelPolicy{Key: "source", Policy: Policy{MaxAttempts: 1}})
			if err != nil {
				t.Fatal(err)
			}
			return f
		}
		step := func(f *ParallelFeed, q Step) Given {
			t.Helper()
			g, err := f.Step(ctx, q)
			if err != nil {
				t.Fatal(err)
			}
			return g
		}
		f := feed()
		until := now.Add(time.Minute)
		g := step(f, Step{Begin: 3})
		var q Step
		for _, d := range g.Begin {
			r := Result{Verdict: Postponed, Error: "not yet", NotBefore: until}
			if d.Key == "b" {
				r = Result{}
			}
			q.Results = append(q.Results, DeliveryResult{d.Number(), r})
		}
		q.Begin = 3
		if g := step(f, q); len(g.Begin) != 0 || !g.NotBefore.Equal(until) || len(g.Dead) != 0 {
			t.Fatalf("%s: got %+v, want nothing before %v", next, g, until)
		}
		if c := consumerInfo(t, th); c.Waiting != 1 || c.Settled != 1 || c.Failing != 0 || c.Attempts != 0 || c.FirstError != "" {
			t.Errorf("%s: %+v", next, c)
		}
		if s, err := th.EventState(ctx, "c", 1); err != nil || s.Attempts != 0 || s.FirstError != "" || !s.NextAt.Equal(until) {
			t.Errorf("%s: %+v, %v", next, s, err)
		}
		if next == "in order" {
			killFeeds(th)
			f := th.Feed("c", Policy{MaxAttempts: 1})
			for _, at := range []time.Time{now, until.Add(-time.Millisecond)} {
				now = at
				if d, err := f.Next(ctx, nil); err != nil || len(d.Events) != 0 || !d.NotBefore.Equal(until) {
					t.Errorf("%s: at %v %+v, %v", next, at, d, err)
				}
			}
			now = until
			if d, err := f.Next(ctx, nil); err != nil || len(d.Events) != 1 || d.Events[0].ID != 1 || d.Attempt != 1 {
				t.Errorf("%s: %+v, %v", next, d, err)
			}
			continue
		}
		if next == "another feed" {
			f = feed()
		}
		now = until.Add(-time.Millisecond)
		if g := step(f, Step{Begin: 3}); len(g.Begin) != 0 || !g.NotBefore.Equal(until) {
			t.Errorf("%s: got %+v before its time", next, g)
		}
		now = until
		g = step(f, Step{Begin: 3})
		if len(g.Begin) != 1 || g.Begin[0].Events[0].ID != 1 || g.Begin[0].Attempt != 1 {
			t.Fatalf("%s: got %+v", next, g)
		}
		if g := step(f, Step{Results: []DeliveryResult{{Number: g.Begin[0].Number()}}, Begin: 3}); len(g.Begin) != 1 || g.Begin[0].Events[0].ID != 2 {
			t.Errorf("%s: got %+v", next, g)
		}
	}
}

// Progress that moves into a range cuts it, and what is left counts no more events than
// it has ids.
func TestCutRange(t *testing.T) {
	for name, move := range map[string]func(th *Thread) error{
		"ack":  func(th *Thread) error { return th.Ack(ctx, "c", 5) },
		"seek": func(th *Thread) error { return th.Seek(ctx, "c", 5) },
		"pop":  func(th *Thread) error { _, err := th.Pop(ctx, "c", PopQuery{LastAcked: 5, Limit: 1}); return err },
	} {
		th := aboveMark(t)
		if err := move(th); err != nil {
			t.Fatal(err)
		}
		if c := consumerInfo(t, th); c.LastAcked != 5 || c.Settled != 1 {
			t.Errorf("%s: %d and %+v", name, c.LastAcked, c.ParallelState)
		}
		if r, err := Check(ctx, th); err != nil || len(r.Faults) > 0 {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		if ids := left(t, th); !slices.Equal(ids, []int64{7, 8, 9, 10}) {
			t.Errorf("%s: %v are left", name, ids)
		}
	}
}
