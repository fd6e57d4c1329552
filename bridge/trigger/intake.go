package trigger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"thread/engine"
)

// intake stores a batch and tells the broker. It returns an error only when ctx
// ends: whatever else fails is tried again, with nothing acknowledged.
func (t *Trigger) intake(ctx context.Context, items []*item) error {
	if t.log.Enabled(ctx, slog.LevelDebug) {
		for _, i := range items {
			t.log.Debug("message consumed", "trace_id", i.env.TraceID, "bytes", len(i.m.Body), "redelivered", i.m.Redelivered)
		}
	}
	for len(items) > 0 {
		n := distinct(items)
		if err := t.intakeSome(ctx, items[:n]); err != nil {
			return err
		}
		items = items[n:]
	}
	return nil
}

// distinct returns how many items from the first on have keys of their own and stay
// within the bounds of a transaction: what becomes of a message must be stored
// before another one with its key is looked at.
func distinct(items []*item) int {
	// Places differ, and so do ids that are made of them, unless others are among them.
	named := slices.ContainsFunc(items, func(i *item) bool { return !i.m.Positional || i.keyed })
	var seen map[string]bool
	if named {
		seen = make(map[string]bool, len(items))
	}
	size := 0
	for n, i := range items {
		size += len(i.m.Body)
		if n > 0 && size > maxBatchBytes {
			return n
		}
		if !named || i.at == nil {
			continue
		}
		if seen[string(i.at)] {
			return n
		}
		seen[string(i.at)] = true
	}
	return len(items)
}

// intakeSome is intake for one transaction.
func (t *Trigger) intakeSome(ctx context.Context, items []*item) error {
	// What is known matters before the transaction only to what may be sent away.
	if t.governor != nil || slices.ContainsFunc(items, func(i *item) bool { return i.err != nil }) {
		if err := t.again(ctx, "looking up messages", func() error { return t.look(ctx, items) }); err != nil {
			return err
		}
	}
	if err := t.govern(ctx, items); err != nil {
		return err
	}
	for _, i := range items {
		t.route(i)
		if err := t.outside(ctx, i); err != nil {
			return err
		}
	}
	if err := t.again(ctx, "storing messages", func() error { return t.store(ctx, items) }); err != nil {
		return err
	}
	t.noteStored(items)
	return t.tell(ctx, items)
}

// again calls fn until it succeeds or ctx ends, with a growing wait in between, and
// says what is wrong.
func (t *Trigger) again(ctx context.Context, what string, fn func() error) error {
	wait := 100 * time.Millisecond
	for {
		err := fn()
		if err == nil {
			t.trouble(nil)
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if errors.Is(err, engine.ErrCorrupt) || errors.Is(err, engine.ErrClosed) {
			return fmt.Errorf("%s: %w", what, err)
		}
		t.trouble(fmt.Errorf("%s: %w", what, err))
		t.log.Warn("tried again later, nothing was acknowledged", "stage", what, "error", err, "wait", wait)
		if err := sleep(ctx, wait); err != nil {
			return err
		}
		wait = min(2*wait, 30*time.Second)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// govern asks about what is not known yet.
func (t *Trigger) govern(ctx context.Context, items []*item) error {
	if t.governor == nil {
		return nil
	}
	each(len(items), t.cfg.Concurrency, func(n int) {
		i := items[n]
		if i.known || i.err != nil || ctx.Err() != nil {
			return
		}
		a, err := t.governor.Ask(ctx, &Question{Source: "queue_trigger", Queue: t.cfg.Queue, MessageID: i.env.MessageID,
			TenantID: i.env.TenantID, EventName: i.env.Type(), Draft: i.draft})
		switch {
		case err != nil && t.cfg.Governance.FailOpen:
			t.log.Warn("governance cannot be asked, let in", "trace_id", i.env.TraceID, "error", err)
		case err != nil:
			i.rejected = text("governance cannot be asked: " + Redact(err.Error()))
		case !a.Allow:
			i.rejected = text("rejected by governance: " + Redact(a.Reason))
		}
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// route decides where a message goes that does not come in.
func (t *Trigger) route(i *item) {
	switch {
	case i.known:
	case i.err != nil:
		i.toDLQ = true
	case i.rejected != nil:
		switch t.cfg.AckPolicy {
		case PolicyDLQ:
			i.toDLQ = true
		case PolicyNack:
			i.nack = true
		case PolicyRequeue:
			i.requeue = t.mayRequeue(i.m, i.deliver)
			i.toDLQ = !i.requeue
		}
	}
}

// mayRequeue reports whether a message may be delivered again. One without an id is
// another one when it comes again: it gets one more chance.
func (t *Trigger) mayRequeue(m *Message, deliveries int64) bool {
	if m.Unnamed && m.Redelivered {
		return false
	}
	return t.src.Capabilities().Requeue && deliveries < int64(t.cfg.DeliveryLimit)
}

// outside does what the broker must have done before the position of the message is
// stored, since it is not delivered again after that. It may be done twice when the
// process is killed before the commit.
func (t *Trigger) outside(ctx context.Context, i *item) error {
	if i.toDLQ {
		r := Reason{Status: StatusRejected, Deliveries: i.deliver, TraceID: i.env.TraceID}
		if i.err != nil {
			r.Status, r.Text = StatusParseError, Redact(i.err.Error())
		} else {
			r.Text = *i.rejected
		}
		return t.bury(ctx, *i.m, r)
	}
	if (i.nack || i.requeue) && t.src.Capabilities().Positions {
		return t.again(ctx, "refusing a message", func() error { return t.src.Nack(ctx, *i.m, i.requeue) })
	}
	return nil
}

// keptOfDead are the bytes that are left of the body of a message that is too large
// for the dead letter queue, from one attempt to the next.
var keptOfDead = []int{64 << 10, 1 << 10, 0}

// bury sends a message to the dead letter queue until that has it. One that is too
// large goes there with the beginning of its body, and at last without its headers:
// it would stop all others.
func (t *Trigger) bury(ctx context.Context, m Message, r Reason) error {
	whole := len(m.Body)
	return t.again(ctx, "sending to the dead letter queue", func() error {
		err := t.src.SendToDLQ(ctx, m, r)
		for _, n := range keptOfDead {
			if errors.Is(err, ErrTooLarge) && len(m.Body) > n {
				t.log.Error("too large for the dead letter queue: it gets the beginning", "trace_id", r.TraceID, "bytes", whole, "kept", n, "error", err)
				r.BodyBytes, m.Body = whole, m.Body[:n]
				err = t.src.SendToDLQ(ctx, m, r)
			}
		}
		if errors.Is(err, ErrTooLarge) && len(m.Headers) > 0 {
			t.log.Error("too large for the dead letter queue: it gets none of the headers", "trace_id", r.TraceID, "headers", len(m.Headers), "error", err)
			m.Headers = nil
			err = t.src.SendToDLQ(ctx, m, r)
		}
		return err
	})
}
