package engine

import (
	"errors"
	"path/filepath"
	"sync"
	"testing"

	"thread/event"
)

// TestFeedsAtOnce: of two feeds on one consumer, one handle or two, one works, and what
// succeeded is not a dead letter.
func TestFeedsAtOnce(t *testing.T) {
	const events = 20
	dir := filepath.Join(t.TempDir(), "t")
	th, err := Init(dir)
	noError(t, err)
	defer th.Close()
	noError(t, th.Subscribe(ctx, Subscription{Consumer: "c", Handler: "true"}))
	for range events {
		_, err := th.Push(ctx, event.Draft{Source: "s", Type: "t"})
		noError(t, err)
	}
	other, err := Open(dir)
	noError(t, err)
	defer other.Close()
	var wg sync.WaitGroup
	busy := make([]int, 3)
	done := make([]int, 3)
	for i, of := range []*Thread{th, th, other} {
		wg.Go(func() {
			f := of.Feed("c", Policy{MaxAttempts: 1})
			defer f.Close()
			var r *Result
			for {
				d, err := f.Next(ctx, r)
				if errors.Is(err, ErrConsumerBusy) {
					busy[i]++
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				if len(d.Events) == 0 {
					return
				}
				done[i]++
				r = &Result{Verdict: Succeeded}
			}
		})
	}
	wg.Wait()
	if done[0]+done[1]+done[2] != events {
		t.Errorf("%v of %d events were given out, busy %v", done, events, busy)
	}
	for letter, err := range th.DeadLetters(ctx, DeadLetterQuery{}) {
		t.Errorf("a dead letter: %+v, %v", letter, err)
	}
}

// TestConsumerBusy: who is refused while a feed has the consumer, and who is not when it
// is closed, its handle is, or run/ was deleted.
func TestConsumerBusy(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "t")
	th, err := Init(dir)
	noError(t, err)
	defer th.Close()
	noError(t, th.Subscribe(ctx, Subscription{Consumer: "c", Handler: "true"}))
	_, err = th.Push(ctx, event.Draft{Source: "s", Type: "t"})
	noError(t, err)
	next := func(of *Thread) error {
		f := of.Feed("c", Policy{})
		defer f.Close()
		_, err := f.Next(ctx, nil)
		return err
	}
	step := func(of *Thread) error {
		f, err := of.ParallelFeed("c", ParallelPolicy{})
		noError(t, err)
		defer f.Close()
		_, err = f.Step(ctx, Step{Begin: 1})
		return err
	}
	for name, ask := range map[string]func(*Thread) error{"Next": next, "Step": step} {
		holder, err := Open(dir)
		noError(t, err)
		noError(t, next(holder)) // nothing is left of a feed that was closed
		f := holder.Feed("c", Policy{})
		_, err = f.Next(ctx, nil)
		noError(t, err)
		for _, of := range []*Thread{th, holder} {
			if err := ask(of); !errors.Is(err, ErrConsumerBusy) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := f.Next(ctx, nil); err != nil {
			t.Errorf("%s, of the one who has it: %v", name, err)
		}
		noError(t, holder.Close())
		noError(t, ask(th))
	}
}

// TestStaleResult: the result of a delivery that was taken away is refused, and changes
// nothing; one whose outcome was unknown may be redelivered.
func TestStaleResult(t *testing.T) {
	th, err := Init(filepath.Join(t.TempDir(), "t"))
	noError(t, err)
	defer th.Close()
	noError(t, th.Subscribe(ctx, Subscription{Consumer: "c", Handler: "true"}))
	for range 3 {
		_, err := th.Push(ctx, event.Draft{Source: "s", Type: "t"})
		noError(t, err)
	}
	f := th.Feed("c", Policy{MaxAttempts: 1})
	defer f.Close()
	for _, settle := range []func(*Result) error{
		func(r *Result) error { _, err := f.Next(ctx, r); return err },
		func(r *Result) error { _, err := f.Settle(ctx, *r); return err },
	} {
		d, err := f.Next(ctx, nil)
		if err != nil || len(d.Events) != 1 || d.Events[0].ID != 1 {
			t.Fatalf("%+v, %v", d, err)
		}
		noError(t, th.Seek(ctx, "c", 0))
		if err := settle(&Result{Verdict: Rejected}); !errors.Is(err, ErrStale) {
			t.Errorf("%v", err)
		}
	}
	d, err := f.Next(ctx, nil)
	if err != nil || len(d.Events) != 1 || d.Events[0].ID != 1 || d.Attempt != 1 {
		t.Errorf("%+v, %v", d, err)
	}
	noError(t, f.Close())
	p, err := th.ParallelFeed("c", ParallelPolicy{Policy: Policy{MaxAttempts: 9}})
	noError(t, err)
	g, err := p.Step(ctx, Step{Begin: 1})
	noError(t, err)
	noError(t, th.Seek(ctx, "c", 0))
	number := g.Begin[0].Number()
	if g, err = p.Step(ctx, Step{Results: []DeliveryResult{{Number: number}}}); err != nil || len(g.Stale) != 1 || g.Stale[0] != number {
		t.Errorf("%+v, %v", g, err)
	}
}
