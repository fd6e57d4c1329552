package dispatch

import (
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
