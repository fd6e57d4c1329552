package serve

import (
	"context"

	"thread/internal/cli"
	"thread/internal/serve"
)

type abortCmd struct {
	cli.ThreadFlags
	Consumer cli.Text `short:"c" required:"" placeholder:"CONSUMER" help:"The consumer whose handler is to end."`
	keyFlag
}

func abortVerb() *cli.Verb {
	return &cli.Verb{
		Name:    "abort",
		Summary: "End a running handler",
		Details: `Its process group gets SIGTERM, and 5 s later SIGKILL. This counts as a failed
run: what it leaves unread is tried again. See thread wait for its end. With --key
it is the delivery of that key that ends, and has failed.`,
		Exits:    "0 told to end\n1 no handler runs, or no thread serve does",
		Examples: `thread abort --thread ./inbox --consumer chat && thread wait --thread ./inbox --consumer chat`,
		Grammar:  func() cli.Command { return new(abortCmd) },
		Errors:   errorWords,
	}
}

func (c *abortCmd) Run(_ context.Context, a *cli.App) error {
	if err := cli.CheckConsumer(c.Consumer.Value); err != nil {
		return err
	}
	_, err := ask(a, c.Thread.Value, serve.Request{Op: "abort", Consumer: c.Consumer.Value, Key: c.key()})
	return err
}
