package core

import (
	"context"

	"thread/internal/cli"
)

type unsubscribeCmd struct {
	cli.ThreadFlags
	Consumer cli.Text `short:"c" required:"" placeholder:"CONSUMER" help:"The consumer, as subscribed."`
}

func unsubscribeVerb() *cli.Verb {
	return &cli.Verb{
		Name:     "unsubscribe",
		Summary:  "Remove a subscription",
		Details:  "The consumer's progress is kept: when it subscribes again, it continues.",
		Exits:    "0 removed; the progress stays",
		Examples: `thread unsubscribe --thread ./inbox --consumer worker`,
		Grammar:  func() cli.Command { return new(unsubscribeCmd) },
	}
}

func (c *unsubscribeCmd) Run(ctx context.Context, a *cli.App) error {
	t, err := a.OpenFor(c.Thread.Value, c.Consumer.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	if err := t.Unsubscribe(ctx, c.Consumer.Value); err != nil {
		return err
	}
	return a.Out.Text("Unsubscribed consumer '" + cli.Printable(c.Consumer.Value) + "'\n")
}
