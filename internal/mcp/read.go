package mcp

import (
	"context"
	"errors"

	"thread/engine"
	"thread/internal/dispatch"
	"thread/internal/jsonform"
)

type peekIn struct {
	ofThread
	After   int64  `json:"after,omitempty" jsonschema:"only events with a higher id"`
	Filter  string `json:"filter,omitempty" jsonschema:"an SQL expression such as type = 'message' AND source GLOB 'ci:*'"`
	Reverse bool   `json:"reverse,omitempty" jsonschema:"newest first"`
	limits
}

// Events is what peek answers.
type Events struct {
	Events []Event `json:"events"`
	Last   int64   `json:"last_id" jsonschema:"the highest id of these: continue with it as after"`
}

// add adds an event, and reports whether the answer is full.
func (a *Events) add(e *Event) (full bool) {
	a.Events, a.Last = append(a.Events, *e), max(a.Last, e.ID)
	bytes := 0
	for i := range a.Events {
		bytes += len(a.Events[i].Content)
	}
	return bytes >= answerBytes
}

var errSearch error = refusal("the search took too long: look at fewer events, with after, or with a filter of source, type or subtype, which are indexed")

func (h *tools) peek(ctx context.Context, t *engine.Thread, in *peekIn) (out Events, err error) {
	if err := in.check(defaultEvents); err != nil {
		return out, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, searchTime, errSearch)
	defer cancel()
	out = Events{Events: []Event{}, Last: in.After}
	for e, err := range t.Events(ctx, engine.Query{After: in.After, Filter: in.Filter, Limit: in.Limit, Reverse: in.Reverse}) {
		if err != nil {
			return out, because(ctx, err)
		}
		if j := newEvent(&e, in.Content); out.add(&j) {
			break
		}
	}
	return out, nil
}

// because is the reason for which ctx has ended, if it is, however a call puts it.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

type waitIn struct {
	ofThread
	Filter  string `json:"filter,omitempty" jsonschema:"an SQL expression such as type = 'reply' AND content ->> '$.reply_to' = 42"`
	After   *int64 `json:"after,omitempty" jsonschema:"also those that are there already with a higher id; without it only those that are pushed from now on"`
	Timeout string `json:"timeout,omitempty" jsonschema:"how long to wait, such as 30s (the default), up to 10m where the client allows calls of more than a minute"`
	limits
}

// Awaited is what wait answers. It has the members of Events, which the schema would not
// have of an embedded struct with a field of its name.
type Awaited struct {
	Events   []Event `json:"events"`
	Last     int64   `json:"last_id" jsonschema:"continue with this as after"`
	TimedOut bool    `json:"timed_out" jsonschema:"fewer than limit came in time"`
}

var errTime = errors.New("the time has ended")

func (h *tools) wait(ctx context.Context, t *engine.Thread, in *waitIn) (out Awaited, err error) {
	if err := in.check(1); err != nil {
		return out, err
	}
	timeout, err := durationOf("timeout", in.Timeout, defaultWait, maxWait)
	if err != nil {
		return out, err
	}
	var head int64
	if err := t.View(ctx, func(tx *engine.Tx) error { head = tx.Head(); return nil }); err != nil {
		return out, err
	}
	found := Events{Events: []Event{}, Last: head}
	defer func() { out.Events, out.Last = found.Events, found.Last }()
	if in.After != nil {
		if found.Last = *in.After; found.Last < 0 || found.Last > head {
			return out, refuse("after is not from 0 to %d, the newest event", head)
		}
	}
	defer h.progress(ctx)()
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errTime)
	defer cancel()
	for e, err := range t.Follow(ctx, found.Last, in.Filter) {
		if err != nil {
			if err = because(ctx, err); errors.Is(err, errTime) {
				out.TimedOut = true
				return out, nil
			}
			return out, err
		}
		if j := newEvent(&e, in.Content); found.add(&j) || int64(len(found.Events)) == in.Limit {
			break
		}
	}
	return out, nil
}

type whyIn struct {
	ofThread
	Consumer string `json:"consumer" jsonschema:"name of the consumer"`
	ID       int64  `json:"event_id"`
}

func (in *whyIn) consumer() string { return in.Consumer }

func (h *tools) why(ctx context.Context, t *engine.Thread, in *whyIn) (jsonform.Why, error) {
	answer, err := dispatch.Why(ctx, t, in.Consumer, in.ID)
	if err != nil {
		return jsonform.Why{}, err
	}
	return jsonform.NewWhy(&answer), nil
}
