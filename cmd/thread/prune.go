package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"thread/engine"
)

type pruneCmd struct {
	threadFlags
	KeepLast  text `name:"keep-last" placeholder:"N" help:"Keep the newest N events."`
	OlderThan text `name:"older-than" placeholder:"AGE" help:"Drop events older than AGE, such as 90m, 36h or 30d."`
	Acked     bool `help:"Drop what every consumer has acked; nothing when there is no consumer."`
	Force     bool `help:"Drop events that a consumer has not acked, too."`
	DryRun    bool `name:"dry-run" help:"Only say what would be dropped."`
	jsonFlag
}

func pruneVerb() *verb {
	return &verb{
		name:    "prune",
		summary: "Drop old events",
		details: `Needs one of --keep-last, --older-than and --acked. An event that a consumer
still waits for, or has as a dead letter, keeps all of them, and the consumer is
named. Ids never come back, and events*.jsonl stay as they are. The database is
written anew as by thread compact.`,
		examples: `thread prune --thread ./inbox --acked
thread prune --thread ./inbox --older-than 30d --dry-run
thread prune --thread ./inbox --keep-last 100000`,
		grammar: func() command { return new(pruneCmd) },
	}
}

func (c *pruneCmd) run(ctx context.Context, a *app) error {
	t, err := a.open(c.Thread.value)
	if err != nil {
		return err
	}
	defer t.Close()
	r, err := c.retention(time.Now())
	if err != nil {
		return err
	}
	done, err := t.Prune(ctx, r)
	var held *engine.HeldBackError
	if errors.As(err, &held) && held.Dead {
		return logic(fmt.Sprintf("event %d is a dead letter of consumer '%s', and events up to %d would be dropped", held.First, held.Consumer, held.Through),
			"run thread dead retry or thread dead drop first, or add --force to drop the event and keep the letter")
	}
	if errors.As(err, &held) {
		return logic(fmt.Sprintf("consumer '%s' has not acked event %d, and events up to %d would be dropped", held.Consumer, held.First, held.Through),
			"let it catch up, unsubscribe it, or add --force to drop what it waits for")
	}
	if err != nil {
		return err
	}
	if c.JSON {
		a.out.buf = appendCompactionJSON(a.out.buf, done, c.DryRun)
		return nil
	}
	verb := "Dropped"
	if c.DryRun {
		verb = "Would drop"
	}
	a.out.buf = fmt.Appendf(a.out.buf, "%s %d events, %d stay\n", verb, done.Dropped, done.Kept)
	return nil
}

func (c *pruneCmd) retention(now time.Time) (r engine.Retention, err error) {
	r = engine.Retention{Acked: c.Acked, Force: c.Force, DryRun: c.DryRun}
	ways := 0
	for _, set := range []bool{c.KeepLast.set, c.OlderThan.set, c.Acked} {
		if set {
			ways++
		}
	}
	if ways != 1 {
		return r, usage("one of --keep-last, --older-than and --acked is needed", "say which events to drop; see thread prune --help")
	}
	if c.KeepLast.set {
		n, ok := parseNumber(c.KeepLast.value)
		if !ok {
			return r, usage(fmt.Sprintf("--keep-last %q is not a number from 0 to 9223372036854775807", c.KeepLast.value), "give how many events to keep")
		}
		r.KeepLast = &n
	}
	if c.OlderThan.set {
		age, ok := parseAge(c.OlderThan.value)
		if !ok {
			return r, usage(fmt.Sprintf("--older-than %q is not an age", c.OlderThan.value), "give a number and a unit, such as 90m, 36h or 30d")
		}
		r.OlderThan = now.Add(-age)
	}
	return r, nil
}

// parseAge reads a duration in Go's form, or a whole number of days or weeks.
func parseAge(s string) (time.Duration, bool) {
	for unit, length := range map[string]time.Duration{"d": 24 * time.Hour, "w": 7 * 24 * time.Hour} {
		if digits, ok := strings.CutSuffix(s, unit); ok {
			n, err := strconv.ParseUint(digits, 10, 16)
			return time.Duration(n) * length, err == nil
		}
	}
	d, err := time.ParseDuration(s)
	return d, err == nil && d >= 0
}
