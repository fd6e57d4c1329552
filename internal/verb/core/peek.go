package core

import (
	"context"

	"thread/engine"
	"thread/internal/cli"
)

type peekCmd struct {
	cli.ThreadFlags
	LastEventID cli.Text `required:"" name:"last-event-id" placeholder:"N" help:"Print events with a higher id; 0 for all."`
	Limit       cli.Text `placeholder:"N" help:"How many events at most (default 100)."`
	Filter      cli.Text `placeholder:"WHERE" help:"Print only events that match, for example \"type = 'message'\"."`
	Since       cli.Text `placeholder:"TIME" help:"Print only events created at or after this time, for example 2026-03-18T10:30:00Z, or 90m for that long ago."`
	Reverse     bool     `help:"Newest first."`
	Explain     bool     `help:"Print how the events are found and what was read for that, instead of the events."`
	cli.JSONFlag
}

func peekVerb() *cli.Verb {
	return &cli.Verb{
		Name:    "peek",
		Summary: "Print events without consuming them",
		Details: "Needs no subscription and changes nothing.",
		Examples: `thread peek --thread ./inbox --last-event-id 0
thread peek --thread ./inbox --last-event-id 0 --limit 1000 --filter "source LIKE 'internal:%'"
thread peek --thread ./inbox --last-event-id 0 --reverse --limit 10 --since 24h
thread peek --thread ./inbox --last-event-id 0 --filter "content LIKE '%invoice%'" --explain`,
		Grammar: func() cli.Command { return new(peekCmd) },
	}
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
	q := engine.Query{After: last, Limit: limit, Filter: c.Filter.Value, Reverse: c.Reverse}
	if c.Since.Set {
		if q.Since, err = parseTime("--since", c.Since.Value); err != nil {
			return err
		}
	}
	if c.Explain {
		p, err := t.Explain(ctx, q)
		if err != nil {
			return err
		}
		if c.JSON {
			return printPlanJSON(a, p)
		}
		return a.Out.Text(planText(p))
	}
	_, err = printEvents(a, t.Events(ctx, q))
	return err
}
