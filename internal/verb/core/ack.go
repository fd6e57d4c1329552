package core

import (
	"context"

	"thread/engine"
	"thread/internal/cli"
)

type ackCmd struct {
	cli.ThreadFlags
	Consumer cli.Text `required:"" placeholder:"ID" help:"The consumer, as subscribed."`
	EventID  cli.Text `required:"" name:"event-id" placeholder:"N" help:"The highest id now processed."`
	cli.JSONFlag
}

func ackVerb() *cli.Verb {
	return &cli.Verb{
		Name:     "ack",
		Summary:  "Move a consumer's progress forward",
		Details:  "An id at or below the progress changes nothing; one above the newest event is refused.",
		Examples: `thread ack --thread ./inbox --consumer worker --event-id 42`,
		Grammar:  func() cli.Command { return new(ackCmd) },
	}
}

func (c *ackCmd) Run(ctx context.Context, a *cli.App) error {
	t, err := a.OpenFor(c.Thread.Value, c.Consumer.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	id, err := cli.ParseID("--event-id", c.EventID.Value)
	if err != nil {
		return err
	}
	var at int64
	err = t.Update(ctx, func(tx *engine.Tx) error {
		if err := tx.Ack(c.Consumer.Value, id); err != nil {
			return err
		}
		p, _, err := tx.Progress(c.Consumer.Value)
		at = p.LastAcked
		return err
	})
	if err != nil || !c.JSON {
		return err
	}
	return a.Out.JSON(progressJSON{c.Consumer.Value, at})
}

// progressJSON is where a consumer stands after ack and seek.
type progressJSON struct {
	Consumer  string `json:"consumer_id"`
	LastAcked int64  `json:"last_acked_id"`
}
