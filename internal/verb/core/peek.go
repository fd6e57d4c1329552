package core

import (
	"context"
	"time"

	"thread/engine"
	"thread/internal/cli"
	"thread/internal/jsonform"
)

type peekCmd struct {
	cli.ThreadFlags
	LastEventID cli.Text `required:"" name:"last-event-id" placeholder:"EVENT" help:"Print events with a higher id; 0 for all."`
	Limit       cli.Text `placeholder:"N" help:"How many events at most (default 100)."`
	Filter      cli.Text `placeholder:"WHERE" help:"Print only events that match, for example \"type = 'message'\"."`
	cli.SeriesFlags
	Since   cli.Text `placeholder:"TIME" help:"Print only events created at or after this time: 90m for so long ago, 18:00, yesterday 09:00, 2026-03-18T10:30:00Z. Without a zone it is local time."`
	Reverse bool     `help:"Newest first."`
	Explain bool     `help:"Print how the events are found and what was read for that, instead of the events."`
	parseFlag
	cli.JSONFlag
}

var peekVerb = &cli.Verb{
	Name:    "peek",
	Summary: "Print events without consuming them",
	Details: "Needs no subscription and changes nothing.",
	Exits:   "0 what matches is printed, perhaps nothing",
	Examples: `thread peek --thread ./inbox --last-event-id 0
thread peek --thread ./inbox --last-event-id 0 --limit 1000 --filter "source LIKE 'internal:%'"
thread peek --thread ./inbox --last-event-id 0 --source 'external:*' --type message
thread peek --thread ./inbox --last-event-id 0 --reverse --limit 10 --since 24h
thread peek --thread ./inbox --last-event-id 0 --filter "content LIKE '%invoice%'" --explain`,
	Grammar: func() cli.Command { return new(peekCmd) },
}

func (c *peekCmd) Run(ctx context.Context, a *cli.App) error {
	t, err := a.Open(c.Thread.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	last, err := cli.ParseID("--last-event-id", c.LastEventID.Value)
	if err != nil {
		return err
	}
	limit, err := cli.ParseLimit(c.Limit.Or("100"))
	if err != nil {
		return err
	}
	where, err := c.Where(c.Filter.Value)
	if err != nil {
		return err
	}
	q := engine.Query{After: last, Limit: limit, Filter: where, Reverse: c.Reverse}
	if c.Since.Set {
		if q.Since, err = cli.ParseTime("--since", c.Since.Value, time.Now(), cli.Past); err != nil {
			return err
		}
	}
	if c.Explain {
		p, err := t.Explain(ctx, q)
		if err != nil {
			return err
		}
		if c.JSON {
			return a.Out.JSON(jsonform.NewPlan(p))
		}
		return a.Out.Text(planText(p))
	}
	_, err = printEvents(a, t.Events(ctx, q), c.parseFlag)
	return err
}
