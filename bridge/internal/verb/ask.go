package verb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"thread/bridge/adapter"
	"thread/bridge/trigger"
	"thread/engine"
	"thread/internal/cli"
	"thread/internal/terminal"
)

type statusCmd struct{ nameFlags }

type healthCmd struct{ nameFlags }

var statusVerb = &cli.Verb{
	Name:     "trigger status",
	Summary:  "Show how a trigger is, whether it runs or not",
	Examples: `thread trigger status --thread ./inbox --name orders --json`,
	Grammar:  func() cli.Command { return new(statusCmd) },
}

var healthVerb = &cli.Verb{
	Name:     "trigger health",
	Summary:  "Exit with 0 when a trigger runs and reaches its broker",
	Examples: `thread trigger health --thread ./inbox --name orders`,
	Grammar:  func() cli.Command { return new(healthCmd) },
}

// status returns how a trigger is; of one that does not run what is stored.
func (n *nameFlags) status(ctx context.Context, a *cli.App) (s trigger.Status, err error) {
	name, err := n.name()
	if err != nil {
		return s, err
	}
	t, err := a.Open(n.Thread.Value)
	if err != nil {
		return s, err
	}
	defer t.Close()
	s, err = ask[trigger.Status](ctx, t.Dir(), "trigger", name)
	if errors.Is(err, errNotRunning) {
		detail := "not running"
		s = trigger.Status{Status: "unhealthy", Name: name, Detail: &detail, Metrics: trigger.Counts{Consumed: map[string]int64{}}}
		s.Paused, err = trigger.Paused(ctx, t, name)
	}
	return s, err
}

func (c *statusCmd) Run(ctx context.Context, a *cli.App) error {
	s, err := c.status(ctx, a)
	if err != nil {
		return err
	}
	return show(a, c.JSON, s)
}

func show(a *cli.App, asJSON bool, s trigger.Status) error {
	if asJSON {
		return printJSON(a, s)
	}
	detail := ""
	if s.Detail != nil {
		detail = " (" + *s.Detail + ")"
	}
	return a.Out.Text(terminal.Printable(fmt.Sprintf("%s: %s%s, running %t, paused %t, processed %d, failed %d, duplicates %d, backlog %d", s.Name, s.Status, detail,
		s.Running, s.Paused, s.Processed, s.Failed, s.DedupHits, s.Metrics.Backlog)) + "\n")
}

func (c *healthCmd) Run(ctx context.Context, a *cli.App) error {
	s, err := c.status(ctx, a)
	if err != nil {
		return err
	}
	if s.Status != "healthy" {
		detail := ""
		if s.Detail != nil {
			detail = ": " + *s.Detail
		}
		return cli.LogicError("trigger "+s.Name+" is unhealthy"+detail, "see thread trigger status and the log of the process that runs it")
	}
	return show(a, c.JSON, s)
}

type pauseCmd struct{ nameFlags }

type resumeCmd struct{ nameFlags }

var pauseVerb = &cli.Verb{
	Name:     "trigger pause",
	Summary:  "Stop taking messages until resume",
	Details:  "Counts for the process that runs, and for one that is started later.",
	Examples: `thread trigger pause --thread ./inbox --name orders`,
	Grammar:  func() cli.Command { return new(pauseCmd) },
}

var resumeVerb = &cli.Verb{
	Name:     "trigger resume",
	Summary:  "End a pause",
	Examples: `thread trigger resume --thread ./inbox --name orders`,
	Grammar:  func() cli.Command { return new(resumeCmd) },
}

func (c *pauseCmd) Run(ctx context.Context, a *cli.App) error  { return c.set(ctx, a, true) }
func (c *resumeCmd) Run(ctx context.Context, a *cli.App) error { return c.set(ctx, a, false) }

func (n *nameFlags) set(ctx context.Context, a *cli.App, paused bool) error {
	name, err := n.name()
	if err != nil {
		return err
	}
	t, err := a.Open(n.Thread.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	if err := trigger.SetPaused(ctx, t, name, paused); err != nil {
		return err
	}
	if n.JSON {
		return printJSON(a, map[string]any{"name": name, "paused": paused})
	}
	word := "Resumed"
	if paused {
		word = "Paused"
	}
	return a.Out.Text(word + " trigger '" + terminal.Printable(name) + "'\n")
}

type ledgerCmd struct {
	nameFlags
	Limit  cli.Text `placeholder:"N" help:"At most N rows (default 20)."`
	Status cli.Text `placeholder:"STATUS" help:"Only those: stored, success, failed, rejected, parse_error or duplicate."`
}

var ledgerVerb = &cli.Verb{
	Name:     "trigger ledger",
	Summary:  "Show what became of messages, newest first",
	Examples: `thread trigger ledger --thread ./inbox --name orders --status failed`,
	Grammar:  func() cli.Command { return new(ledgerCmd) },
}

func (c *ledgerCmd) Run(ctx context.Context, a *cli.App) error {
	limit, err := strconv.Atoi(c.Limit.Or("20"))
	if err != nil || limit < 1 {
		return cli.UsageError("--limit "+c.Limit.Value+" is not a number from 1", "give a whole number")
	}
	statuses := []string{"", trigger.StatusStored, trigger.StatusSuccess, trigger.StatusFailed, trigger.StatusRejected, trigger.StatusParseError, trigger.StatusDuplicate}
	if !contains(statuses, c.Status.Value) {
		return cli.UsageError("--status "+c.Status.Value+" is not known", "use one of "+strings.Join(statuses[1:], ", "))
	}
	name, err := c.name()
	if err != nil {
		return err
	}
	t, err := a.Open(c.Thread.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	rows, err := trigger.Ledger(ctx, t, name, c.Status.Value, limit)
	if err != nil {
		return err
	}
	for _, r := range rows {
		if c.JSON {
			err = printJSON(a, r)
		} else {
			why := ""
			if r.Error != nil {
				why = "  " + *r.Error
			}
			err = a.Out.Text(terminal.Printable(fmt.Sprintf("%s  %-11s  %s  event %d  %s%s", r.At, r.Status, r.MessageID, r.Event, r.EventName, why)) + "\n")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

type adaptersCmd struct {
	Help cli.HelpFlag `short:"h" help:"Show this help."`
	cli.JSONFlag
}

var adaptersVerb = &cli.Verb{
	Name:     "trigger adapters",
	Summary:  "List the brokers of this build, and what each promises",
	Examples: `thread trigger adapters --json`,
	Grammar:  func() cli.Command { return new(adaptersCmd) },
}

func (c *adaptersCmd) Run(_ context.Context, a *cli.App) error {
	for _, s := range adapter.All() {
		if s.Source == nil && s.Sink == nil {
			continue // not built yet
		}
		promise := s.Caps.Promise
		if s.Caps.Condition != "" {
			promise += ", " + s.Caps.Condition
		}
		var err error
		if c.JSON {
			keys := []string{}
			for _, k := range s.Keys {
				keys = append(keys, k.Name)
			}
			err = printJSON(a, map[string]any{"type": s.Type, "summary": s.Summary, "in": s.Source != nil, "out": s.Sink != nil,
				"promise": promise, "requeue": s.Caps.Requeue, "dlq": s.Caps.DLQ, "positions": s.Caps.Positions, "connection": keys})
		} else {
			err = a.Out.Text(fmt.Sprintf("%-10s %s (%s)\n", s.Type, s.Summary, promise))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

type seekCmd struct {
	cli.ThreadFlags
	configFlag
	To cli.Text `required:"" placeholder:"PLACE" help:"start, end, or a time such as 2026-03-18T10:30:00Z."`
	cli.JSONFlag
}

var seekVerb = &cli.Verb{
	Name:    "trigger seek",
	Summary: "Set where a trigger continues to read, forward or back",
	Details: `For sources with positions, and only while the trigger does not run. Messages that
are read again are stored again.`,
	Examples: `thread trigger seek --thread ./inbox --config orders.yaml --to start`,
	Grammar:  func() cli.Command { return new(seekCmd) },
}

func (c *seekCmd) Run(ctx context.Context, a *cli.App) error {
	conf, err := c.load()
	if err != nil {
		return err
	}
	to := c.To.Value
	seek := trigger.Place{Name: to}
	if to != "start" && to != "end" {
		if seek.At, err = parseTime("--to", to); err != nil {
			return err
		}
		seek.Name = "time"
	}
	t, err := a.Open(c.Thread.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	held, err := only(ctx, t, "trigger", conf.Name, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer held.close()
	src, err := conf.Spec.Source(conf.Settings())
	if err != nil {
		return err
	}
	seeker, ok := src.(trigger.Seeker)
	if !ok {
		return cli.LogicError("adapter "+conf.Adapter+" has no positions to seek in", "the broker keeps the position: send again the messages that are wanted again")
	}
	defer src.Close()
	ws, err := seeker.Seek(ctx, trigger.StateOf(t, &conf.Config), seek)
	if err != nil {
		return cli.LogicError(trigger.Redact(err.Error()), "check the broker and retry; nothing was changed")
	}
	if err := moved(ctx, t, conf.Config, ws); err != nil {
		return err
	}
	if c.JSON {
		return printJSON(a, map[string]any{"name": conf.Name, "to": to, "positions": len(ws)})
	}
	return a.Out.Text(terminal.Printable(fmt.Sprintf("Set trigger '%s' to read on from %s", conf.Name, to)) + "\n")
}

func moved(ctx context.Context, t *engine.Thread, c trigger.Config, ws []trigger.Write) error {
	return trigger.SetPositions(ctx, t, &c, ws)
}
