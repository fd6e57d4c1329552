package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"strings"
	"time"

	"thread/engine"
	"thread/event"
	"thread/history"
	"thread/internal/cli"
)

func lines(text string) iter.Seq[string] {
	return strings.SplitSeq(strings.TrimRight(text, "\n"), "\n")
}

type historyTailCmd struct {
	cli.ThreadFlags
	Follow  bool     `short:"f" help:"Follow what is recorded later, until interrupted."`
	Session cli.Text `placeholder:"SESSION" help:"Only what belongs to this session."`
	Space   cli.Text `name:"workspace" placeholder:"WORKSPACE" help:"Only what belongs to this workspace, without deletions."`
	Filter  cli.Text `placeholder:"WHERE" help:"Only history events that match: type is the entity, subtype the status, the role or deleted."`
	After   cli.Text `placeholder:"EVENT" help:"Only those after this one, to continue where an earlier tail ended."`
	cli.JSONFlag
}

var historyTailVerb = &cli.Verb{
	Name: "history tail", Summary: "Print what was recorded, change by change",
	Details: `Every change of a row is a history event. With --follow none is left out, and none
comes twice, between those that are there and those to come.`,
	Exits: "0 printed; with -f: interrupted, or its reader is gone",
	Examples: `thread history tail --thread ./inbox -f --session S
thread history tail --thread ./inbox --filter "type = 'run' AND subtype = 'failed'" --json`,
	Errors: errorWords, Grammar: func() cli.Command { return new(historyTailCmd) },
}

func (c *historyTailCmd) Run(ctx context.Context, a *cli.App) error {
	after := int64(0)
	if c.After.Set {
		var err error
		if after, err = cli.ParseID("--after", c.After.Value); err != nil {
			return err
		}
	}
	where := c.Filter.Value
	if c.Session.Set {
		of := "source = 'session:" + strings.ReplaceAll(c.Session.Value, "'", "''") + "'"
		if where != "" {
			of += " AND (" + where + "\n)"
		}
		where = of
	}
	return with(ctx, a, c.Thread, func(h *history.History) error {
		for _, err := range h.Changes(ctx, math.MaxInt64, c.Filter.Value) {
			return err // a filter that is one only together with the session's
		}
		ctx, stop := cli.Interruptible(ctx)
		defer stop()
		seq := h.Changes(ctx, after, where)
		if c.Follow {
			seq = h.Follow(ctx, after, where)
		}
		if c.Space.Set {
			seq = h.OfWorkspace(ctx, c.Space.Value, seq)
		}
		for change, err := range seq {
			if err != nil && ctx.Err() != nil && c.Follow {
				return nil
			}
			if err != nil {
				return err
			}
			if c.JSON {
				a.Out.Buf = append(change.AppendJSON(a.Out.Buf), '\n')
			} else {
				var row struct{ Status, Role string }
				_ = json.Unmarshal(change.Row, &row) // a row without them has none
				a.Out.Buf = append(a.Out.Buf, line(fmt.Sprint(change.ID), change.At, labelled("session", change.Session), change.Op, string(change.Entity), change.EntityID, row.Status, row.Role)+"\n"...)
			}
			end := a.Out.More
			if c.Follow {
				end = a.Out.Flush
			}
			if err := end(); err != nil {
				return err
			}
		}
		return nil
	})
}

type historyPruneCmd struct {
	cli.ThreadFlags
	OlderThan cli.Text `name:"older-than" placeholder:"TIME" help:"Drop history events from before this time, as for prune."`
	KeepLast  cli.Text `name:"keep-last" placeholder:"N" help:"Keep the newest N."`
	Force     bool     `help:"Also those that a subscribed consumer has not acked."`
	DryRun    bool     `name:"dry-run" help:"Only say what would be dropped."`
	cli.JSONFlag
}

var historyPruneVerb = &cli.Verb{
	Name: "history prune", Summary: "Drop old history events and keep every row",
	Details: `Rows stay as they are: one whose newest history event would go is recorded again as
replace. What goes are older versions and deleted rows. To get rid of rows, delete
their sessions first.`,
	Exits:    "0 dropped, or nothing was old enough\n1 a consumer of the history still needs it, and there is no --force",
	Examples: `thread history prune --thread ./inbox --older-than 30d`,
	Errors:   errorWords, Grammar: func() cli.Command { return new(historyPruneCmd) },
}

func (c *historyPruneCmd) Run(ctx context.Context, a *cli.App) error {
	r := engine.Retention{Force: c.Force, DryRun: c.DryRun}
	if !c.OlderThan.Set && !c.KeepLast.Set {
		return cli.UsageError("give --older-than or --keep-last", "add for example --older-than 30d")
	}
	if c.OlderThan.Set {
		at, err := cli.ParseTime("--older-than", c.OlderThan.Value, time.Now(), cli.Past)
		if err != nil {
			return err
		}
		r.OlderThan = at
	}
	if c.KeepLast.Set {
		n, ok := cli.ParseNumber(c.KeepLast.Value)
		if !ok {
			return cli.UsageError(fmt.Sprintf("--keep-last %q is not a number", c.KeepLast.Value), "give how many history events to keep")
		}
		r.KeepLast = &n
	}
	return with(ctx, a, c.Thread, func(h *history.History) error {
		done, replaced, err := h.Prune(ctx, r)
		var held *engine.HeldBackError
		if errors.As(err, &held) {
			return cli.LogicError(err.Error()+" of the history", "let that consumer continue, or add --force")
		}
		if err != nil {
			return err
		}
		if c.JSON {
			return a.Out.Text(fmt.Sprintf(`{"dropped":%d,"replaced":%d,"dry_run":%v}`+"\n", done.Dropped, replaced, c.DryRun))
		}
		verb := "Dropped"
		if c.DryRun {
			verb = "Would drop"
		}
		return a.Out.Text(fmt.Sprintf("%s %d history events, recorded %d rows again\n", verb, done.Dropped, replaced))
	})
}

type historyRebuildCmd struct {
	cli.ThreadFlags
	cli.JSONFlag
}

var historyRebuildVerb = &cli.Verb{
	Name: "history rebuild", Summary: "Rebuild the tables of the history from its log",
	Details:  `For a history that was repaired from its lines. The rows and their order come out the same.`,
	Exits:    "0 rebuilt",
	Examples: `thread history rebuild --thread ./inbox`,
	Errors:   errorWords, Grammar: func() cli.Command { return new(historyRebuildCmd) },
}

func (c *historyRebuildCmd) Run(ctx context.Context, a *cli.App) error {
	return with(ctx, a, c.Thread, func(h *history.History) error {
		n, err := h.Rebuild(ctx)
		if err != nil {
			return err
		}
		if c.JSON {
			return a.Out.Text(string(event.AppendString([]byte(`{"thread":`), a.Dir)) + fmt.Sprintf(`,"history_events":%d}`+"\n", n))
		}
		return a.Out.Text(fmt.Sprintf("Rebuilt from %d history events\n", n))
	})
}
