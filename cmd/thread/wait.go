//go:build !noserve

package main

import (
	"context"
	"time"

	"thread/lane"
	"thread/serve"
)

type waitCmd struct {
	threadFlags
	Consumer text `required:"" placeholder:"ID" help:"The consumer whose handler is to end."`
	Timeout  text `placeholder:"DURATION" help:"How long to wait, at least 100ms (default 15s)."`
}

func waitVerb() *verb {
	return &verb{
		name:     "wait",
		summary:  "Wait for the end of a running handler",
		details:  `Exit code 0 means that it has ended, or that none was running.`,
		examples: `thread wait --thread ./inbox --consumer chat --timeout 1m`,
		grammar:  func() command { return new(waitCmd) },
	}
}

func (c *waitCmd) run(_ context.Context, a *app) error {
	if err := checkConsumer(c.Consumer.value); err != nil {
		return err
	}
	timeout := lane.DefaultEndTimeout
	if c.Timeout.set {
		var err error
		if timeout, err = time.ParseDuration(c.Timeout.value); err != nil || timeout <= 0 {
			return usage("--timeout \""+c.Timeout.value+"\" is not a positive duration", "give for example 15s")
		}
	}
	timeout = max(timeout, lane.MinEndTimeout)
	answer, err := a.ask(c.Thread.value, serve.Request{Op: "wait", Consumer: c.Consumer.value, TimeoutMS: timeout.Milliseconds()})
	if err == nil && !answer.Ended {
		err = logic("the handler of '"+c.Consumer.value+"' still runs after "+timeout.String(), "wait longer with --timeout, or run thread abort")
	}
	return err
}
