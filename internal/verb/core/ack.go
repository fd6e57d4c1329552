package core

import (
	"context"
	"fmt"
	"time"

	"thread/engine"
	"thread/internal/cli"
	"thread/internal/terminal"
)

type ackCmd struct {
	cli.ThreadFlags
	Consumer cli.Text `short:"c" required:"" placeholder:"CONSUMER" help:"The consumer, as subscribed."`
	EventID  cli.Text `name:"event-id" placeholder:"EVENT" help:"The highest id now processed. Required without --delivery."`
	Delivery cli.Text `placeholder:"DELIVERY" help:"The delivery of thread next that is now processed."`
	Failed   cli.Text `placeholder:"TEXT" help:"With --delivery: it failed, for this reason. An attempt is counted, and it is tried again later."`
	Extend   cli.Text `placeholder:"DURATION" help:"With --delivery: extend its lease by DURATION from now."`
	cli.JSONFlag
}

var ackVerb = &cli.Verb{
	Name:    "ack",
	Summary: "Move a consumer's progress forward",
	Details: `An id at or below the progress changes nothing; an id above the newest event is refused.
A delivery is refused when it is no longer in flight: its lease expired and its events
were redelivered, or thread seek moved the consumer.`,
	Exits: "0 stored, or the progress was there already\n1 --delivery is not the number in flight, or its lease has ended and another process has taken it",
	Examples: `thread ack --thread ./inbox --consumer worker --event-id 42
thread ack --thread ./inbox --consumer nightly --delivery 7
thread ack --thread ./inbox --consumer nightly --delivery 7 --failed "no route to host"
thread ack --thread ./inbox --consumer nightly --delivery 7 --extend 10m`,
	Grammar: func() cli.Command { return new(ackCmd) },
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

type seekCmd struct {
	cli.ThreadFlags
	Consumer cli.Text `short:"c" required:"" placeholder:"CONSUMER" help:"The consumer, as subscribed."`
	To       cli.Text `required:"" placeholder:"POSITION" help:"beginning, end, the id of the last event that counts as processed, or a time, as for peek --since: then the first event at or after it comes next."`
	cli.JSONFlag
}

var seekVerb = &cli.Verb{
	Name:    "seek",
	Summary: "Move a consumer's position forward or back",
	Details: `The events after that position are delivered (again). An id means the same as in pop and
ack: everything up to it is processed. A time is for example 2026-03-18, 18:00,
2026-03-18T10:30:00Z, or 90m for 90 minutes ago; without a zone it is local time. Failed
attempts are forgotten; dead letters stay.`,
	Exits: "0 the position is stored",
	Examples: `thread seek --thread ./inbox --consumer worker --to beginning
thread seek --thread ./inbox --consumer worker --to 41
thread seek --thread ./inbox --consumer worker --to 2026-03-18T10:30:00Z
thread seek --thread ./inbox --consumer worker --to 24h`,
	Grammar: func() cli.Command { return new(seekCmd) },
}

func (c *seekCmd) Run(ctx context.Context, a *cli.App) error {
	id := c.Consumer.Value
	t, err := a.OpenFor(c.Thread.Value, id)
	if err != nil {
		return err
	}
	defer t.Close()
	to, err := parsePlace("--to", c.To.Value, true)
	if err != nil {
		return err
	}
	if !to.at.IsZero() {
		if to.id, err = t.Before(ctx, to.at); err != nil {
			return err
		}
	}
	if err := t.Update(ctx, func(tx *engine.Tx) (err error) { to.id, err = to.seek(tx, id); return err }); err != nil {
		return err
	}
	startHandlers(ctx, a, t, "seek", id)
	if c.JSON {
		return a.Out.JSON(progressJSON{id, to.id})
	}
	return a.Out.Text(fmt.Sprintf("Consumer '%s' is at %d\n", terminal.Printable(id), to.id))
}

// place is where a consumer is to stand: behind the event id.
type place struct {
	id  int64
	end bool      // behind the newest event
	at  time.Time // not zero: before the first event at or after this time
}

// seek puts consumer there and returns the id.
func (p place) seek(tx *engine.Tx, consumer string) (int64, error) {
	if p.end {
		p.id = tx.Head()
	}
	return p.id, tx.Seek(consumer, p.id)
}

func parsePlace(flag, s string, times bool) (place, error) {
	switch s {
	case "beginning":
		return place{}, nil
	case "end":
		return place{end: true}, nil
	}
	if n, ok := cli.ParseNumber(s); ok {
		return place{id: n}, nil
	}
	if !times {
		return place{}, cli.UsageError(fmt.Sprintf("%s %q is not beginning, end, or an id", flag, s), "give one of them")
	}
	at, err := cli.ParseTime(flag, s, time.Now(), cli.Past)
	if err != nil {
		return place{}, cli.UsageError(fmt.Sprintf("%s %q is not beginning, end, an id, or a time", flag, s),
			"give one of them; a time is "+cli.TimeHelp)
	}
	return place{at: at}, nil
}
