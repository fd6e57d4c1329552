package history

import (
	"context"
	"fmt"
	"strings"
	"time"

	"thread/history"
	"thread/internal/cli"
	"thread/internal/terminal"
)

type historyLimitCmd struct {
	cli.ThreadFlags
	Subject   cli.Text `placeholder:"REF" help:"Whose runs; \"\" for every subject without a separate limit."`
	Workspace cli.Text `placeholder:"WORKSPACE" help:"The runs of which workspace; \"\" for the directory's workspace."`
	Agent     cli.Text `placeholder:"AGENT" help:"The queued runs of which agent."`
	Per       cli.Text `placeholder:"WHAT" help:"With --rate: of the queued runs of each agent, each subject, or each unique key."`
	Active    cli.Text `placeholder:"N" help:"At most N active at once; 0 for any number."`
	Rate      cli.Text `placeholder:"N/DURATION" help:"At most N started or queued in DURATION, as 30/1m; of queued runs, at most N started."`
	Remove    bool     `help:"Remove the limit."`
	cli.JSONFlag
}

var historyLimitVerb = &cli.Verb{
	Name: "history limit", Summary: "Limit the runs of a subject or workspace, or list the limits",
	Details: `A run of that subject or workspace that would be over the limit is refused with exit
code 1, and one that is queued waits. With --agent, --per or --rate alone, the rate holds
starts of queued runs, for all workers of the thread: over a reboot, and whatever the
clock does. Without flags the limits are listed.`,
	Exits: "0 listed or stored",
	Examples: `thread history limit --thread ./inbox --subject u1 --active 3 --rate 30/1m
thread history limit --thread ./inbox --agent mail --rate 30/1m
thread history limit --thread ./inbox --per key --rate 1/10s
thread history limit --thread ./inbox --subject u1 --remove`,
	Errors: errorWords, Grammar: func() cli.Command { return new(historyLimitCmd) },
}

func (c *historyLimitCmd) Run(ctx context.Context, a *cli.App) error {
	if !c.Subject.Set && !c.Workspace.Set && !c.Agent.Set && !c.Per.Set && !c.Rate.Set && !c.Active.Set && !c.Remove {
		return with(ctx, a, c.Thread, func(h *history.History) error {
			return list(a, c.JSON, h.Limits(ctx), nil, nil, limitLine)
		})
	}
	l, err := c.scope()
	if err != nil {
		return err
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
			return a.Out.Text("Removed the limit of " + terminal.Printable(strings.TrimSuffix(l.ID, ":")) + "\n")
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
		if !ok || n < 1 || n > history.MaxRate || err != nil || d < time.Millisecond {
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

// scope returns the limit that the flags name, without its numbers.
func (c *historyLimitCmd) scope() (l history.LimitRow, err error) {
	n := 0
	for _, f := range []struct {
		scope string
		ref   cli.Text
	}{{"subject", c.Subject}, {"workspace", c.Workspace}, {history.StartsOfAgent, c.Agent}, {"", c.Per}} {
		if f.ref.Set {
			l.Scope, l.Ref = f.scope, f.ref.Value
			n++
		}
	}
	starts := c.Agent.Set || c.Per.Set || n == 0
	switch {
	case n > 1:
		return l, cli.UsageError("--subject, --workspace, --agent and --per exclude each other", "set one limit after the other")
	case c.Agent.Set && c.Agent.Value == "":
		return l, cli.UsageError("--agent is empty", "name an agent, or give --per agent for each")
	case starts && c.Active.Set:
		return l, cli.UsageError("--active is for --subject and --workspace", "give --rate, or name a subject or workspace")
	case n == 0:
		l.Scope = history.StartsOfAll
	case c.Per.Set:
		scope, ok := map[string]string{"agent": history.StartsOfAgent, "subject": history.StartsOfSubject, "key": history.StartsOfKey}[c.Per.Value]
		if !ok {
			return l, cli.UsageError(fmt.Sprintf("--per %q is unknown", c.Per.Value), "give agent, subject or key")
		}
		l.Scope, l.Ref = scope, ""
	}
	return l, nil
}

// starts are the words for the limits of starts, for each and for one.
var starts = map[string][2]string{
	history.StartsOfAll: {"all queued runs", ""}, history.StartsOfAgent: {"queued runs of each agent", "queued runs of agent "},
	history.StartsOfSubject: {"queued runs for each subject", ""}, history.StartsOfKey: {"queued runs of each unique key", ""},
}

func limitLine(l *history.LimitRow) string {
	who := l.Scope + " " + l.Ref
	if l.Ref == "" {
		who = "every " + l.Scope
		if l.Scope == "workspace" {
			who = "this workspace"
		}
	}
	if words, is := starts[l.Scope]; is {
		if who = words[0]; l.Ref != "" {
			who = words[1] + l.Ref
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
