package main

import (
	"context"
	"fmt"

	"thread/engine"
)

type ackCmd struct {
	threadFlags
	Consumer text `required:"" placeholder:"ID" help:"The consumer, as subscribed."`
	EventID  text `required:"" name:"event-id" placeholder:"N" help:"The highest id now processed."`
	jsonFlag
}

func ackVerb() *verb {
	return &verb{
		name:     "ack",
		summary:  "Move a consumer's progress forward",
		details:  "An id at or below the progress changes nothing; one above the newest event is refused.",
		examples: `thread ack --thread ./inbox --consumer worker --event-id 42`,
		grammar:  func() command { return new(ackCmd) },
	}
}

func (c *ackCmd) run(ctx context.Context, a *app) error {
	t, err := a.openFor(c.Thread.value, c.Consumer.value)
	if err != nil {
		return err
	}
	defer t.Close()
	id, err := parseID("--event-id", c.EventID.value)
	if err != nil {
		return err
	}
	var at int64
	err = t.Update(ctx, func(tx *engine.Tx) error {
		if err := tx.Ack(c.Consumer.value, id); err != nil {
			return err
		}
		p, _, err := tx.Progress(c.Consumer.value)
		at = p.LastAcked
		return err
	})
	if err != nil || !c.JSON {
		return a.aboutConsumer(err, c.Consumer.value)
	}
	return a.out.text(fmt.Sprintf(`{"consumer_id":%s,"last_acked_id":%d}`+"\n", jsonText(c.Consumer.value), at))
}
