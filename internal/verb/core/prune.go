package core

import (
	"context"
	"fmt"
	"time"

	"thread/engine"
	"thread/internal/cli"
)

type pruneCmd struct {
	cli.ThreadFlags
	KeepLast  cli.Text `name:"keep-last" placeholder:"N" help:"Keep the newest N events."`
	OlderThan cli.Text `name:"older-than" placeholder:"TIME" help:"Drop events created before this time: 30d for so long ago, 2026-01-31, or as for peek --since."`
	Acked     bool     `help:"Drop what every consumer has acked; nothing when there is no consumer."`
	Force     bool     `help:"Drop events that a consumer has not acked, too."`
	DryRun    bool     `name:"dry-run" help:"Only say what would be dropped."`
	cli.JSONFlag
}

var pruneVerb = &cli.Verb{
	Name:    "prune",
	Summary: "Drop old events",
	Details: `Needs one of --keep-last, --older-than and --acked, or the first two: then what
either keeps is kept, however wrong the clock is. An event that a consumer still
waits for, or has as a dead letter, keeps all of them, and the consumer is named. Ids
are not reused, and events*.jsonl stay as they are. The database is rewritten as by
thread compact.`,
	Exits: "0 dropped, or nothing was old enough\n1 unread events or dead letters are held, and there is no --force\n130 interrupted on a terminal: nothing was dropped",
	Examples: `thread prune --thread ./inbox --acked
thread prune --thread ./inbox --older-than 30d --keep-last 1000 --dry-run
thread prune --thread ./inbox --keep-last 100000`,
	Grammar: func() cli.Command { return new(pruneCmd) },
}

func (c *pruneCmd) Run(ctx context.Context, a *cli.App) error {
	t, err := a.OpenEvents(c.Thread.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	r, err := c.retention(time.Now())
	if err != nil {
		return err
	}
	var done engine.Compaction
	err = longJob(ctx, a, "nothing was dropped", func(ctx context.Context) (err error) {
		done, err = t.Prune(ctx, r)
		return err
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return a.Out.IndentedJSON(newCompactionJSON(done, c.DryRun))
	}
	verb := "Dropped"
	if c.DryRun {
		verb = "Would drop"
	}
	a.Out.Buf = fmt.Appendf(a.Out.Buf, "%s %d events, %d stay\n", verb, done.Dropped, done.Kept)
	return nil
}

func (c *pruneCmd) retention(now time.Time) (r engine.Retention, err error) {
	r = engine.Retention{Acked: c.Acked, Force: c.Force, DryRun: c.DryRun}
	if c.Acked == (c.KeepLast.Set || c.OlderThan.Set) {
		return r, cli.UsageError("one of --keep-last, --older-than and --acked is needed, or the first two", "say which events to drop; see thread prune --help")
	}
	if c.KeepLast.Set {
		n, ok := cli.ParseNumber(c.KeepLast.Value)
		if !ok {
			return r, cli.UsageError(fmt.Sprintf("--keep-last %q is not a number from 0 to 9223372036854775807", c.KeepLast.Value), "give how many events to keep")
		}
		r.KeepLast = &n
	}
	if c.OlderThan.Set {
		if r.OlderThan, err = cli.ParseTime("--older-than", c.OlderThan.Value, now, cli.Past); err != nil {
			return r, err
		}
	}
	return r, nil
}
