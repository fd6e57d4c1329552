package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
	"thread/lock"
)

func push(t *testing.T, th *engine.Thread) {
	t.Helper()
	if _, err := th.Push(t.Context(), event.Draft{Source: "s", Type: "job"}); err != nil {
		t.Fatal(err)
	}
}

func TestDefaultBackoff(t *testing.T) {
	for n, want := range map[int64]time.Duration{-1 << 63: time.Second, 0: time.Second, 1: time.Second, 2: 2 * time.Second, 9: 256 * time.Second, 10: 5 * time.Minute, 1<<63 - 1: 5 * time.Minute} {
		if got := DefaultBackoff(n); got != want {
			t.Errorf("after failure %d: %v, want %v", n, got, want)
		}
	}
	p := Policy{}.withDefaults()
	if p.Parallel != 1 || p.MaxAttempts != DefaultMaxAttempts || p.Backoff(1) != time.Second {
		t.Errorf("%+v", p)
	}
	p = Policy{Parallel: 3, MaxAttempts: 1, Backoff: func(int64) time.Duration { return 7 }}.withDefaults()
	if p.Parallel != 3 || p.MaxAttempts != 1 || p.Backoff(1) != 7 {
		t.Errorf("%+v", p)
	}
}

// TestOnFailure: it is told of each attempt that failed, and of no other result. What an
// attempt said is in the dead letter.
func TestOnFailure(t *testing.T) {
	th := inbox(t)
	defer th.Close()
	for range 3 {
		push(t, th)
	}
	var told []string
	tries := map[int64]int{}
	p := Policy{Drain: true, MaxAttempts: 2, Backoff: func(int64) time.Duration { return 1 }, OnFailure: func(e event.Event, err error) { told = append(told, fmt.Sprint(e.ID, " ", err)) }}
	err := Run(t.Context(), th, "c", p, func(_ context.Context, e event.Event) error {
		switch tries[e.ID]++; {
		case e.ID == 1:
			return fmt.Errorf("try %d", tries[1])
		case e.ID == 2 && tries[2] == 1:
			return Later(0)
		case e.ID == 3:
			return Reject(errors.New("never"))
		}
		return nil
	})
	if want := []string{"1 try 1", "1 try 2", "3 never"}; err != nil || !slices.Equal(told, want) {
		t.Errorf("%q %v, want %q", told, err, want)
	}
	var dead []string
	for l, err := range th.DeadLetters(t.Context(), engine.DeadLetterQuery{Consumer: "c"}) {
		if err != nil {
			t.Fatal(err)
		}
		dead = append(dead, fmt.Sprint(l.Event.ID, " ", l.Attempts, " ", l.ExitCode, " ", l.LastError))
	}
	if want := []string{"1 2 -1 try 2", "3 1 -1 never"}; !slices.Equal(dead, want) {
		t.Errorf("%q, want %q", dead, want)
	}
	if err := errors.New("never"); !errors.Is(Reject(err), err) {
		t.Error("a rejection hides its cause")
	}
	if got, want := Later(90*time.Second).Error(), "later, in 1m30s"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestBackoff: a failed event is not tried again before its time, also by a worker that
// drains, and one that waits is tried when it comes.
func TestBackoff(t *testing.T) {
	th := inbox(t)
	defer th.Close()
	push(t, th)
	const wait = 300 * time.Millisecond
	for _, later := range []bool{false, true} {
		var at []time.Time
		err := Run(t.Context(), th, "c", Policy{Drain: true, Backoff: func(int64) time.Duration { return wait }}, func(context.Context, event.Event) error {
			at = append(at, time.Now())
			switch {
			case len(at) > 1:
				return nil
			case later:
				return Later(wait)
			}
			return errors.New("again")
		})
		// Times are stored in milliseconds.
		if err != nil || len(at) != 2 || at[1].Sub(at[0]) < wait-time.Millisecond {
			t.Errorf("later %t: %v %v", later, at, err)
		}
		push(t, th)
	}
}

// TestBusy: a thread that others hold for longer than its lock wait is waited for.
func TestBusy(t *testing.T) {
	th := inbox(t)
	defer th.Close()
	push(t, th)
	hasty, err := engine.Open(th.Dir(), engine.WithLockWait(time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer hasty.Close()
	held, err := lock.Try(filepath.Join(th.Dir(), "events.db"), lock.Exclusive)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*busyTime)
	defer cancel()
	if err := Run(ctx, hasty, "c", Policy{}, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while it is held: %v", err)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	// Held again when the result comes: it is stored when the lock is free.
	calls := 0
	freed := make(chan error, 1)
	err = Run(t.Context(), hasty, "c", Policy{Drain: true}, func(context.Context, event.Event) error {
		calls++
		held, err := lock.Open(t.Context(), filepath.Join(th.Dir(), "events.db"), lock.Exclusive) // calls that gave up still wait
		if err != nil {
			return err
		}
		time.AfterFunc(2*busyTime, func() { freed <- held.Close() })
		return nil
	})
	if err := errors.Join(err, <-freed); err != nil || calls != 1 {
		t.Errorf("%d calls, %v", calls, err)
	}
}

// TestNotStored: what cannot be stored ends the worker, with what ended it before.
func TestNotStored(t *testing.T) {
	th := inbox(t)
	defer th.Close()
	stop := errors.New("stop")
	for _, ends := range []bool{false, true} {
		push(t, th)
		ctx, cancel := context.WithCancelCause(t.Context())
		calls := 0
		err := Run(ctx, th, "c", Policy{}, func(of context.Context, _ event.Event) error {
			calls++
			if ends {
				cancel(stop)
			}
			return th.Pause(t.Context(), "c")
		})
		if !errors.Is(err, engine.ErrPaused) || errors.Is(err, stop) != ends || calls != 1 {
			t.Errorf("ended %t: %d calls, %v", ends, calls, err)
		}
		cancel(nil)
		if err := th.Resume(t.Context(), "c"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNoFeed: a key that is not one, and a directory that is gone, are errors.
func TestNoFeed(t *testing.T) {
	th := inbox(t)
	defer th.Close()
	if err := Run(t.Context(), th, "c", Policy{Key: "content["}, nil); !errors.Is(err, engine.ErrInvalid) {
		t.Errorf("%v", err)
	}
	if err := os.RemoveAll(th.Dir()); err != nil {
		t.Fatal(err)
	}
	if err := Run(t.Context(), th, "c", Policy{}, nil); err == nil {
		t.Error("no error")
	}
}

// TestFarApart: a filter by content selects few events, with more bytes between them than one
// step reads.
func TestFarApart(t *testing.T) {
	th := inbox(t)
	defer th.Close()
	if err := th.Subscribe(t.Context(), engine.Subscription{Consumer: "few", Handler: "true", Filter: event.Text("content LIKE '%!'")}); err != nil {
		t.Fatal(err)
	}
	drafts := make([]event.Draft, 3000)
	for i := range drafts {
		drafts[i] = event.Draft{Source: fmt.Sprint(i), Type: "job", Content: strings.Repeat("x", 8<<10)}
	}
	want := []int64{2000, 3000}
	for _, id := range want {
		drafts[id-1].Content = "x!"
	}
	if _, err := th.PushBatch(t.Context(), drafts); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var got []int64
	err := Run(t.Context(), th, "few", Policy{Drain: true, Parallel: 2, Key: "source"}, func(_ context.Context, e event.Event) error {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, e.ID)
		return nil
	})
	if slices.Sort(got); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v %v, want %v", got, err, want)
	}
}
