package dispatch

import (
	"cmp"
	"context"
	"errors"

	"thread/engine"
)

// TakeNext is engine.Thread.Next, also after a process that was killed with events of the
// consumer.
func TakeNext(ctx context.Context, t *engine.Thread, consumer string, o engine.NextOptions) (engine.Lease, error) {
	l, err := t.Next(ctx, consumer, o)
	if !errors.Is(err, engine.ErrOut) {
		return l, err
	}
	held, err := LockConsumer(ctx, t, consumer)
	if err != nil {
		return l, err
	}
	o.TakeOver = true
	l, err = t.Next(ctx, consumer, o)
	if rerr := held.Release(ctx); err == nil {
		err = rerr
	}
	return l, err
}

// AwaitNext calls take until it returns events: at once, and whenever something may have
// changed. When ctx ends first, it returns why. What take has begun is brought to its end,
// as an unreported lease blocks the consumer.
func AwaitNext(ctx context.Context, t *engine.Thread, take func(context.Context) (engine.Lease, error)) (l engine.Lease, err error) {
	w, err := t.Watch()
	if err != nil {
		return l, err
	}
	defer w.Close()
	for {
		if l, err = take(context.WithoutCancel(ctx)); err != nil || len(l.Events) > 0 {
			return l, err
		}
		until := l.NotBefore
		at, err := t.NextScheduled(context.WithoutCancel(ctx))
		if err != nil {
			return l, err
		}
		if until.IsZero() || !at.IsZero() && at.Before(until) {
			until = at
		}
		if err := w.Wait(ctx, until); err != nil {
			return l, cmp.Or(context.Cause(ctx), err)
		}
	}
}
