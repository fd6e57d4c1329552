package engine

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

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
	d, err := th.Feed("c", Policy{MaxAttempts: 5}).Next(ctx, nil)
	if err != nil || !d.Retry || d.Attempt != 3 || d.Events[0].ID != last.Events[0].ID {
		t.Fatalf("got %+v, %v", d, err)
	}
}
