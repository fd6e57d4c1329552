package trigger

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// intake stores a batch and tells the broker. It returns an error only when ctx
// ends: whatever else fails is tried again, with nothing acknowledged.
func (t *Trigger) intake(ctx context.Context, items []*item) error {
	if t.log.Enabled(ctx, slog.LevelDebug) {
		for _, i := range items {
			t.log.Debug("message consumed", "trace_id", i.env.TraceID, "bytes", len(i.m.Body), "redelivered", i.m.Redelivered)
			if i.err == nil {
				t.log.Debug("parsed", "trace_id", i.env.TraceID, "event_name", i.env.Type(), "tenant_id", i.env.TenantID)
			}
		}
	}
	if t.cfg.Settle == SettleStored {
		t.metrics.set(func(m *Metrics) { m.busy = min(t.cfg.Concurrency, len(items)) })
		defer t.metrics.set(func(m *Metrics) { m.busy = 0 })
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

// distinct returns how many items from the first on have separate keys and stay
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
	if err := t.again(ctx, "asking governance", func() error { return t.govern(ctx, items) }); err != nil {
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

// tell tells the broker what became of the messages.
func (t *Trigger) tell(ctx context.Context, items []*item) error {
	positions := t.src.Capabilities().Positions
	for _, i := range items {
		switch {
		case i.fresh || i.revived:
			if t.cfg.Settle == SettleHandled {
				t.track(i)
				continue
			}
		case i.known:
			if t.attach(i) {
				continue
			}
		case (i.nack || i.requeue) && !positions:
			if err := t.again(ctx, "refusing a message", func() error { return t.src.Nack(ctx, *i.m, i.requeue) }); err != nil {
				return err
			}
			continue
		}
		d := delivery{m: i.m, done: true}
		if i.keyed || i.state != 0 {
			d.at = i.at
		}
		t.deliveries.add(d)
	}
	return t.ackDone(ctx)
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

// govern asks about what is not known yet. It returns ErrNoGovernor when nothing
// can be asked: that decides about no message.
func (t *Trigger) govern(ctx context.Context, items []*item) error {
	if t.governor == nil {
		return nil
	}
	var mu sync.Mutex
	var none error
	each(len(items), t.cfg.Concurrency, func(n int) {
		i := items[n]
		mu.Lock()
		skip := none != nil
		mu.Unlock()
		if skip || i.known || i.governed || i.err != nil || ctx.Err() != nil {
			return
		}
		a, err := t.governor.Ask(ctx, &Question{Source: "queue_trigger", Queue: t.cfg.Queue, MessageID: i.env.MessageID,
			TenantID: i.env.TenantID, EventName: i.env.Type(), Draft: i.draft})
		i.governed = true
		switch {
		case errors.Is(err, ErrNoGovernor) && !t.cfg.Governance.FailOpen:
			mu.Lock()
			none, i.governed = err, false
			mu.Unlock()
		case err != nil && t.cfg.Governance.FailOpen:
			t.log.Warn("governance cannot be asked, let in", "trace_id", i.env.TraceID, "error", err)
		case err != nil:
			i.rejected = text("governance cannot be asked: " + Redact(err.Error()))
		case !a.Allow:
			i.rejected = text("rejected by governance: " + Redact(a.Reason))
		default:
			t.log.Debug("let in by governance", "trace_id", i.env.TraceID)
		}
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return none
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
		var err error
		i.park, err = t.bury(ctx, *i.m, r)
		return err
	}
	if (i.nack || i.requeue) && t.src.Capabilities().Positions {
		return t.again(ctx, "refusing a message", func() error { return t.src.Nack(ctx, *i.m, i.requeue) })
	}
	return nil
}
