package core

import (
	"context"

	"thread/internal/cli"
	"thread/internal/dispatch"
	"thread/internal/jsonform"
	"thread/internal/terminal"
)

type whyCmd struct {
	cli.ThreadFlags
	Consumer cli.Text `short:"c" required:"" placeholder:"CONSUMER" help:"The consumer, as subscribed."`
	EventID  cli.Text `name:"event-id" placeholder:"EVENT" help:"The id of the event."`
	Event    cli.Text `hidden:""` // as it was called first
	cli.JSONFlag

	ID cli.Text `arg:"" optional:"" name:"id" help:"The id of the event, in place of --event-id."`
}

var whyVerb = &cli.Verb{
	Name:    "why",
	Args:    "<id>",
	Summary: "Explain where an event is for a consumer",
	Details: `The first word is one of: not stored, not matched, bad filter, acked, pending, running,
retrying, stopped, stalled. The text after it explains what the event waits for, which
part of the filter excludes it, or which error stalled the consumer. See
docs/TROUBLESHOOTING.md.`,
	Exits:    "0 explained, whatever the answer is",
	Examples: `thread why --thread ./inbox --consumer worker 42`,
	Grammar:  func() cli.Command { return new(whyCmd) },
}

func (c *whyCmd) Run(ctx context.Context, a *cli.App) error {
	if !c.EventID.Set {
		c.EventID = c.Event
	}
	switch {
	case c.ID.Set == c.EventID.Set:
		return cli.UsageError("one event is to be named, as <id> or with --event-id", "for example thread why --consumer "+cli.ShellWord(c.Consumer.Value)+" 42")
	case c.ID.Set:
		c.EventID = c.ID
	}
	id, err := cli.ParseID("--event-id", c.EventID.Value)
	if err != nil {
		return err
	}
	t, err := a.OpenFor(c.Thread.Value, c.Consumer.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	answer, err := dispatch.Why(ctx, t, c.Consumer.Value, id)
	if err != nil {
		return err
	}
	if !c.JSON {
		return a.Out.Text(string(answer.Place) + ": " + terminal.Printable(answer.Text) + "\n")
	}
	return a.Out.JSON(jsonform.NewWhy(&answer))
}
