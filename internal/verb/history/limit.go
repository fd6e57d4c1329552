package history

import (
	"context"
	"fmt"
	"strings"
	"time"

	"thread/history"
	"thread/internal/cli"
)

type historyLimitCmd struct {
	cli.ThreadFlags
	Subject   cli.Text `placeholder:"REF" help:"Whose runs; \"\" for every subject that has no limit of its own."`
	Workspace cli.Text `placeholder:"WORKSPACE" help:"The runs of which workspace; \"\" for that of the directory."`
	Active    cli.Text `placeholder:"N" help:"At most so many active at once; 0 for any number."`
	Rate      cli.Text `placeholder:"N/DURATION" help:"At most so many started or queued in that time, as 30/1m."`
	Remove    bool     `help:"Remove the limit."`
	cli.JSONFlag
}

func historyLimitVerb() *cli.Verb {
	return &cli.Verb{
		Name: "history limit", Summary: "Limit the runs of a subject or workspace, or list the limits",
		Details: `A run that would be over a limit is refused with exit code 1, and one that is queued
waits. Without --subject and --workspace the limits are listed.`,
		Exits: "0 listed or stored",
		Examples: `thread history limit --thread ./inbox --subject u1 --active 3 --rate 30/1m
thread history limit --thread ./inbox --subject u1 --remove`,
		Errors: errorWords, Grammar: func() cli.Command { return new(historyLimitCmd) },
	}
}

func (c *historyLimitCmd) Run(ctx context.Context, a *cli.App) error {
	if c.Subject.Set && c.Workspace.Set {
		return cli.UsageError("--subject and --workspace exclude each other", "set one limit after the other")
	}
	if !c.Subject.Set && !c.Workspace.Set {
		return with(ctx, a, c.Thread, func(h *history.History) error {
			for l, err := range h.Limits(ctx) {
				if err != nil {
					return err
				}
				if err := put(a, c.JSON, &l, limitLine(&l)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	l := history.LimitRow{Scope: "subject", Ref: c.Subject.Value}
	if c.Workspace.Set {
		l.Scope, l.Ref = "workspace", c.Workspace.Value
	}
	l.ID = history.LimitID(l.Scope, l.Ref)
	if c.Remove {
		return with(ctx, a, c.Thread, func(h *history.History) error {
			if err := h.Update(ctx, func(tx *history.Tx) error { return tx.Delete(history.Limit, l.ID) }); err != nil {
				return err
			}
			if c.JSON {
				return put(a, true, &l, "")
			}
			return a.Out.Text("Removed the limit of " + cli.Printable(strings.TrimSuffix(l.ID, ":")) + "\n")
		})
	}
	if !c.Active.Set && !c.Rate.Set {
		return cli.UsageError("no limit is given", "add --active N or --rate N/DURATION")
	}
	if c.Active.Set {
		n, ok := cli.ParseNumber(c.Active.Value)
		if !ok {
			return cli.UsageError(fmt.Sprintf("--active %q is not a number", c.Active.Value), "give how many, 0 for any number")
		}
		l.Active = n
	}
	if c.Rate.Set {
		count, per, _ := strings.Cut(c.Rate.Value, "/")
		n, ok := cli.ParseNumber(count)
		d, err := cli.ParseDuration("--rate", per)
		if !ok || n < 1 || err != nil || d < time.Millisecond {
			return cli.UsageError(fmt.Sprintf("--rate %q is not a rate", c.Rate.Value), "give for example 30/1m")
		}
		l.Rate, l.PerMS = n, d.Milliseconds()
	}
	return with(ctx, a, c.Thread, func(h *history.History) error {
		if err := h.Put(ctx, &l); err != nil {
			return err
		}
		return put(a, c.JSON, &l, limitLine(&l))
	})
}

func limitLine(l *history.LimitRow) string {
	who := l.Scope + " " + l.Ref
	if l.Ref == "" {
		who = "every " + l.Scope
		if l.Scope == "workspace" {
			who = "this workspace"
		}
	}
	active, rate := "", ""
	if l.Active > 0 {
		active = fmt.Sprintf("%d active", l.Active)
	}
	if l.Rate > 0 {
		rate = fmt.Sprintf("%d in %s", l.Rate, cli.DurationText(time.Duration(l.PerMS)*time.Millisecond))
	}
	return line(who, active, rate)
}
