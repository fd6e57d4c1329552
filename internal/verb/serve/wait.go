package serve

import (
	"context"

	"thread/internal/cli"
	"thread/internal/serve"
	"thread/lane"
)

type waitCmd struct {
	cli.ThreadFlags
	Consumer cli.Text `short:"c" placeholder:"CONSUMER" help:"The consumer whose handler is to end."`
	All      bool     `help:"All handlers of the thread that run now, not those that start meanwhile."`
	keyFlag
	Timeout cli.Text `placeholder:"DURATION" help:"How long to wait, at least 100ms (default 15s)."`
}

var waitVerb = &cli.Verb{
	Name:    "wait",
	Summary: "Wait for the end of a handler of a thread serve, or of all",
	Details: `Exit code 0 means that it has ended, or that none was running.`,
	Exits:   "0 it has ended, or none was running\n1 it still runs after --timeout, or runs without a thread serve",
	Examples: `thread wait --thread ./inbox --consumer chat --timeout 1m
thread wait --thread ./inbox --all`,
	Grammar: func() cli.Command { return new(waitCmd) },
	Errors:  errorWords,
}

func (c *waitCmd) Run(ctx context.Context, a *cli.App) error {
	if err := oneOrAll(c.Consumer, c.Key, c.All, "--all"); err != nil {
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
	if c.All {
		q.All = serve.AllRuns
	}
	answer, err := askWhatRuns(ctx, a, c.Thread.Value, q)
	if err == nil && !answer.Ended {
		err = cli.LogicError(whose(q)+" still runs after "+timeout.String(), "wait longer with --timeout, or run thread abort")
	}
	return err
}
