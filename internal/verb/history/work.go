package history

import (
	"context"
	"errors"
	"fmt"
	"time"

	"thread/history"
	"thread/internal/cli"
)

type recoverFlags struct {
	Strategy    cli.Text `placeholder:"STRATEGY" help:"What becomes of a run whose worker is gone: fail (default), requeue_running or requeue_all."`
	MaxAttempts cli.Text `name:"max-attempts" placeholder:"N" help:"How often a run is queued again by itself (default 1), before it stays failed."`
}

func (c *recoverFlags) options() (o history.RecoverOptions, err error) {
	o.Strategy = history.Strategy(c.Strategy.Or(string(history.Fail)))
	if c.MaxAttempts.Set {
		n, ok := cli.ParseNumber(c.MaxAttempts.Value)
		if !ok || n < 1 || n > 1000 {
			return o, cli.UsageError(fmt.Sprintf("--max-attempts %q is not a number from 1 to 1000", c.MaxAttempts.Value), "give a whole number")
		}
		o.MaxAttempts = int(n)
	}
	switch o.Strategy {
	case history.Fail, history.RequeueRunning, history.RequeueAll:
		return o, nil
	}
	return o, cli.UsageError(fmt.Sprintf("--strategy %q is unknown", string(o.Strategy)), "give fail, requeue_running or requeue_all")
}

type runWorkCmd struct {
	cli.ThreadFlags
	Drain bool `help:"End when no run is ready, in place of waiting."`
	Once  bool `help:"End after one run."`
	recoverFlags
	commandFlags
}

func runWorkVerb() *cli.Verb {
	return &cli.Verb{
		Name: "run work", Args: "-- CMD ARGS...", Summary: "Run a command for each queued run",
		Details: `Takes the oldest run that is ready, of which there is one per session at most, runs
CMD for it as thread run exec does, and goes on until interrupted. Any number of
workers may stand beside each other. At the start and every 15 s it recovers the
runs of workers that are gone. A command that fails makes its run a failed one, and
the worker goes on.`,
		Exits: "0 with --drain or --once: the work is done; otherwise interrupted\n1 CMD cannot be started",
		Examples: `thread run work --thread ./inbox --strategy requeue_all -- ./agent.sh
thread run work --thread ./inbox --drain -- ./agent.sh`,
		Errors: errorWords, Grammar: func() cli.Command { return new(runWorkCmd) },
	}
}

// recoverEvery is how often a worker looks for the runs of workers that are gone.
const recoverEvery = 3 * history.DefaultBeat

func (c *runWorkCmd) Run(ctx context.Context, a *cli.App) error {
	if err := c.check("run work"); err != nil {
		return err
	}
	o, err := c.options()
	if err != nil {
		return err
	}
	if _, err := c.job(a); err != nil {
		return err
	}
	return with(ctx, a, c.Thread, func(h *history.History) error {
		ctx, stop := cli.Interruptible(ctx)
		defer stop()
		atStart := o
		atStart.Start = true
		if _, err := h.Recover(ctx, atStart); err != nil {
			return err
		}
		recovering := make(chan struct{})
		go func() {
			defer close(recovering)
			tick := time.NewTicker(recoverEvery)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				if _, err := h.Recover(ctx, o); err != nil && ctx.Err() == nil {
					fmt.Fprintf(a.Stderr, "Warning: %s\n", cli.Printable("recovery: "+err.Error()))
				}
			}
		}()
		err := c.work(ctx, a, h)
		stop()
		<-recovering
		return err
	})
}

// work runs the command for one run after the other.
func (c *runWorkCmd) work(ctx context.Context, a *cli.App, h *history.History) error {
	for {
		j, err := c.job(a)
		if err != nil {
			return err
		}
		claim := h.ClaimWait
		if c.Drain {
			claim = h.Claim
		}
		r, _, err := claim(ctx, history.Supervised(), history.With(j.begin))
		switch {
		case ctx.Err() != nil, errors.Is(err, history.ErrNoneReady) && c.Drain:
			if r != nil {
				r.Leave()
			}
			return nil
		case err != nil:
			return err
		}
		// The command ends in its own time: it gets the signal, and its run is ended.
		_, err = j.run(context.WithoutCancel(ctx), h, r)
		var f *cli.Failure
		switch {
		case errors.Is(err, history.ErrRecovered) || errors.Is(err, history.ErrEnded) || errors.As(err, &f):
			fmt.Fprintf(a.Stderr, "Warning: %s\n", cli.Printable("run "+r.ID()+": "+err.Error()))
		case err != nil:
			return err
		}
		if ctx.Err() != nil || c.Once {
			return nil
		}
	}
}
