package serve

import (
	"context"

	"thread/internal/cli"
	"thread/internal/serve"
	"thread/lane"
)

type waitCmd struct {
	cli.ThreadFlags
	Consumer cli.Text `required:"" placeholder:"ID" help:"The consumer whose handler is to end."`
	Timeout  cli.Text `placeholder:"DURATION" help:"How long to wait, at least 100ms (default 15s)."`
}

func waitVerb() *cli.Verb {
	return &cli.Verb{
		Name:     "wait",
		Summary:  "Wait for the end of a running handler",
		Details:  `Exit code 0 means that it has ended, or that none was running.`,
		Examples: `thread wait --thread ./inbox --consumer chat --timeout 1m`,
		Grammar:  func() cli.Command { return new(waitCmd) },
		Errors:   errorWords,
	}
}

func (c *waitCmd) Run(_ context.Context, a *cli.App) error {
	if err := cli.CheckConsumer(c.Consumer.Value); err != nil {
		return err
	}
	timeout := lane.DefaultEndTimeout
	if c.Timeout.Set {
		var err error
		if timeout, err = cli.ParseDuration("--timeout", c.Timeout.Value); err != nil {
			return err
		}
	}
	timeout = max(timeout, lane.MinEndTimeout)
	answer, err := ask(a, c.Thread.Value, serve.Request{Op: "wait", Consumer: c.Consumer.Value, TimeoutMS: timeout.Milliseconds()})
	if err == nil && !answer.Ended {
		err = cli.LogicError("the handler of '"+c.Consumer.Value+"' still runs after "+timeout.String(), "wait longer with --timeout, or run thread abort")
	}
	return err
}
