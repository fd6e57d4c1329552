package core

import (
	"context"
	"time"

	"thread/engine"
	"thread/internal/cli"
	"thread/internal/dispatch"
)

type infoCmd struct {
	cli.ThreadFlags
	cli.JSONFlag
}

func infoVerb() *cli.Verb {
	return &cli.Verb{
		Name:    "info",
		Summary: "Show the number of events and each consumer's progress",
		Details: `For each consumer: its subscription, its progress, how many events are pending,
and how its handler is doing.`,
		Examples: `thread info --thread ./inbox
thread info --thread ./inbox --json | jq '.subscriptions[].last_acked_id'`,
		Grammar: func() cli.Command { return new(infoCmd) },
	}
}

func (c *infoCmd) Run(ctx context.Context, a *cli.App) error {
	t, err := a.Open(c.Thread.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	info, err := t.Info(ctx)
	if err != nil {
		return err
	}
	consumers := consumerStates(ctx, a, t, info)
	if c.JSON {
		return a.Out.IndentedJSON(newInfoJSON(&info, consumers))
	}
	a.Out.Buf = appendInfoText(a.Out.Buf, info, consumers, time.Now())
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
// all. The known clients wait 5 s for the whole command (T-30).
const countTime = time.Second

// consumerStates adds to info what is not in the subscriptions.
func consumerStates(ctx context.Context, a *cli.App, t *engine.Thread, info engine.Info) []consumer {
	counting, cancel := context.WithTimeout(ctx, countTime)
	defer cancel()
	consumers := make([]consumer, len(info.Subscriptions))
	names := make([]string, len(consumers))
	for i := range names {
		names[i] = info.Subscriptions[i].Consumer
	}
	backlogs := t.Backlogs(counting, names)
	for i, s := range info.Subscriptions {
		c := &consumers[i]
		c.ConsumerInfo = s
		if c.pendingErr = s.FilterErr; c.pendingErr == nil {
			c.pending, c.oldest, c.pendingErr = backlogs[i].Count, backlogs[i].Oldest, backlogs[i].Err
		}
		var err error
		if c.handler, err = dispatch.Status(t, s.Consumer); err != nil {
			a.Warn("the state of the handler of '%s' is not known: %v", s.Consumer, err)
		}
	}
	return consumers
}
