package serve

import (
	"context"

	"thread/internal/cli"
	"thread/internal/serve"
)

type sendCmd struct {
	cli.ThreadFlags
	Consumer cli.Text `short:"c" required:"" placeholder:"CONSUMER" help:"The consumer whose handler is to get it."`
	keyFlag
	Message string `arg:"" help:"The message, up to 1 MiB less its encoding."`
}

var sendVerb = &cli.Verb{
	Name:    "send",
	Args:    "<message>",
	Summary: "Send a message into a handler of a thread serve, which must run",
	Details: `Only a handler that has said that it streams takes messages: it writes the word
streaming into the file that THREAD_STATE names, and reads from the pipe that
THREAD_MESSAGES names, a JSON string on each line. Otherwise the message is
refused with no_active_run, not_streaming or compacting.`,
	Exits:    "0 handed to the handler\n1 no handler runs, it takes no messages, or no thread serve runs",
	Examples: `thread send --thread ./inbox --consumer chat "wait, use the other file"`,
	Grammar:  func() cli.Command { return new(sendCmd) },
	Errors:   errorWords,
}

func (c *sendCmd) Run(ctx context.Context, a *cli.App) error {
	if err := cli.CheckConsumer(c.Consumer.Value); err != nil {
		return err
	}
	_, err := ask(ctx, a, c.Thread.Value, serve.Request{Op: "send", Consumer: c.Consumer.Value, Key: c.key(), Message: c.Message})
	return err
}
