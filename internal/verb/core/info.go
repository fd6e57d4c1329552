package core

import (
	"context"
	"time"

	"thread/engine"
	"thread/internal/cli"
	"thread/internal/dispatch"
	"thread/internal/jsonform"
)

type infoCmd struct {
	cli.ThreadFlags
	cli.RootFlag
	cli.JSONFlag
}

var infoVerb = &cli.Verb{
	Name:    "info",
	Summary: "Show the number of events and each consumer's progress",
	Details: `For each consumer: its subscription, its progress, how many events are pending,
and how its handler is doing.`,
	Exits: "0 shown",
	Examples: `thread info --thread ./inbox
thread info --root ~/threads
thread info --thread ./inbox --json | jq '.subscriptions[].last_acked_id'`,
	Grammar: func() cli.Command { return new(infoCmd) },
}

func (c *infoCmd) Run(ctx context.Context, a *cli.App) error {
	return c.Each(a, &c.Thread, c.JSON, func(dir string) error { return c.one(ctx, a, dir) })
}

// one prints the state of one thread.
func (c *infoCmd) one(ctx context.Context, a *cli.App, dir string) error {
	t, err := a.Open(dir)
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
		return a.Out.IndentedJSON(jsonform.NewInfo(&info, consumers))
	}
	a.Out.Buf = appendInfoText(a.Out.Buf, info, consumers, time.Now())
	return nil
}

// countTime bounds the counting of pending events, which may have to read them
// all. The known clients wait 5 s for the whole command (T-30).
const countTime = time.Second

// consumerStates adds to info what is not in the subscriptions.
func consumerStates(ctx context.Context, a *cli.App, t *engine.Thread, info engine.Info) []jsonform.ConsumerState {
	counting, cancel := context.WithTimeout(ctx, countTime)
	defer cancel()
	consumers := make([]jsonform.ConsumerState, len(info.Subscriptions))
	names := make([]string, len(consumers))
	for i := range names {
		names[i] = info.Subscriptions[i].Consumer
	}
	backlogs := t.Backlogs(counting, names)
	for i, s := range info.Subscriptions {
		c := &consumers[i]
		c.ConsumerInfo = s
		if c.PendingErr = s.FilterErr; c.PendingErr == nil {
			c.Pending, c.Oldest, c.PendingErr = backlogs[i].Count, backlogs[i].Oldest, backlogs[i].Err
		}
		var err error
		if c.Handler, err = dispatch.Status(t, s.Consumer); err != nil {
			a.Warn("the state of the handler of '%s' is not known: %v", s.Consumer, err)
		}
	}
	return consumers
}
