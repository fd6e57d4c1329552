package trigger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"thread/engine"
)

// intake stores a batch and tells the broker. It returns an error only when ctx
// ends: whatever else fails is tried again, with nothing acknowledged.
func (t *Trigger) intake(ctx context.Context, ms []Message) error {
	items := t.prepare(ms)
	for _, i := range items {
		t.log.Debug("message consumed", "trace_id", i.env.TraceID, "bytes", len(i.m.Body), "redelivered", i.m.Redelivered)
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
	seen, size := map[string]bool{}, 0
	for n, i := range items {
		size += len(i.m.Body)
		if i.at != nil && seen[string(i.at)] || n > 0 && size > maxBatchBytes {
			return n
		}
		if i.at != nil {
			seen[string(i.at)] = true
		}
	}
	return len(items)
}

// intakeSome is intake for one transaction.
func (t *Trigger) intakeSome(ctx context.Context, items []*item) error {
	if err := t.again(ctx, "looking up messages", func() error { return t.look(ctx, items) }); err != nil {
		return err
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
			i.requeue = t.mayRequeue(&i.m, i.deliver)
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
		return t.again(ctx, "sending to the dead letter queue", func() error { return t.src.SendToDLQ(ctx, i.m, r) })
	}
	if (i.nack || i.requeue) && t.src.Capabilities().Positions {
		return t.again(ctx, "refusing a message", func() error { return t.src.Nack(ctx, i.m, i.requeue) })
	}
	return nil
}

// store is the transaction of the intake. It may run more than once.
func (t *Trigger) store(ctx context.Context, items []*item) error {
	told := t.told
	err := t.th.Update(ctx, func(tx *engine.Tx) error {
		r, err := tx.Records(table)
		if err != nil {
			return err
		}
		if err := t.settleKeys(r, told); err != nil {
			return err
		}
		book, err := openLedger(r, &t.cfg)
		if err != nil {
			return err
		}
		keyed := 0
		for _, i := range items {
			i.fresh, i.revived = false, false
			if err := t.storeOne(tx, r, book, i); err != nil {
				return fmt.Errorf("message %s: %w", i.env.MessageID, err)
			}
			if i.keyed {
				keyed++
			}
		}
		if err := sweepKeys(r, t.now(), sweepAtLeast+2*keyed); err != nil {
			return err
		}
		t.subscribed = tx.HasSubscriptions()
		return book.sweep()
	})
	if err == nil {
		t.told = t.told[len(told):]
	}
	return err
}

// storeOne stores one message with its position, key and row of the ledger.
func (t *Trigger) storeOne(tx *engine.Tx, r *engine.Records, book *ledger, i *item) error {
	asked := i.known
	if err := t.lookOne(r, i, nil); err != nil {
		return err
	}
	// What was known and is over by now was neither asked about nor sent away: it
	// counts as known.
	i.known = i.known || asked
	now := t.now()
	row := t.cfg.row(i, now)
	var k *keyRecord
	switch {
	case i.known:
		row.Status = StatusDuplicate
	case i.err != nil:
		row.Status, row.Error = StatusParseError, text(Redact(i.err.Error()))
	case i.rejected != nil:
		row.Status, row.Error = StatusRejected, i.rejected
		if i.requeue && i.at != nil {
			k = &keyRecord{state: requeued, deliveries: i.deliver}
		}
	default:
		row.Status = StatusStored
		if i.state == requeued && i.event != 0 {
			ok, err := tx.Retry(t.cfg.Consumer, i.event)
			if err != nil {
				return err
			}
			i.revived = ok
		}
		if !i.revived {
			e, err := tx.Push(i.draft)
			if err != nil {
				return err
			}
			i.event, i.fresh = e.ID, true
		}
		if i.keyed || i.state == requeued {
			k = &keyRecord{state: unsettled, event: i.event, deliveries: i.deliver}
		}
	}
	if k == nil && i.state == requeued && !i.known { // it is not asked for again
		k = &keyRecord{state: unsettled, event: i.event, deliveries: i.deliver}
	}
	row.Event = i.event
	if t.cfg.Ledger {
		var err error
		if i.row, err = book.add(&row); err != nil {
			return err
		}
	}
	if k != nil {
		old, err := t.keyOf(r, i)
		if err != nil {
			return err
		}
		if err := putKey(r, i.at, old, k); err != nil {
			return err
		}
	}
	if t.cfg.Settle == SettleHandled && (i.fresh || i.revived) {
		if err := putJSON(r, t.cfg.openKey(i.event), t.cfg.openRecord(i)); err != nil {
			return err
		}
	}
	for _, w := range i.m.State {
		if err := t.state.write(r, w); err != nil {
			return err
		}
	}
	if p := i.m.Position; p != nil {
		stored, err := get(r, t.cfg.stateKey(p.Key))
		if err == nil && string(stored) < string(p.At) {
			err = put(r, t.cfg.stateKey(p.Key), p.At)
		}
		return err
	}
	return nil
}

// settleKeys marks the keys of messages that the broker was told of: from now their
// window runs.
func (t *Trigger) settleKeys(r *engine.Records, told []toldKey) error {
	for _, s := range told {
		b, err := get(r, s.at)
		if b == nil || err != nil {
			if err != nil {
				return err
			}
			continue
		}
		old, err := decodeKey(b)
		if err != nil {
			return err
		}
		if old.state != unsettled {
			continue
		}
		if s.drop {
			if err := r.Delete(s.at); err != nil {
				return err
			}
			continue
		}
		k := old
		k.state, k.settledAt, k.window = settled, s.when.UnixMilli(), t.cfg.window()
		if err := putKey(r, s.at, &old, &k); err != nil {
			return err
		}
	}
	return nil
}

// noteStored counts and logs what the transaction did, and wakes handlers.
func (t *Trigger) noteStored(items []*item) {
	now := t.now()
	source := ""
	for _, i := range items {
		log := t.log.With("trace_id", i.env.TraceID)
		took := now.Sub(i.begun)
		switch {
		case i.known:
			log.Info("duplicate", "event", i.event)
			t.metrics.done(StatusDuplicate, took)
		case i.err != nil:
			log.Error("parse failure", "error", i.err)
			t.metrics.done(StatusParseError, took)
		case i.rejected != nil:
			log.Warn("rejected", "reason", *i.rejected, "policy", t.cfg.AckPolicy)
			t.metrics.done(StatusRejected, took)
		default:
			log.Info("stored", "event", i.event, "deliveries", i.deliver)
			source = i.draft.Source
			if t.cfg.Settle == SettleStored {
				t.metrics.done(StatusStored, took)
			}
		}
		if !i.m.At.IsZero() {
			t.metrics.set(func(m *Metrics) { m.delay = now.Sub(i.m.At).Seconds() })
		}
	}
	if source != "" && t.onStored != nil {
		t.onStored(source, t.subscribed)
	}
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
			if err := t.again(ctx, "refusing a message", func() error { return t.src.Nack(ctx, i.m, i.requeue) }); err != nil {
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
