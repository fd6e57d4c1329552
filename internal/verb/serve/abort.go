package serve

import (
	"context"
	"fmt"

	"thread/internal/cli"
	"thread/internal/serve"
)

type abortCmd struct {
	cli.ThreadFlags
	Consumer   cli.Text `short:"c" placeholder:"CONSUMER" help:"The consumer whose handler is to end."`
	All        bool     `help:"All handlers of the thread that run."`
	Compacting bool     `help:"Those handlers of the thread, and deliveries with a key, that compact: the word compacting is in the file that THREAD_STATE names."`
	keyFlag
}

var abortVerb = &cli.Verb{
	Name:    "abort",
	Summary: "End a running handler of a thread serve, or all of a thread",
	Details: `Its process group gets SIGTERM, and 5 s later SIGKILL. This counts as a failed
run: what it leaves unread is tried again. See thread wait for its end. With --key
it is the delivery of that key that ends, and has failed. --all and --compacting print
how many were told to end, perhaps 0.`,
	Exits: "0 told to end\n1 the consumer's handler does not run, or one runs without a thread serve",
	Examples: `thread abort --thread ./inbox --consumer chat && thread wait --thread ./inbox --consumer chat
thread abort --thread ./inbox --all`,
	Grammar: func() cli.Command { return new(abortCmd) },
	Errors:  errorWords,
}

func (c *abortCmd) Run(ctx context.Context, a *cli.App) error {
	if err := oneOrAll(c.Consumer, c.Key, c.All || c.Compacting, "--all or --compacting"); err != nil {
		return err
	}
	q := serve.Request{Op: "abort", Consumer: c.Consumer.Value, Key: c.key()}
	switch {
	case c.All:
		q.All = serve.AllRuns
	case c.Compacting:
		q.All = serve.AllCompacting
	default:
		_, err := ask(ctx, a, c.Thread.Value, q)
		return err
	}
	answer, err := askWhatRuns(ctx, a, c.Thread.Value, q)
	if err != nil {
		return err
	}
	return a.Out.Text(fmt.Sprintf("Aborted: %d\n", answer.Count))
}
