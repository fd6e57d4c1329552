package main

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"thread/engine"
	"thread/event"
)

type popCmd struct {
	threadFlags
	Consumer    text `required:"" placeholder:"ID" help:"The consumer, as subscribed."`
	LastEventID text `required:"" name:"last-event-id" placeholder:"N" help:"The highest id already processed, 0 for none."`
	Limit       text `placeholder:"N" help:"How many events at most (default 100)."`
	jsonFlag
}

func popVerb() *verb {
	return &verb{
		name:    "pop",
		summary: "Record a consumer's progress and print its next events",
		details: `Prints the events after --last-event-id that match the consumer's filter, one
JSON object per line; nothing when there are none. A smaller id than before
delivers again.`,
		examples: `thread pop --thread ./inbox --consumer worker --last-event-id 0
thread pop --thread ./inbox --consumer worker --last-event-id 42 --limit 10`,
		grammar: func() command { return new(popCmd) },
	}
}

func (c *popCmd) run(ctx context.Context, a *app) error {
	t, err := a.openFor(c.Thread.value, c.Consumer.value)
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
	page, err := t.Pop(ctx, c.Consumer.value, last, limit)
	if err != nil {
		return a.aboutConsumer(err, c.Consumer.value)
	}
	if last > page.Newest {
		a.logWarning("pop: consumer=%s --last-event-id %d is ahead of the newest event %d", c.Consumer.value, last, page.Newest)
	}
	if last < page.Previous {
		a.logWarning("pop: consumer=%s --last-event-id %d is behind the progress %d: events are delivered again", c.Consumer.value, last, page.Previous)
	}
	highest, err := a.printEvents(page.Events)
	if err == nil {
		err = a.out.flush()
	}
	if err == nil && highest > 0 {
		if err := popped(t, c.Consumer.value, highest); err != nil {
			a.logWarning("pop: consumer=%s what was popped could not be noted for its ack: %v", c.Consumer.value, err)
		}
	}
	return err
}

// printEvents prints one event per line and returns the id of the last one.
func (a *app) printEvents(events iter.Seq2[event.Event, error]) (highest int64, err error) {
	for e, err := range events {
		if err != nil {
			return highest, err
		}
		highest = e.ID
		a.out.reserve()
		a.out.buf = append(e.AppendJSON(a.out.buf), '\n')
		if err := a.out.more(); err != nil {
			return highest, err
		}
	}
	return highest, nil
}

// checkConsumer refuses an empty consumer, which --consumer "$UNSET" gives.
func checkConsumer(id string) error {
	if id == "" {
		return usage("--consumer is empty", "name the consumer")
	}
	return nil
}

// aboutConsumer puts the consumer's name into the two errors about one.
func (a *app) aboutConsumer(err error, id string) error {
	switch {
	case errors.Is(err, engine.ErrNoSubscription):
		return logic(fmt.Sprintf("consumer '%s' is not subscribed", id),
			fmt.Sprintf("run thread subscribe --thread %s --consumer %s --handler <cmd>%s", shellWord(a.dir), shellWord(id), a.meantConsumer(id)))
	case errors.Is(err, engine.ErrSubscriptionExists):
		return logic(fmt.Sprintf("consumer '%s' already exists", id),
			fmt.Sprintf("run thread unsubscribe --thread %s --consumer %s", shellWord(a.dir), shellWord(id)))
	}
	return err
}

// meantConsumer returns the end of a sentence that names the consumer whose name
// is like id, "" when there is none or it cannot be looked up soon.
func (a *app) meantConsumer(id string) string {
	t, err := engine.Open(a.dir)
	if err != nil {
		return ""
	}
	defer t.Close()
	ctx, cancel := context.WithTimeout(context.Background(), consumersTime)
	defer cancel()
	info, err := t.Info(ctx)
	if err != nil {
		return ""
	}
	var names []string
	for _, s := range info.Subscriptions {
		names = append(names, s.Consumer)
	}
	if meant := similar(id, names); meant != "" {
		return ", or did you mean --consumer " + shellWord(meant) + "?"
	}
	return ""
}
