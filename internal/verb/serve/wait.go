package serve

import (
	"context"

	"thread/internal/cli"
	"thread/internal/serve"
	"thread/lane"
)

type waitCmd struct {
	cli.ThreadFlags
	Consumer cli.Text `short:"c" required:"" placeholder:"CONSUMER" help:"The consumer whose handler is to end."`
	keyFlag
	Timeout cli.Text `placeholder:"DURATION" help:"How long to wait, at least 100ms (default 15s)."`
}

func waitVerb() *cli.Verb {
	return &cli.Verb{
		Name:     "wait",
		Summary:  "Wait for the end of a running handler",
		Details:  `Exit code 0 means that it has ended, or that none was running.`,
		Exits:    "0 it has ended, or none was running\n1 it still runs after --timeout, or no thread serve does",
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
	q := serve.Request{Op: "wait", Consumer: c.Consumer.Value, Key: c.key(), TimeoutMS: timeout.Milliseconds()}
	answer, err := ask(a, c.Thread.Value, q)
	if err == nil && !answer.Ended {
		err = cli.LogicError(whose(q)+" still runs after "+timeout.String(), "wait longer with --timeout, or run thread abort")
	}
	return err
}
