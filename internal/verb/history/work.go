package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"thread/engine"
	"thread/history"
	"thread/internal/cli"
	"thread/internal/terminal"
	"thread/internal/traces"
	"thread/internal/verb/tracing"
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
	Drain    bool     `help:"End when no run is ready, in place of waiting."`
	Once     bool     `help:"End after one run."`
	Parallel cli.Text `placeholder:"N" help:"How many runs are under way at once, of different sessions (default 1)."`
	Agent    cli.Text `placeholder:"AGENT,..." help:"Only runs of these agents."`
	recoverFlags
	tracing.Flag
	commandFlags
}

var runWorkVerb = &cli.Verb{
	Name: "run work", Args: "-- CMD ARGS...", Summary: "Run a command for each queued run",
	Details: `Takes the run with the highest priority that is ready, and of these the oldest. Of a
session one run is ready at most. Runs CMD for it as thread run exec does, and
continues until interrupted. CMD reads the input of the run on stdin. Its last line on
stdout is the result: thread run result prints it. Exit code 75 means later, and with
{"delay":"30s"} as the last line it counts as no attempt. Any number of workers may run
next to each other. At the start and every 15 s a worker recovers the runs of workers
that are gone. After a failure, a run with retries is queued again; otherwise it has
failed, and the worker continues.`,
	Exits: "0 with --drain or --once: the work is done; otherwise interrupted\n1 CMD cannot be started",
	Examples: `thread run work --thread ./inbox --strategy requeue_all -- ./agent.sh
thread run work --thread ./inbox --agent mail,report --parallel 4 -- ./agent.sh
thread run work --thread ./inbox --drain -- ./agent.sh`,
	Errors: errorWords, Grammar: func() cli.Command { return new(runWorkCmd) },
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
	if c.Agent.Set && slices.Contains(c.agents(), "") {
		return cli.UsageError(fmt.Sprintf("--agent %q has an empty name", c.Agent.Value), "give for example --agent mail,report")
	}
	parallel, err := c.parallel()
	if err != nil {
		return err
	}
	return with(ctx, a, c.Thread, func(h *history.History) error {
		sink, err := c.Open(a.Dir)
		if err != nil {
			return err
		}
		defer sink.Close() // it takes nothing: the runs are in the history
		ctx, stop := cli.Interruptible(ctx)
		defer stop()
		atStart := o
		atStart.Start = true
		if _, err := retryBusy(func() ([]history.RunRow, error) { return h.Recover(ctx, atStart) }); err != nil {
			return err
		}
		var all sync.WaitGroup
		all.Go(func() { c.recover(ctx, a, h, o) })
		err = c.workers(ctx, a, h, parallel)
		stop()
		all.Wait()
		return err
	})
}

// trace returns what makes the span of its run the parent of what a command traces, nil
// without --otlp.
func (c *runWorkCmd) trace(a *cli.App, h *history.History) func(context.Context, *history.RunRow) []string {
	if !c.OTLP.Set {
		return nil
	}
	return func(ctx context.Context, row *history.RunRow) []string {
		place, _, err := traces.Of(ctx, h, a.Dir, row)
		if err != nil {
			return nil // the command has the trace, and not its place
		}
		return []string{envTrace + "=" + place.Traceparent()}
	}
}

func (c *runWorkCmd) parallel() (int, error) {
	if !c.Parallel.Set {
		return 1, nil
	}
	n, ok := cli.ParseNumber(c.Parallel.Value)
	switch {
	case !ok || n < 1 || n > maxParallel:
		return 0, cli.UsageError(fmt.Sprintf("--parallel %q is not a number from 1 to %d", c.Parallel.Value, maxParallel), "give a whole number")
	case c.Once && n > 1:
		return 0, cli.UsageError("--once and --parallel exclude each other", "leave one of them out")
	}
	return int(n), nil
}

// maxParallel bounds --parallel.
const maxParallel = 1000

// recover recovers the runs of workers that are gone, until ctx ends.
func (c *runWorkCmd) recover(ctx context.Context, a *cli.App, h *history.History, o history.RecoverOptions) {
	tick := time.NewTicker(recoverEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if _, err := h.Recover(ctx, o); err != nil && ctx.Err() == nil && !errors.Is(err, engine.ErrBusy) {
			fmt.Fprintf(a.Stderr, "Warning: %s\n", terminal.Printable("recovery: "+err.Error()))
		}
	}
}

// workers lets that many workers work. An error of one ends the others, each after its run.
func (c *runWorkCmd) workers(ctx context.Context, a *cli.App, h *history.History, n int) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	failed := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if failed[i] = c.work(ctx, a, h); failed[i] != nil {
				stop()
			}
		})
	}
	all.Wait()
	return cmp.Or(failed...)
}

// claim takes a run that is ready. A history that is busy is waited for.
func (c *runWorkCmd) claim(ctx context.Context, h *history.History, j *job) (*history.Run, error) {
	claim := h.ClaimWait
	if c.Drain {
		claim = h.Claim
	}
	for {
		r, _, err := claim(ctx, history.Supervised(), history.BeatEvery(j.every), history.With(j.begin), history.ForAgents(c.agents()...))
		if !errors.Is(err, engine.ErrBusy) || ctx.Err() != nil {
			return r, err
		}
	}
}

// agents returns the names in --agent, none for any.
func (c *runWorkCmd) agents() []string {
	if !c.Agent.Set {
		return nil
	}
	return strings.Split(c.Agent.Value, ",")
}

// work runs the command for one run after the other.
func (c *runWorkCmd) work(ctx context.Context, a *cli.App, h *history.History) error {
	for {
		j, err := c.job(a)
		if err != nil {
			return err
		}
		j.queued, j.trace = true, c.trace(a, h)
		r, err := c.claim(ctx, h, j)
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
		_, err = j.run(context.WithoutCancel(ctx), r)
		if err != nil {
			fmt.Fprintf(a.Stderr, "Warning: %s\n", terminal.Printable("run "+r.ID()+": "+err.Error()))
		}
		if ctx.Err() != nil || c.Once {
			return nil
		}
	}
}
