package core

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"

	"thread/engine"
	"thread/internal/cli"
	"thread/internal/consume"
	"thread/internal/dispatch"
	"thread/jsonlog"
)

type consumeCmd struct {
	cli.ThreadFlags
	Consumer    cli.Text `placeholder:"ID" help:"The consumer, as subscribed; by default that of the handler's environment."`
	Batch       cli.Text `placeholder:"N" help:"How many events CMD gets at once, at most (default 1)."`
	Once        bool     `help:"End after one delivery. Exit code 1 says that it is to be tried again."`
	Follow      bool     `short:"f" help:"Do not end when nothing is unread."`
	ContentOnly bool     `name:"content-only" help:"Give CMD the content alone on stdin, not the event as JSON."`
	MaxAttempts cli.Text `name:"max-attempts" placeholder:"N" help:"How many failures make an event a dead letter (default 5)."`
	Backoff     cli.Text `placeholder:"DURATION" help:"The wait after the first failure (default 1s); it doubles, up to 5m."`
	Factor      cli.Text `name:"backoff-factor" placeholder:"N" help:"How many times as long each further wait is (default 2)."`
	cli.JSONFlag
	Command []string `arg:"" optional:"" name:"cmd" help:"The program to run, and its arguments."`
}

func consumeVerb() *cli.Verb {
	return &cli.Verb{
		Name:    "consume",
		Args:    "-- CMD ARGS...",
		Summary: "Hand a consumer's events to a command, with retries and dead letters",
		Details: `CMD reads one JSON object per line on stdin. When it exits 0, the events are
acked, and the next ones follow until nothing is unread. Exit code 75 means try
again later, 65 means never again: the event becomes a dead letter. Any other
counts an attempt; the fifth makes it a dead letter. A batch that fails is split
until the event that fails stands alone. With --batch 1, CMD also finds
THREAD_EVENT_ID, _SOURCE, _TYPE, _SUBTYPE, _CREATED_AT and _ATTEMPT in its
environment. --once has no effect in a handler, nor has --json on what CMD
prints. See docs/CONSUME.md.`,
		Examples: `thread subscribe --thread ./inbox --consumer worker --handler "thread consume -- ./worker"
thread consume --thread ./inbox --consumer worker --batch 100 -- ./import --quiet
thread consume --thread ./inbox --consumer worker --follow --content-only -- jq .`,
		Grammar: func() cli.Command { return new(consumeCmd) },
	}
}

func (c *consumeCmd) Run(ctx context.Context, a *cli.App) error {
	consumer := c.Consumer.Or(os.Getenv("THREAD_CONSUMER"))
	if consumer == "" {
		return cli.UsageError("missing flag --consumer", "add it; only in a handler it has a default")
	}
	o, err := c.options()
	if err != nil {
		return err
	}
	t, err := a.Open(c.Thread.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	log := jsonlog.OpenLog(a.Dir)
	o.Stdout, o.Stderr = a.Out.W, a.Stderr
	o.Warn = func(format string, args ...any) {
		line := fmt.Sprintf(format, args...)
		log.Warn("consume: consumer=%s %s", consumer, line)
		fmt.Fprintf(a.Stderr, "Warning: %s\n", cli.Printable(line))
	}
	// Before the turn: who has no subscription cannot have one.
	if _, err := t.DueFor(ctx, consumer, 0); err != nil {
		return aboutConsumer(a, err, consumer)
	}
	ctx, o.Signals = consume.CatchSignals(ctx)
	defer o.Signals.Stop()
	turn, err := dispatch.TakeTurn(ctx, t, consumer)
	if errors.Is(err, dispatch.ErrHandled) {
		return cli.LogicError(fmt.Sprintf("consumer '%s' is being handled by another process", consumer),
			"wait until it is done; thread info --thread "+cli.ShellWord(a.Dir)+" shows what runs")
	}
	if err != nil {
		return err
	}
	if turn.Supervised() && o.Mode == consume.Once {
		o.Mode = consume.UntilEmpty // its supervisor takes an end for the end of the work
	}
	o.Env = turn.Environment()
	sum, err := consume.Run(ctx, t, consumer, o)
	if gerr := turn.Give(context.WithoutCancel(ctx)); gerr != nil {
		a.LogWarning("consume: consumer=%s handlers could not be started afterwards: %v", consumer, gerr)
	}
	if err != nil {
		return aboutConsume(a, err, consumer)
	}
	if c.JSON {
		return a.Out.Text(fmt.Sprintf(`{"consumer_id":%s,"delivered":%d,"failed_deliveries":%d,"dead":%d}`+"\n", jsonText(consumer), sum.Delivered, sum.Failed, sum.Dead))
	}
	return nil
}

func (c *consumeCmd) options() (o consume.Options, err error) {
	if len(c.Command) == 0 || c.Command[0] == "" {
		return o, cli.UsageError("no command is given", "add it behind --, for example thread consume -- ./worker")
	}
	o.Command, o.ContentOnly = c.Command, c.ContentOnly
	if o.Batch, err = parseCount("--batch", c.Batch.Or("1")); err != nil {
		return o, err
	}
	if o.MaxAttempts, err = parseCount("--max-attempts", c.MaxAttempts.Or("5")); err != nil {
		return o, err
	}
	if o.FirstDelay, err = cli.ParseDuration("--backoff", c.Backoff.Or("1s")); err != nil {
		return o, err
	}
	if o.Factor, err = strconv.ParseFloat(c.Factor.Or("2"), 64); err != nil || !(o.Factor >= 1 && o.Factor <= 1000) {
		return o, cli.UsageError(fmt.Sprintf("--backoff-factor %q is not a number from 1 to 1000", c.Factor.Value), "give a number such as 1.5")
	}
	switch {
	case c.Once && c.Follow:
		return o, cli.UsageError("--once and --follow exclude each other", "give one of them")
	case c.ContentOnly && o.Batch > 1:
		return o, cli.UsageError("--content-only needs --batch 1", "leave --batch out: contents of several events could not be told apart")
	case c.Once:
		o.Mode = consume.Once
	case c.Follow:
		o.Mode = consume.Follow
	}
	return o, nil
}

// parseCount reads a number in [1, 2^31).
func parseCount(flag, s string) (int64, error) {
	n, ok := cli.ParseNumber(s)
	if !ok || n < 1 || n > math.MaxInt32 {
		return 0, cli.UsageError(fmt.Sprintf("%s %q is not a number from 1 to %d", flag, s, math.MaxInt32), "give a whole number")
	}
	return n, nil
}

// aboutConsume puts the errors of a run into words.
func aboutConsume(a *cli.App, err error, consumer string) error {
	switch {
	case errors.Is(err, consume.ErrUnsettled):
		return cli.LogicError(fmt.Sprintf("the events of consumer '%s' are not settled", consumer), "run thread consume again, without --once to wait for them")
	case errors.Is(err, consume.ErrCommand):
		return cli.LogicError(err.Error(), "name a program that is on PATH, or its path; nothing was acked for it")
	case errors.Is(err, engine.ErrPaused):
		return cli.LogicError(fmt.Sprintf("consumer '%s' is paused", consumer),
			fmt.Sprintf("run thread resume --thread %s --consumer %s", cli.ShellWord(a.Dir), cli.ShellWord(consumer)))
	}
	return aboutConsumer(a, err, consumer)
}
