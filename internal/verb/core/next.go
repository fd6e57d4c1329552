package core

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/cli"
	"thread/internal/dispatch"
)

type nextCmd struct {
	cli.ThreadFlags
	Consumer cli.Text `short:"c" required:"" placeholder:"CONSUMER" help:"The consumer, as subscribed with --pull."`
	Limit    cli.Text `placeholder:"N" help:"How many events at most (default 1)."`
	Timeout  cli.Text `placeholder:"DURATION" help:"How long to wait when there is none; without it not at all."`
	Lease    cli.Text `placeholder:"DURATION" help:"How long the events are yours (default 30s): then they are given out again, and an attempt is counted."`
	Ack      bool     `help:"Ack the events at once: they are not redelivered, whatever becomes of them."`
	shapeFlags
	cli.JSONFlag
}

var nextVerb = &cli.Verb{
	Name:    "next",
	Summary: "Take the next events of a consumer without a handler",
	Details: `Prints one JSON object per line: the event, with delivery (the number for thread ack
--delivery), attempt and lease_until. Until the delivery is acked or its lease has
expired, no other events of the consumer are delivered. An event whose lease expires too
often (subscribe --max-attempts) becomes a dead letter; a group is halved until the
event is alone. A delivery may have fewer than --limit events although more are unread,
for example on a slow host. Repeat until exit code 1 without a message.`,
	Exits: "0 something was taken\n1 without a message: there was nothing to take within --timeout; a consumer with a handler, or paused",
	Examples: `thread subscribe --thread ./inbox --consumer nightly --pull
thread next --thread ./inbox --consumer nightly --limit 100 --ack > events.jsonl
thread next --thread ./inbox --consumer nightly --timeout 1m --lease 10m
thread ack --thread ./inbox --consumer nightly --delivery 7`,
	Grammar: func() cli.Command { return new(nextCmd) },
}

func (c *nextCmd) options() (o engine.NextOptions, timeout time.Duration, err error) {
	if o.Limit, err = cli.ParseLimit(c.Limit.Or("1")); err != nil {
		return o, 0, err
	}
	if c.Lease.Set {
		if c.Ack {
			return o, 0, cli.UsageError("--lease and --ack exclude each other", "give one of them")
		}
		if o.Lease, err = parseLease("--lease", c.Lease.Value); err != nil {
			return o, 0, err
		}
	}
	if c.Timeout.Set {
		timeout, err = cli.ParseDuration("--timeout", c.Timeout.Value)
	}
	o.Ack = c.Ack
	return o, timeout, err
}

// maxLease bounds a lease: what no process acks is given out again in a year.
const maxLease = 366 * 24 * time.Hour

func parseLease(flag, s string) (time.Duration, error) {
	d, err := cli.ParseDuration(flag, s)
	if err == nil && (d < time.Millisecond || d > maxLease) {
		err = cli.UsageError(fmt.Sprintf("%s %q is not from 1ms to 366d", flag, s), "give for example 30s, 10m or 2h")
	}
	return d, err
}

func (c *nextCmd) Run(ctx context.Context, a *cli.App) error {
	t, err := a.OpenFor(c.Thread.Value, c.Consumer.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	o, timeout, err := c.options()
	if err != nil {
		return err
	}
	if err := c.check(); err != nil {
		return err
	}
	l, err := c.wait(ctx, a, t, o, timeout)
	if err != nil {
		return err
	}
	if len(l.Events) == 0 {
		return cli.Exited(1)
	}
	for i := range l.Events {
		if err = c.print(a, &l, &l.Events[i]); err != nil {
			break
		}
	}
	if err == nil {
		err = a.Out.Flush()
	}
	if err != nil && !o.Ack { // no process got them
		if _, rerr := t.SettleDelivery(ctx, c.Consumer.Value, l.Number(), engine.Result{Verdict: engine.Returned}); rerr != nil {
			a.LogWarning("next: consumer=%s delivery %d could not be given back: %v", c.Consumer.Value, l.Number(), rerr)
		}
	}
	return err
}

// wait takes events, for which it waits so long.
func (c *nextCmd) wait(ctx context.Context, a *cli.App, t *engine.Thread, o engine.NextOptions, timeout time.Duration) (engine.Lease, error) {
	next := func(ctx context.Context) (engine.Lease, error) { return take(ctx, t, c.Consumer.Value, o) }
	if timeout == 0 {
		return next(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errTimeout)
	defer cancel()
	ctx, stop := a.Out.UntilReaderGone(ctx)
	defer stop()
	l, err := dispatch.AwaitNext(ctx, t, next)
	if errors.Is(err, errTimeout) {
		err = nil
	}
	return l, err
}

// take is Next, also after a process that was killed with events of the consumer.
func take(ctx context.Context, t *engine.Thread, consumer string, o engine.NextOptions) (engine.Lease, error) {
	if t.URL() == "" {
		return dispatch.TakeNext(ctx, t, consumer, o)
	}
	l, err := t.Next(ctx, consumer, o)
	if !errors.Is(err, engine.ErrOut) {
		return l, err
	}
	held, err := cli.LockURL(ctx, t, consumer, false)
	if err != nil {
		return l, err
	}
	o.TakeOver = true
	l, err = t.Next(ctx, consumer, o)
	if rerr := held.Release(ctx); err == nil {
		err = rerr
	}
	return l, err
}

func (c *nextCmd) print(a *cli.App, l *engine.Lease, e *event.Event) error {
	if c.ContentOnly || l.Until.IsZero() {
		return c.show(a, e)
	}
	b := c.append(a.Out.Buf, e)
	b = append(b[:len(b)-1], `,"delivery":`...)
	b = strconv.AppendInt(b, l.Number(), 10)
	if l.Attempt > 0 {
		b = append(b, `,"attempt":`...)
		b = strconv.AppendInt(b, l.Attempt, 10)
	} else {
		b = append(b, `,"attempt":null`...)
	}
	b = append(b, `,"lease_until":"`...)
	b = append(b, event.FormatTime(l.Until)...)
	a.Out.Buf = append(b, '"', '}', '\n')
	return a.Out.More()
}
