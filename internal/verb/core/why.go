package core

import (
	"context"
	"strings"

	"thread/internal/cli"
	"thread/internal/dispatch"
)

type whyCmd struct {
	cli.ThreadFlags
	Consumer cli.Text `required:"" placeholder:"ID" help:"The consumer, as subscribed."`
	Event    cli.Text `required:"" placeholder:"N" help:"The id of the event."`
	cli.JSONFlag
}

func whyVerb() *cli.Verb {
	return &cli.Verb{
		Name:    "why",
		Summary: "Explain where an event is for a consumer",
		Details: `The first word is one of: not stored, not matched, bad filter, acked, pending,
running, retrying, stopped, stalled. What follows says behind what it waits,
which part of the filter leaves it out, or after which error it stalled.`,
		Examples: `thread why --thread ./inbox --consumer worker --event 42`,
		Grammar:  func() cli.Command { return new(whyCmd) },
	}
}

func (c *whyCmd) Run(ctx context.Context, a *cli.App) error {
	t, err := a.OpenFor(c.Thread.Value, c.Consumer.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	id, err := cli.ParseID("--event", c.Event.Value)
	if err != nil {
		return err
	}
	answer, err := dispatch.Why(ctx, t, c.Consumer.Value, id)
	if err != nil {
		return err
	}
	if !c.JSON {
		return a.Out.Text(string(answer.Place) + ": " + cli.Printable(answer.Text) + "\n")
	}
	return a.Out.JSON(struct {
		Place string `json:"place"`
		Text  string `json:"text"`
	}{strings.ReplaceAll(string(answer.Place), " ", "_"), answer.Text})
}
