package core

import (
	"context"
	"iter"

	"thread/engine"
	"thread/event"
	"thread/internal/cli"
	"thread/internal/dispatch"
)

type popCmd struct {
	cli.ThreadFlags
	Consumer    cli.Text `short:"c" required:"" placeholder:"CONSUMER" help:"The consumer, as subscribed."`
	LastEventID cli.Text `required:"" name:"last-event-id" placeholder:"EVENT" help:"The highest id already processed, 0 for none."`
	Limit       cli.Text `placeholder:"N" help:"How many events at most (default 100)."`
	parseFlag
	cli.JSONFlag
}

var popVerb = &cli.Verb{
	Name:    "pop",
	Summary: "Record a consumer's progress and print its next events",
	Details: `Prints the events after --last-event-id that match the consumer's filter, one JSON
object per line, and nothing when there are none. A smaller id than before delivers
events again.`,
	Exits: "0 the progress is stored, and what is unread is printed, perhaps nothing",
	Examples: `thread pop --thread ./inbox --consumer worker --last-event-id 0
thread pop --thread ./inbox --consumer worker --last-event-id 42 --limit 10`,
	Grammar: func() cli.Command { return new(popCmd) },
}

func (c *popCmd) Run(ctx context.Context, a *cli.App) error {
	t, err := a.OpenFor(c.Thread.Value, c.Consumer.Value)
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
	page, err := t.Pop(ctx, c.Consumer.Value, engine.PopQuery{LastAcked: last, Limit: limit})
	if err != nil {
		return err
	}
	if last > page.Newest {
		a.LogWarning("pop: consumer=%s --last-event-id %d is ahead of the newest event %d", c.Consumer.Value, last, page.Newest)
	}
	if last < page.Previous {
		a.LogWarning("pop: consumer=%s --last-event-id %d is behind the progress %d: events are delivered again", c.Consumer.Value, last, page.Previous)
	}
	highest, err := printEvents(a, page.Events, c.parseFlag)
	if err == nil {
		err = a.Out.Flush()
	}
	if err == nil && highest > 0 {
		if err := popped(t, c.Consumer.Value, highest); err != nil {
			a.LogWarning("pop: consumer=%s what was popped could not be noted for its ack: %v", c.Consumer.Value, err)
		}
	}
	return err
}

// printEvents prints one event per line and returns the id of the last one.
func printEvents(a *cli.App, events iter.Seq2[event.Event, error], shape parseFlag) (highest int64, err error) {
	for e, err := range events {
		if err != nil {
			return highest, err
		}
		highest = e.ID
		if err := shape.show(a, &e); err != nil {
			return highest, err
		}
	}
	return highest, nil
}

// popped tells the supervisor of the handler that this process belongs to, if it
// wants to know, that consumer has been given events up to id.
func popped(t *engine.Thread, consumer string, id int64) error {
	return dispatch.Popped(t, consumer, id)
}
