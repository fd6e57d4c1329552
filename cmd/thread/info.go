package main

import (
	"context"
	"time"

	"thread/dispatch"
	"thread/engine"
)

type infoCmd struct {
	threadFlags
	jsonFlag
}

func infoVerb() *verb {
	return &verb{
		name:    "info",
		summary: "Show how many events there are and how far each consumer is",
		details: `For each consumer: its subscription, its progress, how many events are pending,
and how its handler is doing.`,
		examples: `thread info --thread ./inbox
thread info --thread ./inbox --json | jq '.subscriptions[].last_acked_id'`,
		grammar: func() command { return new(infoCmd) },
	}
}

func (c *infoCmd) run(ctx context.Context, a *app) error {
	t, err := a.open(c.Thread.value)
	if err != nil {
		return err
	}
	defer t.Close()
	info, err := t.Info(ctx)
	if err != nil {
		return err
	}
	consumers := a.look(ctx, t, info)
	if c.JSON {
		a.out.buf = appendInfoJSON(a.out.buf, info, consumers)
	} else {
		a.out.buf = appendInfoText(a.out.buf, info, consumers, time.Now())
	}
	return nil
}

// consumer is what info shows of one.
type consumer struct {
	engine.ConsumerInfo
	pending    int64
	oldest     string // created_at of the oldest pending event, "" when there is none
	pendingErr error  // pending and oldest are not known
	handler    dispatch.State
}

// countTime bounds the counting of pending events, which may have to read them
// all. The known clients wait 5 s for the whole command (contract T-30).
const countTime = time.Second

// look adds to info what is not in the subscriptions.
func (a *app) look(ctx context.Context, t *engine.Thread, info engine.Info) []consumer {
	counting, cancel := context.WithTimeout(ctx, countTime)
	defer cancel()
	consumers := make([]consumer, len(info.Subscriptions))
	for i, s := range info.Subscriptions {
		c := &consumers[i]
		c.ConsumerInfo = s
		if c.pendingErr = s.FilterErr; c.pendingErr == nil {
			c.pending, c.oldest, c.pendingErr = t.Backlog(counting, s.Consumer)
		}
		var err error
		if c.handler, err = dispatch.Status(t, s.Consumer); err != nil {
			a.warn("the state of the handler of '%s' is not known: %v", s.Consumer, err)
		}
	}
	return consumers
}
