package worker

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"thread/engine"
	"thread/event"
)

func inbox(t interface {
	Fatal(...any)
	TempDir() string
}) *engine.Thread {
	th, err := engine.OpenOrCreate(filepath.Join(t.TempDir(), "inbox"))
	if err != nil {
		t.Fatal(err)
	}
	if err := th.Subscribe(context.Background(), engine.Subscription{Consumer: "c", Handler: "true", Filter: event.Text("type <> 'other'")}); err != nil {
		t.Fatal(err)
	}
	return th
}

// seen is what happened to the events: an oracle that fn writes.
type seen struct {
	mu       sync.Mutex
	attempts map[int64]int
	running  map[string]bool
	ended    map[string][]int64 // by key: events that succeeded or are dead, in order
	overlap  bool
}

// TestRun: each event is tried until it succeeds or its attempts are used up, events with the same key in
// order and one at a time, and at the end nothing is unread.
func TestRun(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		th := inbox(t)
		defer th.Close()
		p := Policy{Drain: true, MaxAttempts: 3, Backoff: func(int64) time.Duration { return time.Millisecond },
			Parallel: rapid.IntRange(0, 4).Draw(rt, "parallel"), Key: rapid.SampledFrom([]string{"", "source"}).Draw(rt, "key")}
		fails := map[int64]int{} // how often; -1: rejected, -2: later, three times
		var want []int64         // dead
		for i := range rapid.IntRange(0, 12).Draw(rt, "events") {
			e, err := th.Push(t.Context(), event.Draft{Source: fmt.Sprint("s", i%3), Type: rapid.SampledFrom([]string{"job", "other"}).Draw(rt, "type")})
			if err != nil {
				rt.Fatal(err)
			}
			if e.Type == "other" {
				continue
			}
			if fails[e.ID] = rapid.IntRange(-2, 3).Draw(rt, "fails"); fails[e.ID] == 3 || fails[e.ID] == -1 {
				want = append(want, e.ID)
			}
		}
		s := seen{attempts: map[int64]int{}, running: map[string]bool{}, ended: map[string][]int64{}}
		ordered := p.Key != "" || p.Parallel <= 1
		err := Run(t.Context(), th, "c", p, func(_ context.Context, e event.Event) error {
			key := ""
			if p.Key != "" {
				key = e.Source
			}
			s.mu.Lock()
			s.overlap = s.overlap || s.running[key]
			s.running[key] = true
			s.attempts[e.ID]++
			n, f := s.attempts[e.ID], fails[e.ID]
			s.mu.Unlock()
			defer func() {
				s.mu.Lock()
				s.running[key] = false
				s.mu.Unlock()
			}()
			switch {
			case f == -1:
				s.end(key, e.ID)
				return fmt.Errorf("wrapped: %w", Reject(errors.New("never")))
			case f == -2 && n <= 3: // as often as there are attempts
				return Later(time.Millisecond)
			case n <= f:
				if n == 3 {
					s.end(key, e.ID)
				}
				return errors.New("again")
			}
			s.end(key, e.ID)
			return nil
		})
		if err != nil {
			rt.Fatal(err)
		}
		for id, f := range fails {
			tries := max(1, min(3, f+1))
			if f == -2 {
				tries = 4
			}
			if s.attempts[id] != tries {
				rt.Errorf("event %d that fails %d times was tried %d times, want %d", id, f, s.attempts[id], tries)
			}
		}
		if ordered && s.overlap {
			rt.Error("two events of a key at once")
		}
		for key, ids := range s.ended {
			if ordered && !slices.IsSorted(ids) {
				rt.Errorf("key %q: %v", key, ids)
			}
		}
		var dead []int64
		for l, err := range th.DeadLetters(t.Context(), engine.DeadLetterQuery{Consumer: "c"}) {
			if err != nil {
				rt.Fatal(err)
			}
			dead = append(dead, l.Event.ID)
		}
		slices.Sort(dead)
		if !slices.Equal(dead, want) {
			rt.Errorf("dead letters %v, want %v", dead, want)
		}
		err = Run(t.Context(), th, "c", p, func(_ context.Context, e event.Event) error { return Reject(fmt.Errorf("event %d again", e.ID)) })
		for l := range th.DeadLetters(t.Context(), engine.DeadLetterQuery{Consumer: "c"}) {
			if !slices.Contains(want, l.Event.ID) {
				rt.Errorf("event %d was left: %v", l.Event.ID, err)
			}
		}
	})
}

func (s *seen) end(key string, id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended[key] = append(s.ended[key], id)
}

// TestEnd: when ctx ends, what has succeeded is stored, what was interrupted is as before, and
// a second worker is refused meanwhile. One that waits begins with what is pushed.
func TestEnd(t *testing.T) {
	th := inbox(t)
	defer th.Close()
	cause := errors.New("stop")
	ctx, stop := context.WithCancelCause(t.Context())
	began := make(chan int64)
	ended := make(chan error)
	go func() {
		ended <- Run(ctx, th, "c", Policy{Parallel: 2}, func(ctx context.Context, e event.Event) error {
			began <- e.ID
			<-ctx.Done()
			if e.ID == 1 {
				return nil
			}
			return ctx.Err()
		})
	}()
	for range 2 {
		push(t, th)
		<-began
	}
	if err := Run(ctx, th, "c", Policy{Drain: true}, nil); !errors.Is(err, engine.ErrConsumerBusy) {
		t.Error(err)
	}
	stop(cause)
	if err := <-ended; !errors.Is(err, cause) {
		t.Error(err)
	}
	var left []int64
	err := Run(t.Context(), th, "c", Policy{Drain: true}, func(_ context.Context, e event.Event) error {
		left = append(left, e.ID)
		return nil
	})
	if err != nil || !slices.Equal(left, []int64{2}) {
		t.Errorf("%v %v", left, err)
	}
}

// TestRefused: a consumer that is not there or paused is an error, also while the worker waits.
func TestRefused(t *testing.T) {
	th := inbox(t)
	defer th.Close()
	if err := Run(t.Context(), th, "none", Policy{}, nil); !errors.Is(err, engine.ErrNoSubscription) {
		t.Error(err)
	}
	done := make(chan int64)
	ended := make(chan error)
	go func() {
		ended <- Run(t.Context(), th, "c", Policy{}, func(_ context.Context, e event.Event) error { done <- e.ID; return nil })
	}()
	push(t, th)
	<-done
	if err := th.Pause(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, engine.ErrPaused) {
		t.Error(err)
	}
}
