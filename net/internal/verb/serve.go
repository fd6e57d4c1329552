package verb

import (
	"context"
	"strings"

	"thread/internal/cli"
	"thread/lane"
)

type serveCmd struct {
	cli.ThreadFlags
	Lane []string `placeholder:"NAME=N" sep:"none" help:"How many handlers of this lane run at once on this host; may be given more than once."`
}

func serveVerb() *cli.Verb {
	return &cli.Verb{
		Name:    "serve",
		Summary: "Stay and run the handlers of a thread in PostgreSQL",
		Details: `Runs the handlers of all subscriptions, on each host where it runs: one host at a
time for each consumer, and another one when that died, hangs or is cut off. Limits of
lanes are those of this host. A handler that runs when SIGTERM comes may go on for 30 s.`,
		Exits: "0 ended by SIGTERM or SIGINT\n1 not a thread",
		Examples: `thread serve --thread 'postgres://db/app?thread=inbox'
thread-net serve --thread 'postgres://db/app?thread=inbox' --lane main=8 --lane slow=1`,
		Grammar: func() cli.Command { return new(serveCmd) },
		Errors:  Servers{}.Errors,
	}
}

func (c *serveCmd) Run(ctx context.Context, a *cli.App) error {
	q := lane.New(nil)
	for _, text := range c.Lane {
		name, number, _ := strings.Cut(text, "=")
		n, ok := cli.ParseNumber(number)
		if name = strings.TrimSpace(name); name == "" || !ok || n < 1 || n > 1<<20 {
			return cli.UsageError("--lane \""+text+"\" is not a lane and its limit", "give NAME=N, N from 1 to 1048576")
		}
		if err := q.SetLimit(lane.GlobalLane(name), int(n)); err != nil {
			return cli.UsageError(err.Error(), "give another name")
		}
	}
	t, err := a.Open(c.Thread.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	if t.URL() == "" {
		return cli.UsageError("thread-net serves threads in PostgreSQL", "run thread serve for a directory")
	}
	ctx, stop := cli.Interruptible(ctx)
	defer stop()
	return newServer(a, t, q).run(ctx)
}
