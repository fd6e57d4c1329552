package main

import (
	"context"
	"strings"

	"thread/dispatch"
	"thread/event"
)

type whyCmd struct {
	threadFlags
	Consumer text `required:"" placeholder:"ID" help:"The consumer, as subscribed."`
	Event    text `required:"" placeholder:"N" help:"The id of the event."`
	jsonFlag
}

func whyVerb() *verb {
	return &verb{
		name:    "why",
		summary: "Explain where an event is for a consumer",
		details: `The first word is one of: not stored, not matched, bad filter, acked, pending,
running, retrying, stopped, stalled. What follows says behind what it waits,
which part of the filter leaves it out, or after which error it stalled.`,
		examples: `thread why --thread ./inbox --consumer worker --event 42`,
		grammar:  func() command { return new(whyCmd) },
	}
}

func (c *whyCmd) run(ctx context.Context, a *app) error {
	t, err := a.openFor(c.Thread.value, c.Consumer.value)
	if err != nil {
		return err
	}
	defer t.Close()
	id, err := parseID("--event", c.Event.value)
	if err != nil {
		return err
	}
	answer, err := dispatch.Why(ctx, t, c.Consumer.value, id)
	if err != nil {
		return a.aboutConsumer(err, c.Consumer.value)
	}
	if !c.JSON {
		return a.out.text(string(answer.Place) + ": " + printable(answer.Text) + "\n")
	}
	b := event.AppendString([]byte(`{"place":`), strings.ReplaceAll(string(answer.Place), " ", "_"))
	b = event.AppendString(append(b, `,"text":`...), answer.Text)
	return a.out.text(string(b) + "}\n")
}
