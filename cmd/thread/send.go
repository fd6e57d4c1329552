//go:build !noserve

package main

import (
	"context"

	"thread/serve"
)

type sendCmd struct {
	threadFlags
	Consumer text   `required:"" placeholder:"ID" help:"The consumer whose handler is to get it."`
	Message  string `arg:"" help:"The message, up to 1 MiB less its encoding."`
}

func sendVerb() *verb {
	return &verb{
		name:    "send",
		args:    "<message>",
		summary: "Send a message into a running handler",
		details: `Only a handler that has said that it streams takes messages: it writes the word
streaming into the file that THREAD_STATE names, and reads from the pipe that
THREAD_MESSAGES names, a JSON string on each line. Otherwise the message is
refused with no_active_run, not_streaming or compacting.`,
		examples: `thread send --thread ./inbox --consumer chat "wait, use the other file"`,
		grammar:  func() command { return new(sendCmd) },
	}
}

func (c *sendCmd) run(_ context.Context, a *app) error {
	if err := checkConsumer(c.Consumer.value); err != nil {
		return err
	}
	_, err := a.ask(c.Thread.value, serve.Request{Op: "send", Consumer: c.Consumer.value, Message: c.Message})
	return err
}
