package outbox

import (
	"context"
	"fmt"
	"time"

	"thread/engine"
	"thread/internal/cli"
	"thread/outbox"
)

type pruneCmd struct {
	cli.ThreadFlags
	OlderThan cli.Text `name:"older-than" required:"" placeholder:"TIME" help:"Drop what was processed, or read, before this time: 30d for so long ago, 2026-01-31, or as for peek --since."`
	DryRun    bool     `name:"dry-run" help:"Only say what would be dropped."`
	cli.JSONFlag
}

var pruneVerb = &cli.Verb{
	Name:    "outbox prune",
	Summary: "Drop old records of processed messages, and notifications that were read",
	Details: `What is pending, failed or unread stays, and so does every event_id: a message that
is sent again is a duplicate for ever. A record stays for as long as its dedupe key may
count. The events themselves, which have the messages, are dropped by thread prune.
The space is used again; thread compact gives it back.`,
	Exits: "0 dropped, perhaps nothing",
	Examples: `thread outbox prune --thread ./inbox --older-than 30d
thread outbox prune --thread ./inbox --older-than 30d --dry-run --json`,
	Grammar: func() cli.Command { return new(pruneCmd) },
}

func (c *pruneCmd) Run(ctx context.Context, a *cli.App) error {
	before, err := cli.ParseTime("--older-than", c.OlderThan.Value, time.Now(), cli.Past)
	if err != nil {
		return err
	}
	t, err := a.Open(c.Thread.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	do := t.Update
	if c.DryRun {
		do = t.View
	}
	var sum outbox.Pruned
	var at outbox.PruneCursor
	for more := true; more; {
		var p outbox.Pruned
		next := at
		err := do(ctx, func(tx *engine.Tx) (err error) {
			p, next, more, err = outbox.Prune(tx, before, at, c.DryRun)
			return err
		})
		if err != nil {
			return err
		}
		at = next
		sum.Records += p.Records
		sum.Notifications += p.Notifications
	}
	if c.JSON {
		warnUnprinted(a, printJSON(a, sum))
		return nil
	}
	verb := "Dropped"
	if c.DryRun {
		verb = "Would drop"
	}
	warnUnprinted(a, a.Out.Text(fmt.Sprintf("%s %d records and %d notifications\n", verb, sum.Records, sum.Notifications)))
	return nil
}
