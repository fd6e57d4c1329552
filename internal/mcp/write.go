package mcp

import (
	"context"
	"errors"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/dispatch"
	"thread/internal/jsonform"
)

type pushIn struct {
	ofThread
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

func (h *tools) push(ctx context.Context, t *engine.Thread, in *pushIn) (Pushed, error) {
	return h.store(ctx, t, event.Draft{Source: h.source(ctx), Type: in.Type, Subtype: in.Subtype, Content: in.Content, DedupeKey: in.Key})
}

func (h *tools) store(ctx context.Context, t *engine.Thread, d event.Draft) (out Pushed, err error) {
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

type askIn struct {
	pushIn
	Timeout string `json:"timeout,omitempty" jsonschema:"how long to wait for the reply, such as 30s (the default), up to 10m where the client allows calls of more than a minute"`
}

// Asked is what ask answers.
type Asked struct {
	ID     int64  `json:"id" jsonschema:"of the question, which stays stored"`
	Reply  *Event `json:"reply" jsonschema:"null when none came in time"`
	Text   string `json:"text,omitempty" jsonschema:"of the reply, without its envelope"`
	Filter string `json:"filter" jsonschema:"for wait, with id as after: the reply when it comes later"`
}

func (h *tools) ask(ctx context.Context, t *engine.Thread, in *askIn) (out Asked, err error) {
	if _, err := durationOf("timeout", in.Timeout, defaultWait, maxWait); err != nil {
		return out, err
	}
	p, err := h.push(ctx, t, &in.pushIn)
	if err != nil {
		return out, err
	}
	out.ID, out.Filter = p.ID, jsonform.RepliesTo(p.ID)
	got, err := h.wait(ctx, t, &waitIn{After: &p.ID, Filter: out.Filter, Timeout: in.Timeout, limits: limits{Limit: 1, Content: maxContent}})
	if err == nil && len(got.Events) > 0 {
		out.Reply, out.Text = &got.Events[0], jsonform.Answer(got.Events[0].Content)
	}
	return out, err
}

type replyIn struct {
	pushIn
	To int64 `json:"reply_to" jsonschema:"the id of the event that this one answers"`
}

func (h *tools) reply(ctx context.Context, t *engine.Thread, in *replyIn) (out Pushed, err error) {
	if in.To < 1 {
		return out, refusal("reply_to is not the id of an event")
	}
	if in.Content, err = jsonform.Reply(in.Content, in.To); err != nil {
		return out, refusal(err.Error())
	}
	return h.push(ctx, t, &in.pushIn)
}

type consumeIn struct {
	ofThread
	Consumer string `json:"consumer" jsonschema:"name of the consumer, subscribed with --pull"`
	Lease    string `json:"lease,omitempty" jsonschema:"how long the events are yours, such as 30s (the default) or 10m"`
	Ack      bool   `json:"ack,omitempty" jsonschema:"ack at once: the events are not redelivered, whatever becomes of them"`
	Timeout  string `json:"timeout,omitempty" jsonschema:"how long to wait when there is none, up to 10m; without it not at all"`
	limits
}

func (in *consumeIn) consumer() string { return in.Consumer }

// Delivery is what consume answers.
type Delivery struct {
	Events   []Event `json:"events" jsonschema:"none when there is nothing to take"`
	Delivery *string `json:"delivery" jsonschema:"for ack; null when nothing is to be acked"`
	Attempt  *int64  `json:"attempt"`
	Until    *string `json:"lease_until"`
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
	defer h.progress(ctx)()
	l, err := next(ctx, t, in.Consumer, o, timeout)
	if err != nil || len(l.Events) == 0 {
		return out, err
	}
	if ctx.Err() != nil && !in.Ack { // no process is there to get them
		_, _ = t.SettleDelivery(context.WithoutCancel(ctx), in.Consumer, l.Number(), engine.Result{Verdict: engine.Returned})
		return out, ctx.Err()
	}
	for i := range l.Events {
		out.Events = append(out.Events, newEvent(&l.Events[i], in.Content))
	}
	if !l.Until.IsZero() {
		delivery, until := h.key.Text(l.Number(), t.Address(), in.Consumer), event.FormatTime(l.Until)
		out.Delivery, out.Until = &delivery, &until
		if l.Attempt > 0 {
			out.Attempt = &l.Attempt
		}
	}
	return out, nil
}

// next takes events, for which it waits so long.
func next(ctx context.Context, t *engine.Thread, consumer string, o engine.NextOptions, timeout time.Duration) (l engine.Lease, err error) {
	take := func(ctx context.Context) (engine.Lease, error) { return dispatch.TakeNext(ctx, t, consumer, o) }
	if timeout == 0 {
		return take(context.WithoutCancel(ctx))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errTime)
	defer cancel()
	if l, err = dispatch.AwaitNext(ctx, t, take); errors.Is(err, errTime) {
		err = nil
	}
	return l, err
}

type ackIn struct {
	ofThread
	Consumer string  `json:"consumer" jsonschema:"name of the consumer"`
	Delivery string  `json:"delivery" jsonschema:"what consume answered"`
	Failed   *string `json:"failed,omitempty" jsonschema:"why the events could not be processed: an attempt is counted, and they are redelivered later"`
	Extend   string  `json:"extend,omitempty" jsonschema:"settle nothing, but keep the events for so long from now, such as 10m"`
}

func (in *ackIn) consumer() string { return in.Consumer }

// Acked is what ack answers.
type Acked struct {
	LastAcked int64   `json:"last_acked_id"`
	Until     *string `json:"lease_until,omitempty" jsonschema:"with extend"`
}

func (h *tools) ack(ctx context.Context, t *engine.Thread, in *ackIn) (out Acked, err error) {
	number, ok := h.key.Number(in.Delivery, t.Address(), in.Consumer)
	if !ok {
		return out, refusal("that delivery was not given to this client: give the one that consume answered")
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
		until, err := t.ExtendDelivery(ctx, in.Consumer, number, d)
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
		if _, err := t.SettleDelivery(ctx, in.Consumer, number, r); err != nil {
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
