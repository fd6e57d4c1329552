package core

import (
	"context"
	"fmt"
	"time"

	"thread/engine"
	"thread/internal/cli"
)

type seekCmd struct {
	cli.ThreadFlags
	Consumer cli.Text `short:"c" required:"" placeholder:"CONSUMER" help:"The consumer, as subscribed."`
	To       cli.Text `required:"" placeholder:"POSITION" help:"beginning, end, the id of the last event that counts as processed, or a time, as for peek --since: then the first event at or after it comes next."`
	cli.JSONFlag
}

func seekVerb() *cli.Verb {
	return &cli.Verb{
		Name:    "seek",
		Summary: "Move a consumer's position forward or back",
		Details: `The events after that position are delivered (again). An id means the same as in pop
and ack: everything up to it is processed. A time is for example 2026-03-18,
18:00, 2026-03-18T10:30:00Z, or 90m for that long ago; without a zone it is local
time. Failed attempts are forgotten, dead letters stay.`,
		Exits: "0 the position is stored",
		Examples: `thread seek --thread ./inbox --consumer worker --to beginning
thread seek --thread ./inbox --consumer worker --to 41
thread seek --thread ./inbox --consumer worker --to 2026-03-18T10:30:00Z
thread seek --thread ./inbox --consumer worker --to 24h`,
		Grammar: func() cli.Command { return new(seekCmd) },
	}
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
	return a.Out.Text(fmt.Sprintf("Consumer '%s' is at %d\n", cli.Printable(id), to.id))
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
