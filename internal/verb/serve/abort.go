package serve

import (
	"context"

	"thread/internal/cli"
	"thread/internal/serve"
)

type abortCmd struct {
	cli.ThreadFlags
	Consumer cli.Text `required:"" placeholder:"ID" help:"The consumer whose handler is to end."`
}

func abortVerb() *cli.Verb {
	return &cli.Verb{
		Name:    "abort",
		Summary: "End a running handler",
		Details: `Its process group gets SIGTERM, and 5 s later SIGKILL. This counts as a failed
run: what it leaves unread is tried again. See thread wait for its end.`,
		Examples: `thread abort --thread ./inbox --consumer chat && thread wait --thread ./inbox --consumer chat`,
		Grammar:  func() cli.Command { return new(abortCmd) },
		Errors:   errorWords,
	}
}

func (c *abortCmd) Run(_ context.Context, a *cli.App) error {
	if err := cli.CheckConsumer(c.Consumer.Value); err != nil {
		return err
	}
	_, err := ask(a, c.Thread.Value, serve.Request{Op: "abort", Consumer: c.Consumer.Value})
	return err
}
