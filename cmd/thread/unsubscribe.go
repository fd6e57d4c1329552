package main

import "context"

type unsubscribeCmd struct {
	threadFlags
	Consumer text `required:"" placeholder:"ID" help:"The consumer, as subscribed."`
}

func unsubscribeVerb() *verb {
	return &verb{
		name:     "unsubscribe",
		summary:  "Remove a subscription",
		details:  "The consumer's progress is kept: when it subscribes again, it continues.",
		examples: `thread unsubscribe --thread ./inbox --consumer worker`,
		grammar:  func() command { return new(unsubscribeCmd) },
	}
}

func (c *unsubscribeCmd) run(ctx context.Context, a *app) error {
	t, err := a.openFor(c.Thread.value, c.Consumer.value)
	if err != nil {
		return err
	}
	defer t.Close()
	if err := t.Unsubscribe(ctx, c.Consumer.value); err != nil {
		return a.aboutConsumer(err, c.Consumer.value)
	}
	return a.out.text("Unsubscribed consumer '" + printable(c.Consumer.value) + "'\n")
}
