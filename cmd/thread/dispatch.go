package main

import (
	"context"

	"thread/dispatch"
	"thread/engine"
)

// superviseVerb is the hidden subcommand that dispatch starts to hold a
// consumer's lock while its handler runs.
const superviseVerb = "supervise"

type dispatchCmd struct {
	threadFlags
	MaxHandlers text `name:"max-handlers" placeholder:"N" help:"How many handlers run at once (default twice the number of cores)."`
}

func dispatchVerb() *verb {
	return &verb{
		name:    "dispatch",
		summary: "Start the handlers that have unread events",
		details: `Every push does this by itself; run it by hand after a failure. Handlers go on
when this command has ended. A consumer whose handler is running is left alone.`,
		examples: `thread dispatch --thread ./inbox`,
		grammar:  func() command { return new(dispatchCmd) },
	}
}

func (c *dispatchCmd) run(ctx context.Context, a *app) error {
	t, err := a.open(c.Thread.value)
	if err != nil {
		return err
	}
	defer t.Close()
	var opts dispatch.Options
	if c.MaxHandlers.set {
		n, ok := parseNumber(c.MaxHandlers.value)
		if !ok || n == 0 || n > 1<<20 {
			return usage("--max-handlers \""+c.MaxHandlers.value+"\" is not a number from 1 to 1048576", "give how many handlers may run at once")
		}
		opts.MaxHandlers = int(n)
	}
	return dispatch.Run(ctx, t, opts)
}

// wake starts whoever is to run the handlers after a push.
func wake(ctx context.Context, t *engine.Thread, source string) error {
	return dispatch.Wake(ctx, t, source)
}

// wakeAfterPush is wake for what was pushed.
func wakeAfterPush(ctx context.Context, t *engine.Thread, b engine.Batch) error {
	if !b.Subscribed {
		return dispatch.WakeUnsubscribed(ctx, t, b.LastSource)
	}
	return wake(ctx, t, b.LastSource)
}

// supervise is the body of the hidden subcommand.
func supervise(ctx context.Context, args []string) error {
	return dispatch.Supervise(ctx, args)
}

// popped tells the supervisor of the handler that this process belongs to, if it
// wants to know, that consumer has been given events up to id.
func popped(t *engine.Thread, consumer string, id int64) error {
	return dispatch.Popped(t, consumer, id)
}
