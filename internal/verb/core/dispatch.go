package core

import (
	"context"

	"thread/internal/cli"
	"thread/internal/dispatch"
)

type dispatchCmd struct {
	cli.ThreadFlags
	MaxHandlers cli.Text `name:"max-handlers" placeholder:"N" help:"How many handlers run at once (default twice the number of cores)."`
}

var dispatchVerb = &cli.Verb{
	Name:    "dispatch",
	Summary: "Start the handlers that have unread events",
	Details: `Every push does this by itself; run it by hand after a failure. Handlers continue
when this command has ended. A consumer whose handler is running is left alone.
In a thread of another account it does nothing, with exit code 1.`,
	Exits:       "0 handed over, or there was nothing to start\n1 the thread belongs to another account",
	Examples:    `thread dispatch --thread ./inbox`,
	Grammar:     func() cli.Command { return new(dispatchCmd) },
	Directories: "run thread serve, or thread consume --follow, on the hosts that are to run handlers",
}

func (c *dispatchCmd) Run(ctx context.Context, a *cli.App) error {
	if err := a.SetDir("--thread", c.Thread.Value); err != nil {
		return err
	}
	t, err := a.Open(a.Dir, dispatch.OwnFile(a.Dir))
	if err != nil {
		return err
	}
	defer t.Close()
	var opts dispatch.Options
	if c.MaxHandlers.Set {
		n, ok := cli.ParseNumber(c.MaxHandlers.Value)
		if !ok || n == 0 || n > 1<<20 {
			return cli.UsageError("--max-handlers \""+c.MaxHandlers.Value+"\" is not a number from 1 to 1048576", "give how many handlers may run at once")
		}
		opts.MaxHandlers = int(n)
	}
	err = dispatch.Run(ctx, t, opts)
	a.WarnUnpopped(ctx, t)
	return err
}
