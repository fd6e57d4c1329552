package core

import (
	"context"
	"fmt"
	"time"

	"thread/engine"
	"thread/internal/cli"
)

type ackCmd struct {
	cli.ThreadFlags
	Consumer cli.Text `short:"c" required:"" placeholder:"CONSUMER" help:"The consumer, as subscribed."`
	EventID  cli.Text `name:"event-id" placeholder:"EVENT" help:"The highest id now processed. Required without --delivery."`
	Delivery cli.Text `placeholder:"DELIVERY" help:"The delivery of thread next that is now processed."`
	Failed   cli.Text `placeholder:"TEXT" help:"With --delivery: it failed, for this reason. An attempt is counted, and it is tried again later."`
	Extend   cli.Text `placeholder:"DURATION" help:"With --delivery: it goes on, and its lease is over in so long from now."`
	cli.JSONFlag
}

func ackVerb() *cli.Verb {
	return &cli.Verb{
		Name:    "ack",
		Summary: "Move a consumer's progress forward",
		Details: `An id at or below the progress changes nothing; one above the newest event is
refused. So is a delivery that is not out any more: its lease was over, and its events
were given out again, or the consumer was moved by thread seek.`,
		Exits: "0 stored, or the progress was there already\n1 --delivery is not the number that is out, or its lease is over and somebody has taken it",
		Examples: `thread ack --thread ./inbox --consumer worker --event-id 42
thread ack --thread ./inbox --consumer nightly --delivery 7
thread ack --thread ./inbox --consumer nightly --delivery 7 --failed "no route to host"
thread ack --thread ./inbox --consumer nightly --delivery 7 --extend 10m`,
		Grammar: func() cli.Command { return new(ackCmd) },
	}
}

func (c *ackCmd) Run(ctx context.Context, a *cli.App) error {
	t, err := a.OpenFor(c.Thread.Value, c.Consumer.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	var id, at int64
	switch {
	case c.Delivery.Set == c.EventID.Set:
		return cli.UsageError("one of --event-id and --delivery is needed", "give the id of an event, or the number that thread next printed")
	case c.Delivery.Set:
		return c.settle(ctx, a, t)
	case c.Failed.Set || c.Extend.Set:
		return cli.UsageError("--failed and --extend go with --delivery", "give the number that thread next printed")
	}
	if id, err = cli.ParseID("--event-id", c.EventID.Value); err != nil {
		return err
	}
	err = t.Update(ctx, func(tx *engine.Tx) error {
		if err := tx.Ack(c.Consumer.Value, id); err != nil {
			return err
		}
		p, _, err := tx.Progress(c.Consumer.Value)
		at = p.LastAcked
		return err
	})
	if err != nil || !c.JSON {
		return err
	}
	return a.Out.JSON(progressJSON{c.Consumer.Value, at})
}

// progressJSON is where a consumer stands after ack and seek.
type progressJSON struct {
	Consumer  string `json:"consumer_id"`
	LastAcked int64  `json:"last_acked_id"`
}

// settle stores the result of a delivery, or draws it out.
func (c *ackCmd) settle(ctx context.Context, a *cli.App, t *engine.Thread) error {
	number, ok := cli.ParseNumber(c.Delivery.Value)
	if !ok {
		return cli.UsageError(fmt.Sprintf("--delivery %q is not a number", c.Delivery.Value), "give the one that thread next printed")
	}
	if c.Failed.Set && c.Extend.Set {
		return cli.UsageError("--failed and --extend exclude each other", "give one of them")
	}
	var err error
	if c.Extend.Set {
		var d time.Duration
		if d, err = parseLease("--extend", c.Extend.Value); err == nil {
			_, err = t.ExtendDelivery(ctx, c.Consumer.Value, number, d)
		}
	} else {
		r := engine.Result{Verdict: engine.Succeeded}
		if c.Failed.Set {
			r = engine.Result{Verdict: engine.Failed, ExitCode: -1, Error: c.Failed.Value}
		}
		_, err = t.SettleDelivery(ctx, c.Consumer.Value, number, r)
	}
	if err != nil || !c.JSON {
		return err
	}
	var p engine.Progress
	if err := t.View(ctx, func(tx *engine.Tx) error { p, _, err = tx.Progress(c.Consumer.Value); return err }); err != nil {
		return err
	}
	return a.Out.JSON(progressJSON{c.Consumer.Value, p.From()})
}
