//go:build linux

package dispatch

import (
	"context"
	"errors"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
)

// TestTakeNext: events that a killed process has left in flight are taken by the next one,
// unless another process has the consumer.
func TestTakeNext(t *testing.T) {
	b := newBench(t)
	t.Setenv(envDispatch, wakeNone)
	ctx := t.Context()
	b.subscribe(engine.Subscription{Consumer: "c", Pull: true})
	b.push("s")
	feed := b.t.Feed("c", engine.Policy{})
	if d, err := feed.Next(ctx, nil); err != nil || len(d.Events) != 1 {
		t.Fatal(d, err)
	}
	feed.Close() // with the event in flight
	held, err := LockConsumer(ctx, b.t, "c")
	must(t, err)
	if l, err := TakeNext(ctx, b.t, "c", engine.NextOptions{}); !errors.Is(err, ErrHandled) || len(l.Events) != 0 {
		t.Errorf("beside another process: %+v %v", l, err)
	}
	must(t, held.Release(ctx))
	l, err := TakeNext(ctx, b.t, "c", engine.NextOptions{})
	if err != nil || len(l.Events) != 0 || l.NotBefore.IsZero() {
		t.Fatalf("the killed delivery is not an attempt: %+v %v", l, err)
	}
	take := func(ctx context.Context) (engine.Lease, error) { return TakeNext(ctx, b.t, "c", engine.NextOptions{}) }
	if l, err = AwaitNext(ctx, b.t, take); err != nil || len(l.Events) != 1 || l.Events[0].ID != 1 || l.Attempt != 2 {
		t.Errorf("%+v %v", l, err)
	}
	held, err = LockConsumer(ctx, b.t, "c")
	must(t, err) // else it was not released
	must(t, held.Release(ctx))
	if _, err := TakeNext(ctx, b.t, "nobody", engine.NextOptions{}); !errors.Is(err, engine.ErrNoSubscription) {
		t.Errorf("an unknown consumer: %v", err)
	}
}

// TestAwaitNext: it returns with events, however they come: at once, by a push, at the time
// of a delayed event or of a retry; and ends with its context.
func TestAwaitNext(t *testing.T) {
	b := newBench(t)
	t.Setenv(envDispatch, wakeNone)
	b.subscribe(engine.Subscription{Consumer: "c", Pull: true})
	next := func(ctx context.Context) (engine.Lease, error) {
		return b.t.Next(ctx, "c", engine.NextOptions{Ack: true})
	}
	limited, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	expect := func(what string, id int64, take func(context.Context) (engine.Lease, error)) {
		t.Helper()
		l, err := AwaitNext(limited, b.t, take)
		if err != nil || len(l.Events) != 1 || l.Events[0].ID != id {
			t.Fatalf("%s: %+v %v", what, l, err)
		}
	}
	b.push("s")
	expect("at once", 1, next)
	// pushed is next that is followed by push when there was nothing.
	pushed := func(push func()) func(context.Context) (engine.Lease, error) {
		once := false
		return func(ctx context.Context) (engine.Lease, error) {
			l, err := next(ctx)
			if !once {
				once = true
				push()
			}
			return l, err
		}
	}
	expect("by a push", 2, pushed(func() { b.push("s") }))
	delayed := func(d time.Duration) {
		if _, err := b.t.PushAt(context.Background(), event.Draft{Source: "s", Type: "t"}, time.Now().Add(d)); err != nil {
			t.Fatal(err)
		}
	}
	delayed(100 * time.Millisecond)
	expect("a delayed event", 3, next)
	// The earlier time counts of a retry's and a delayed event's.
	for _, tc := range []struct{ delay, retry time.Duration }{{100 * time.Millisecond, time.Hour}, {time.Hour, 100 * time.Millisecond}} {
		delayed(tc.delay)
		calls := 0
		at := time.Now().Add(tc.retry)
		l, err := AwaitNext(limited, b.t, func(ctx context.Context) (engine.Lease, error) {
			if calls++; calls > 1 && !time.Now().Before(at) {
				var l engine.Lease
				l.Events = make([]event.Event, 1)
				return l, nil
			}
			l, err := next(ctx)
			if len(l.Events) == 0 {
				l.NotBefore = at
			}
			return l, err
		})
		if err != nil || len(l.Events) != 1 || calls < 2 {
			t.Errorf("%+v: %+v %v", tc, l, err)
		}
	}
	mine := errors.New("mine")
	called, off := context.WithCancelCause(t.Context())
	l, err := AwaitNext(called, b.t, func(ctx context.Context) (engine.Lease, error) {
		off(mine)
		return engine.Lease{}, ctx.Err() // what it has begun continues
	})
	if !errors.Is(err, mine) || len(l.Events) != 0 {
		t.Errorf("called off: %+v %v", l, err)
	}
	b.push("s")
	if l, err := AwaitNext(called, b.t, next); err != nil || len(l.Events) != 1 {
		t.Errorf("events that are taken are lost when it is called off: %+v %v", l, err)
	}
	failed := errors.New("failed")
	if _, err := AwaitNext(limited, b.t, func(context.Context) (engine.Lease, error) { return engine.Lease{}, failed }); !errors.Is(err, failed) {
		t.Errorf("%v", err)
	}
}
