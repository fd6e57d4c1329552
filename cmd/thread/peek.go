package main

import (
	"context"

	"thread/engine"
)

type peekCmd struct {
	threadFlags
	LastEventID text `required:"" name:"last-event-id" placeholder:"N" help:"Print events with a higher id; 0 for all."`
	Limit       text `placeholder:"N" help:"How many events at most (default 100)."`
	Filter      text `placeholder:"WHERE" help:"Print only events that match, for example \"type = 'message'\"."`
	Since       text `placeholder:"TIME" help:"Print only events created at or after this time, for example 2026-03-18T10:30:00Z, or 90m for that long ago."`
	Reverse     bool `help:"Newest first."`
	Explain     bool `help:"Print how the events are found and what was read for that, instead of the events."`
	jsonFlag
}

func peekVerb() *verb {
	return &verb{
		name:    "peek",
		summary: "Print events without consuming them",
		details: "Needs no subscription and changes nothing.",
		examples: `thread peek --thread ./inbox --last-event-id 0
thread peek --thread ./inbox --last-event-id 0 --limit 1000 --filter "source LIKE 'internal:%'"
thread peek --thread ./inbox --last-event-id 0 --reverse --limit 10 --since 24h
thread peek --thread ./inbox --last-event-id 0 --filter "content LIKE '%invoice%'" --explain`,
		grammar: func() command { return new(peekCmd) },
	}
}

func (c *peekCmd) run(ctx context.Context, a *app) error {
	t, err := a.open(c.Thread.value)
	if err != nil {
		return err
	}
	defer t.Close()
	last, err := parseID("--last-event-id", c.LastEventID.value)
	if err != nil {
		return err
	}
	limit, err := parseLimit(c.Limit.or("100"))
	if err != nil {
		return err
	}
	q := engine.Query{After: last, Limit: limit, Filter: c.Filter.value, Reverse: c.Reverse}
	if c.Since.set {
		if q.Since, err = parseTime("--since", c.Since.value); err != nil {
			return err
		}
	}
	if c.Explain {
		p, err := t.Explain(ctx, q)
		if err != nil {
			return err
		}
		return a.out.text(planWords(p, c.JSON))
	}
	_, err = a.printEvents(t.Events(ctx, q))
	return err
}
