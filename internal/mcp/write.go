package mcp

import (
	"context"
	"errors"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/dispatch"
)

type pushIn struct {
	ofThread
	Source  string  `json:"source" jsonschema:"who sends the event"`
	Type    string  `json:"type" jsonschema:"what the event is"`
	Subtype *string `json:"subtype,omitempty" jsonschema:"what it is more precisely"`
	Content string  `json:"content" jsonschema:"the payload, any text"`
	Key     string  `json:"dedupe_key,omitempty" jsonschema:"stores nothing if an event was pushed with this key in the last 24 hours, and answers the id of that one"`
}

// Pushed is what push answers.
type Pushed struct {
	ID        int64  `json:"id"`
	CreatedAt string `json:"created_at,omitempty"`
	Duplicate bool   `json:"duplicate" jsonschema:"it was stored before, with the same dedupe_key"`
}

func (h *tools) push(ctx context.Context, t *engine.Thread, in *pushIn) (out Pushed, err error) {
	d := event.Draft{Source: in.Source, Type: in.Type, Subtype: in.Subtype, Content: in.Content, DedupeKey: in.Key}
	d.ToValidUTF8()
	if err := d.Validate(); err != nil {
		return out, err
	}
	// What is begun is brought to an end: who gives up waiting does not know otherwise.
	b, err := t.PushAll(context.WithoutCancel(ctx), func(yield func(event.Draft, error) bool) { yield(d, nil) })
	if err != nil {
		return out, err
	}
	if b.First != 0 {
		h.host.Pushed(t, b)
	} else {
		out.Duplicate = true
	}
	for out.ID = range b.IDs() {
	}
	if !out.Duplicate {
		out.CreatedAt = b.CreatedAt
	}
	return out, nil
}

type consumeIn struct {
	ofThread
	Consumer string `json:"consumer" jsonschema:"name of the consumer, subscribed with --pull"`
	Lease    string `json:"lease,omitempty" jsonschema:"how long the events are yours, such as 30s (the default) or 10m"`
	Ack      bool   `json:"ack,omitempty" jsonschema:"ack at once: the events do not come again, whatever becomes of them"`
	Timeout  string `json:"timeout,omitempty" jsonschema:"how long to wait when there is none, up to 10m; without it not at all"`
	limits
}

func (in *consumeIn) consumer() string { return in.Consumer }

// Delivery is what consume answers.
type Delivery struct {
	Events  []Event `json:"events" jsonschema:"none when there is nothing to take"`
	Number  *int64  `json:"delivery" jsonschema:"for ack; null when nothing is to be acked"`
	Attempt *int64  `json:"attempt"`
	Until   *string `json:"lease_until"`
}

func (h *tools) consume(ctx context.Context, t *engine.Thread, in *consumeIn) (out Delivery, err error) {
	out.Events = []Event{}
	if err := in.check(1); err != nil {
		return out, err
	}
	o := engine.NextOptions{Limit: in.Limit, Ack: in.Ack}
	if o.Lease, err = durationOf("lease", in.Lease, 0, maxLease); err != nil {
		return out, err
	}
	if in.Lease != "" && (in.Ack || o.Lease < time.Millisecond) {
		return out, refusal("lease is shorter than 1ms, or given together with ack")
	}
	timeout, err := durationOf("timeout", in.Timeout, 0, maxWait)
	if err != nil {
		return out, err
	}
	l, err := next(ctx, t, in.Consumer, o, timeout)
	if err != nil || len(l.Events) == 0 {
		return out, err
	}
	if ctx.Err() != nil && !in.Ack { // nobody is there to get them
		_, _ = t.SettleDelivery(context.WithoutCancel(ctx), in.Consumer, l.Number(), engine.Result{Verdict: engine.Returned})
		return out, ctx.Err()
	}
	for i := range l.Events {
		out.Events = append(out.Events, newEvent(&l.Events[i], in.Content))
	}
	if !l.Until.IsZero() {
		number, until := l.Number(), event.FormatTime(l.Until)
		out.Number, out.Until = &number, &until
		if l.Attempt > 0 {
			out.Attempt = &l.Attempt
		}
	}
	return out, nil
}

// next takes events, for which it waits so long.
func next(ctx context.Context, t *engine.Thread, consumer string, o engine.NextOptions, timeout time.Duration) (l engine.Lease, err error) {
	if timeout == 0 {
		return dispatch.TakeNext(context.WithoutCancel(ctx), t, consumer, o)
	}
	w, err := t.Watch()
	if err != nil {
		return l, err
	}
	defer w.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errTime)
	defer cancel()
	for {
		// What is begun is brought to an end: a lease that nobody hears of is lost time.
		l, err = dispatch.TakeNext(context.WithoutCancel(ctx), t, consumer, o)
		if err != nil || len(l.Events) > 0 {
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
		if err := w.Wait(ctx, until); errors.Is(because(ctx, err), errTime) {
			return l, nil
		} else if err != nil {
			return l, err
		}
	}
}

type ackIn struct {
	ofThread
	Consumer string  `json:"consumer" jsonschema:"name of the consumer"`
	Delivery int64   `json:"delivery" jsonschema:"the number that consume answered"`
	Failed   *string `json:"failed,omitempty" jsonschema:"why the events could not be processed: an attempt is counted, and they come again later"`
	Extend   string  `json:"extend,omitempty" jsonschema:"settle nothing, but keep the events for so long from now, such as 10m"`
}

func (in *ackIn) consumer() string { return in.Consumer }

// Acked is what ack answers.
type Acked struct {
	LastAcked int64   `json:"last_acked_id"`
	Until     *string `json:"lease_until,omitempty" jsonschema:"with extend"`
}

func (h *tools) ack(ctx context.Context, t *engine.Thread, in *ackIn) (out Acked, err error) {
	if in.Delivery < 1 {
		return out, refusal("delivery is not a number from 1: give the one that consume answered")
	}
	switch {
	case in.Extend != "" && in.Failed != nil:
		return out, refusal("failed and extend exclude each other: give one of them")
	case in.Extend != "":
		d, err := durationOf("extend", in.Extend, 0, maxLease)
		if err == nil && d < time.Millisecond {
			err = refuse("extend is shorter than 1ms")
		}
		if err != nil {
			return out, err
		}
		until, err := t.ExtendDelivery(ctx, in.Consumer, in.Delivery, d)
		if err != nil {
			return out, err
		}
		text := event.FormatTime(until)
		out.Until = &text
	default:
		r := engine.Result{Verdict: engine.Succeeded}
		if in.Failed != nil {
			r = engine.Result{Verdict: engine.Failed, ExitCode: -1, Error: *in.Failed}
		}
		if _, err := t.SettleDelivery(ctx, in.Consumer, in.Delivery, r); err != nil {
			return out, err
		}
	}
	err = t.View(ctx, func(tx *engine.Tx) error {
		p, _, err := tx.Progress(in.Consumer)
		out.LastAcked = p.From()
		return err
	})
	return out, err
}
