//go:build !noserve

package main

import (
	"context"

	"thread/serve"
)

type abortCmd struct {
	threadFlags
	Consumer text `required:"" placeholder:"ID" help:"The consumer whose handler is to end."`
}

func abortVerb() *verb {
	return &verb{
		name:    "abort",
		summary: "End a running handler",
		details: `Its process group gets SIGTERM, and 5 s later SIGKILL. This counts as a failed
run: what it leaves unread is tried again. See thread wait for its end.`,
		examples: `thread abort --thread ./inbox --consumer chat && thread wait --thread ./inbox --consumer chat`,
		grammar:  func() command { return new(abortCmd) },
	}
}

func (c *abortCmd) run(_ context.Context, a *app) error {
	if err := checkConsumer(c.Consumer.value); err != nil {
		return err
	}
	_, err := a.ask(c.Thread.value, serve.Request{Op: "abort", Consumer: c.Consumer.value})
	return err
}
