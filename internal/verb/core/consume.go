package core

import (
	"context"
	"fmt"
	"math"
	"os"
	"strconv"

	"thread/engine"
	"thread/internal/cli"
	"thread/internal/consume"
	"thread/internal/dispatch"
	"thread/internal/terminal"
	"thread/internal/verb/tracing/deliveries"
	"thread/jsonlog"
)

type consumeCmd struct {
	cli.ThreadFlags
	Consumer    cli.Text `short:"c" placeholder:"CONSUMER" help:"The consumer, as subscribed; by default the consumer of the handler's environment."`
	Batch       cli.Text `placeholder:"N" help:"How many events CMD gets at once, at most (default 1)."`
	Once        bool     `help:"End after one delivery. Exit code 1 means that it will be retried."`
	Follow      bool     `short:"f" help:"Wait for new events when nothing is unread."`
	ContentOnly bool     `name:"content-only" help:"Give CMD the content alone on stdin, not the event as JSON; with --batch each with a newline behind it."`
	Null        bool     `name:"null" short:"0" help:"With --content-only, a zero byte behind each content instead: as xargs -0 reads it."`
	Parse       bool     `help:"Give content that is JSON as JSON, not as a string of it."`
	Parallel    cli.Text `placeholder:"N" help:"How many deliveries are in flight at once, at most."`
	Key         cli.Text `placeholder:"FIELD" help:"With --parallel: events with the same source, type, subtype or JSON path such as $.chat.id stay in order."`
	Window      cli.Text `placeholder:"N" help:"How many events may be settled out of order, out, or waiting, before nothing new is given out (default 10000)."`
	Worker      bool     `help:"Start CMD once, N times with --parallel, to read an event per line and write a result per line."`
	MaxAttempts cli.Text `name:"max-attempts" placeholder:"N" help:"How many failures make an event a dead letter (default 5)."`
	Backoff     cli.Text `placeholder:"DURATION" help:"The wait after the first failure (default 1s); it doubles, up to 5m."`
	Factor      cli.Text `name:"backoff-factor" placeholder:"N" help:"How many times as long each further wait is (default 2)."`
	deliveries.Flag
	cli.JSONFlag
	Command []string `arg:"" optional:"" name:"cmd" help:"The program to run, and its arguments."`
}

var consumeVerb = &cli.Verb{
	Name:    "consume",
	Args:    "-- CMD ARGS...",
	Summary: "Hand a consumer's events to a command, with retries and dead letters",
	Details: `CMD reads one JSON object per line on stdin. When it exits 0, the events are acked, and
the next ones follow until none is unread. Exit code 75 means retry later. 65 means
never: the event becomes a dead letter. Any other code counts as a failed attempt; the
fifth makes the event a dead letter. A failing batch is split until the failing event is
alone. With --batch 1, CMD also finds THREAD_EVENT_ID, _SOURCE, _TYPE, _SUBTYPE,
_CREATED_AT and _ATTEMPT in its environment. --parallel N keeps N deliveries in flight;
with --key, the events of one key stay in order, one at a time. In a handler --once has
no effect. --json does not change the output of CMD. See docs/reference/consume.md.`,
	Exits: "0 nothing is unread; with --once: the delivery is settled; with -f: interrupted\n1 with --once: a retry follows; CMD cannot be started; the consumer is paused, handled, or has a delivery of thread next in flight\n2 CMD is missing",
	Examples: `thread subscribe --thread ./inbox --consumer worker --handler "thread consume -- ./worker"
thread consume --thread ./inbox --consumer worker --batch 100 -- ./import --quiet
thread consume --thread ./inbox --consumer worker --parallel 16 --key source -- ./agent
thread consume --thread ./inbox --consumer worker --follow --content-only -- jq .`,
	Grammar: func() cli.Command { return new(consumeCmd) },
	Errors:  consumeWords,
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
	t, err := a.OpenFor(c.Thread.Value, consumer)
	if err != nil {
		return err
	}
	defer t.Close()
	log := jsonlog.OpenLog(t.Dir())
	o.Stdout, o.Stderr = a.Out.W, a.Stderr
	o.Warn = func(format string, args ...any) {
		line := fmt.Sprintf(format, args...)
		if t.URL() == "" {
			log.Warn("consume: consumer=%s %s", consumer, line)
		}
		fmt.Fprintf(o.Stderr, "Warning: %s\n", terminal.Printable(line))
	}
	// First: without a subscription there is nothing to lock.
	due, err := t.DueFor(ctx, consumer, 0)
	if err != nil {
		return err
	}
	if !c.Parallel.Set && !c.Once {
		o.Parallel, o.Key = due.Parallel, due.Key
	}
	ctx, o.Signals = consume.CatchSignals(ctx)
	defer o.Signals.Stop()
	if t.URL() != "" {
		sum, err := c.onServer(ctx, a, t, consumer, &o)
		if err != nil {
			return err
		}
		return c.print(a, consumer, sum)
	}
	held, err := dispatch.LockConsumer(ctx, t, consumer)
	if err != nil {
		return err
	}
	if held.Supervised() && o.Mode == consume.Once {
		o.Mode = consume.UntilEmpty // its supervisor takes an end for the end of the work
	}
	o.Env, o.Work = held.Environment(), held.Work()
	inTurn(&o, held.Turns)
	sum, err := c.deliver(ctx, a, t, consumer, &o)
	held.Dead(sum.Dead)
	if gerr := held.Release(context.WithoutCancel(ctx)); gerr != nil {
		a.LogWarning("consume: consumer=%s handlers could not be started afterwards: %v", consumer, gerr)
	}
	if err != nil {
		return err
	}
	return c.print(a, consumer, sum)
}

func (c *consumeCmd) print(a *cli.App, consumer string, sum consume.Summary) error {
	if !c.JSON {
		return nil
	}
	return a.Out.JSON(struct {
		Consumer  string `json:"consumer_id"`
		Delivered int64  `json:"delivered"`
		Failed    int64  `json:"failed_deliveries"`
		Dead      int64  `json:"dead"`
	}{consumer, sum.Delivered, sum.Failed, sum.Dead})
}

// deliver is consume.Run with what shows and traces it.
func (c *consumeCmd) deliver(ctx context.Context, a *cli.App, t *engine.Thread, consumer string, o *consume.Options) (sum consume.Summary, err error) {
	traced, err := deliveries.Trace(&c.Flag, t, consumer, o)
	if err != nil {
		return sum, err
	}
	end := consumeProgress(ctx, a, t, consumer, o)
	sum, err = consume.Run(ctx, t, consumer, *o)
	end(sum)
	traced()
	return sum, err
}

// onServer is deliver for a thread that other hosts use. With Follow it waits until
// it has the consumer's turn, and without the turn it ends.
func (c *consumeCmd) onServer(ctx context.Context, a *cli.App, t *engine.Thread, consumer string, o *consume.Options) (sum consume.Summary, err error) {
	err = cli.HoldURL(ctx, t, consumer, o.Mode == consume.Follow, o.Warn, func(ctx context.Context, held cli.Held, work *os.File) error {
		o.Lost, o.Work = held.Lost(), work
		if o.Lost == nil { // serve runs this handler
			inTurn(o, func() *dispatch.Turns { return dispatch.TurnsOf(t, consumer) })
		}
		sum, err = c.deliver(ctx, a, t, consumer, o)
		return err
	})
	return sum, err
}

// inTurn makes deliveries in parallel wait for the lanes of the server that runs this handler,
// if one does.
func inTurn(o *consume.Options, turnsOf func() *dispatch.Turns) {
	if o.Parallel == 0 && !o.Worker {
		return
	}
	turns := turnsOf()
	if turns == nil {
		return
	}
	o.Turns = func(ctx context.Context, slot int, key *string, event int64) (consume.Turn, error) {
		return turns.Wait(ctx, slot, key, event)
	}
}

func (c *consumeCmd) options() (o consume.Options, err error) {
	if len(c.Command) == 0 || c.Command[0] == "" {
		return o, cli.UsageError("no command is given", "add it behind --, for example thread consume -- ./worker")
	}
	o.Command, o.ContentOnly, o.Separator = c.Command, c.ContentOnly, separator(c.Null)
	if c.Parse {
		o.AppendEvent = appendParsed
	}
	if o.Batch, err = parseCount("--batch", c.Batch.Or("1")); err != nil {
		return o, err
	}
	if o.MaxAttempts, err = parseCount("--max-attempts", c.MaxAttempts.Or("5")); err != nil {
		return o, err
	}
	if o.Parallel, err = parseParallel(c.Parallel); err != nil {
		return o, err
	}
	if c.Window.Set {
		if o.Window, err = parseCount("--window", c.Window.Value); err != nil {
			return o, err
		}
	}
	o.Key, o.Worker = c.Key.Value, c.Worker
	if err := checkKey(o.Key); err != nil {
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
	case !c.Parallel.Set && c.Key.Value != "":
		return o, cli.UsageError("--key needs --parallel", "add --parallel N")
	case c.Once && (c.Parallel.Set || c.Worker):
		return o, cli.UsageError("--once goes with neither --parallel nor --worker", "leave it out: without --follow it ends when nothing is unread")
	case c.Worker && (o.Batch > 1 || c.ContentOnly):
		return o, cli.UsageError("--worker goes with neither --batch nor --content-only", "leave them out: a worker reads one event per line, as JSON")
	case c.Null && !c.ContentOnly:
		return o, cli.UsageError("-0 needs --content-only", "add it, or leave -0 out")
	case c.Parse && c.ContentOnly:
		return o, cli.UsageError("--parse and --content-only exclude each other", "give one of them")
	case c.Once:
		o.Mode = consume.Once
	case c.Follow:
		o.Mode = consume.Follow
	}
	return o, nil
}

// parseParallel reads --parallel, 0 when it is not given.
func parseParallel(flag cli.Text) (int64, error) {
	if !flag.Set {
		return 0, nil
	}
	n, ok := cli.ParseNumber(flag.Value)
	if !ok || n < 0 || n > engine.MaxParallel {
		return 0, cli.UsageError(fmt.Sprintf("--parallel %q is not a number from 0 to %d", flag.Value, engine.MaxParallel), "give a whole number")
	}
	return n, nil
}

func checkKey(key string) error {
	if engine.ValidKey(key) != nil {
		return cli.UsageError(fmt.Sprintf("--key %q is not a key", key), "give source, type, subtype, or a JSON path such as '$.chat.id'")
	}
	return nil
}

// parseCount reads a number in [1, 2^31).
func parseCount(flag, s string) (int64, error) {
	n, ok := cli.ParseNumber(s)
	if !ok || n < 1 || n > math.MaxInt32 {
		return 0, cli.UsageError(fmt.Sprintf("%s %q is not a number from 1 to %d", flag, s, math.MaxInt32), "give a whole number")
	}
	return n, nil
}

// consumeWords are the lines of the table of error words for the errors of a run.
func consumeWords(a *cli.App) []cli.Rule {
	return []cli.Rule{
		{Is: consume.ErrUnsettled, Code: 1, What: fmt.Sprintf("the events of consumer '%s' are not settled", a.Consumer), Fix: "run thread consume again, without --once to wait for them"},
		{Is: consume.ErrCommand, Code: 1, Fix: "name a program that is on PATH, or its path; nothing was acked for it"},
	}
}
