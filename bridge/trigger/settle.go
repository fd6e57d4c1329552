package trigger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"thread/engine"
)

// looksAtOnce bounds how many events one look asks about, and one transaction
// settles.
const looksAtOnce = 2000

// settle settles the events that their consumer is through with.
func (t *Trigger) settle(ctx context.Context) error {
	if len(t.open) == 0 && t.cfg.Settle == SettleHandled {
		t.metrics.set(func(m *Metrics) { m.busy = 0 })
	}
	for len(t.order) > 0 {
		live := t.order[:0]
		for _, id := range t.order {
			if t.open[id] != nil {
				live = append(live, id)
			}
		}
		t.order = live
		ids := t.order[:min(len(t.order), looksAtOnce)]
		if len(ids) == 0 {
			return nil
		}
		var outcomes []engine.Outcome
		err := t.th.View(ctx, func(tx *engine.Tx) (err error) {
			outcomes, err = tx.Outcome(t.cfg.Consumer, ids...)
			return err
		})
		if errors.Is(err, engine.ErrNoSubscription) {
			t.noteTrouble(troubleConsumer, fmt.Errorf("consumer '%s' is not subscribed: nothing is settled until it is", t.cfg.Consumer))
			return nil
		}
		if err != nil {
			return t.again(ctx, "looking for outcomes", func() error {
				return t.th.View(ctx, func(tx *engine.Tx) error { return nil })
			})
		}
		if t.stuck == nil {
			t.noteTrouble(troubleConsumer, nil)
		}
		n, err := t.settleSome(ctx, outcomes)
		if err != nil || n == 0 {
			return err
		}
	}
	return nil
}

// ending is an event that its consumer is through with, and what follows.
type ending struct {
	*waitingEvent
	outcome engine.Outcome
	failed  bool
	nack    bool
	requeue bool
	toDLQ   bool
	park    *parkedRecord

	modelCalls int64
}

// settleSome settles the outcomes that are final, and returns how many.
func (t *Trigger) settleSome(ctx context.Context, outcomes []engine.Outcome) (n int, err error) {
	positions := t.src.Capabilities().Positions
	var ends []*ending
	if err := t.noteAttempts(ctx, outcomes); err != nil {
		return 0, err
	}
	for _, o := range outcomes {
		w := t.open[o.ID]
		e := &ending{waitingEvent: w, outcome: o, failed: o.State == engine.Dead}
		switch {
		case o.State == engine.Unread, o.State == engine.Waiting:
			continue
		case !e.failed:
		case t.cfg.AckPolicy == PolicyDLQ:
			e.toDLQ = true
		case t.cfg.AckPolicy == PolicyNack:
			e.nack = true
		case t.cfg.AckPolicy == PolicyRequeue:
			e.requeue = t.mayRequeue(w.d.m, w.Deliveries)
			e.toDLQ = !e.requeue
		}
		if (e.nack || e.requeue) && !positions && !w.handle {
			w.final = true
			continue // only its redelivery can be refused
		}
		ends = append(ends, e)
	}
	if len(ends) == 0 {
		return 0, nil
	}
	// A copy must be known as one before it is there.
	if positions {
		if err := t.noteRequeued(ctx, ends); err != nil {
			return 0, err
		}
	}
	for _, e := range ends {
		m := *e.d.m
		switch {
		case e.toDLQ:
			r := e.reason()
			e.park, err = t.bury(ctx, m, r)
		case (e.nack || e.requeue) && positions:
			err = t.again(ctx, "refusing a message", func() error { return t.src.Nack(ctx, m, e.requeue) })
		}
		if err != nil {
			return 0, err
		}
	}
	if err := t.again(ctx, "settling events", func() error { return t.storeEnds(ctx, ends) }); err != nil {
		return 0, err
	}
	for _, e := range ends {
		t.noteEnd(e)
		t.forget(e.waitingEvent)
		if (e.nack || e.requeue) && !positions {
			m := *e.d.m
			if err := t.again(ctx, "refusing a message", func() error { return t.src.Nack(ctx, m, e.requeue) }); err != nil {
				return 0, err
			}
			continue
		}
		e.d.drop = e.failed
		if e.requeue {
			e.d.at = nil // its key waits for the copy
		}
		if e.handle || positions {
			t.deliveries.finish(e.d)
		}
	}
	return len(ends), t.ackDone(ctx)
}

// reason is what the dead letter queue is told of an event that failed, with its
// history.
func (e *ending) reason() Reason {
	o := &e.outcome
	return Reason{
		Status: StatusFailed, Attempts: o.Attempts, Deliveries: e.Deliveries, TraceID: e.TraceID,
		Text:       Redact(fmt.Sprintf("failed after %d attempts: %s", o.Attempts, o.LastError)),
		FirstError: Redact(o.FirstError), LastError: Redact(o.LastError), FirstAt: o.FirstAt, LastAt: o.LastAt,
		History: attemptsOf(&o.Failures, 0),
	}
}

// noteRequeued marks the keys of what is to be requeued.
func (t *Trigger) noteRequeued(ctx context.Context, ends []*ending) error {
	any := false
	for _, e := range ends {
		any = any || e.requeue
	}
	if !any {
		return nil
	}
	return t.again(ctx, "noting what is requeued", func() error {
		return t.th.Update(ctx, func(tx *engine.Tx) error {
			r, err := tx.Records(table)
			if err != nil {
				return err
			}
			for _, e := range ends {
				if !e.requeue {
					continue
				}
				if err := t.putRequeued(r, e); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

func (t *Trigger) putRequeued(r *engine.Records, e *ending) error {
	if e.KeyAt == nil {
		return nil
	}
	old, err := t.keyOf(r, &item{at: e.KeyAt})
	if err != nil {
		return err
	}
	return putKey(r, e.KeyAt, old, &keyRecord{state: requeued, event: e.event, deliveries: e.Deliveries})
}

// storeEnds is the transaction of the settling. It may run more than once.
func (t *Trigger) storeEnds(ctx context.Context, ends []*ending) error {
	told := t.told
	positions := t.src.Capabilities().Positions
	err := t.th.Update(ctx, func(tx *engine.Tx) error {
		r, err := tx.Records(table)
		if err != nil {
			return err
		}
		if err := t.settleKeys(r, told); err != nil {
			return err
		}
		book := &ledger{r: r, prefix: key(kindLedger, t.cfg.Name)}
		for _, e := range ends {
			if err := r.Delete(t.cfg.openKey(e.event)); err != nil {
				return err
			}
			if e.failed && e.toDLQ {
				if err := errors.Join(t.putParked(r, e.park), tx.DropDead(t.cfg.Consumer, e.event)); err != nil {
					return err
				}
			}
			if e.requeue && !positions {
				if err := t.putRequeued(r, e); err != nil {
					return err
				}
			}
			if e.Row == 0 {
				continue
			}
			if err := book.update(e.Row, func(row *Row) { t.endRow(row, e) }); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	t.told = t.told[len(told):]
	return nil
}

func (t *Trigger) endRow(row *Row, e *ending) {
	row.Status = StatusSuccess
	if row.ModelCalls != nil {
		e.modelCalls = *row.ModelCalls
	}
	row.DurationMS = milliseconds(t.now().Sub(time.UnixMilli(e.Begun)))
	row.RetryCount = max(e.attempts, e.outcome.Attempts) // of what has passed only those that were seen are known
	row.AgentRunID = text(fmt.Sprintf("%s/%d", t.cfg.Consumer, e.event))
	if e.failed {
		row.Status, row.Error = StatusFailed, text(Redact(e.outcome.LastError))
		row.RetryCount = max(0, row.RetryCount-1)
		row.Attempts = attemptsOf(&e.outcome.Failures, 0)
	}
}

func (t *Trigger) noteEnd(e *ending) {
	took := t.now().Sub(time.UnixMilli(e.Begun))
	t.metrics.set(func(m *Metrics) { m.calls += e.modelCalls })
	if e.failed {
		t.metrics.done(StatusFailed, took)
		t.log.Error("failed", "trace_id", e.TraceID, "event", e.event, "attempts", e.outcome.Attempts, "policy", t.cfg.AckPolicy,
			"requeued", e.requeue, "dlq", e.toDLQ, "error", e.outcome.LastError)
		return
	}
	t.metrics.done(StatusSuccess, took)
	t.log.Info("handled", "trace_id", e.TraceID, "event", e.event, "attempts", e.attempts+1, "duration", took)
}

func newDeliveries(inOrder bool) *deliveries {
	return &deliveries{inOrder: inOrder, byKey: map[string][]*delivery{}}
}

// finish marks a delivery as done.
func (d *deliveries) finish(p *delivery) {
	p.done = true
	if !d.inOrder || p.m.Position == nil {
		d.ready = append(d.ready, p)
	}
}

// take returns what may be acknowledged.
func (d *deliveries) take() []*delivery {
	list := d.ready
	d.ready = nil
	for k, waiting := range d.byKey {
		n := 0
		for n < len(waiting) && waiting[n].done {
			n++
		}
		list = append(list, waiting[:n]...)
		if n == len(waiting) {
			delete(d.byKey, k)
		} else {
			d.byKey[k] = waiting[n:]
		}
	}
	return list
}

// ackDone acknowledges what may be, until the broker has it. What cannot be
// acknowledged without its connection is delivered again, and is known then.
func (t *Trigger) ackDone(ctx context.Context) error {
	list := t.deliveries.take()
	ms := make([]Message, 0, len(list))
	for _, d := range list {
		ms = append(ms, *d.m)
	}
	if len(ms) == 0 {
		return nil
	}
	now := t.now()
	if err := t.src.Ack(ctx, ms); err != nil {
		// The messages are stored. The broker delivers them again, or the next ones
		// stand for them: nothing is lost, and to wait here would help no process.
		t.log.Warn("the broker could not be told; it may deliver again", "messages", len(ms), "error", err)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return nil
	}
	debug := t.log.Enabled(ctx, slog.LevelDebug)
	for _, d := range list {
		if debug {
			t.log.Debug("acknowledged", "trace_id", "queue-"+d.m.ID)
		}
		if d.at != nil {
			t.told = append(t.told, toldKey{d.at, now, d.drop})
		}
	}
	return nil
}
