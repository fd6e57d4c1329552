package history

import (
	"context"
	"fmt"
	"strings"
	"time"

	"thread/engine"
	"thread/event"
	"thread/history"
	"thread/internal/cli"
	"thread/internal/terminal"
)

type historyRetainCmd struct {
	cli.ThreadFlags
	OK        cli.Text `name:"ok" placeholder:"DURATION" help:"How long runs of handlers are kept that went well (default 24h)."`
	Failed    cli.Text `placeholder:"DURATION" help:"How long those are kept that did not (default 7d)."`
	Events    cli.Text `placeholder:"DURATION" help:"How long history events are kept, of agents too; 0 keeps them until thread history prune (default 0)."`
	MaxBytes  cli.Text `name:"max-bytes" placeholder:"SIZE" help:"Drop the oldest history events when history/events.db is larger, for example 200M; 0 for any size (default 0)."`
	MaxEvents cli.Text `name:"max-events" placeholder:"N" help:"Drop the oldest when there are more; 0 for any number (default 0)."`
	Record    cli.Text `placeholder:"on|off" help:"Whether runs of handlers are recorded (default on)."`
	cli.JSONFlag
}

var historyRetainVerb = &cli.Verb{
	Name: "history retain", Summary: "Show or change how long runs of handlers, and history events, are kept",
	Details: `What is not named stays; printed is what then holds. Runs whose time has ended go when
the next one is recorded, except those to which their handler has added steps, messages or
calls of tools. With --events, history events that are older go with one of the next commands
about the history, as thread history prune --older-than drops them: all rows stay. So do the
oldest with --max-bytes and --max-events, an eighth more than they ask for, because the
database is rewritten. Rotated history/events-*.jsonl go with their events.`,
	Exits: "0 shown or stored",
	Examples: `thread history retain --thread ./inbox --ok 1h --failed 30d
thread history retain --thread ./inbox --events 90d --max-bytes 200M
thread history retain --thread ./inbox --record off`,
	Errors: errorWords, Grammar: func() cli.Command { return new(historyRetainCmd) },
}

func (c *historyRetainCmd) Run(ctx context.Context, a *cli.App) error {
	return with(ctx, a, c.Thread, func(h *history.History) error {
		r, err := h.RunRetention(ctx)
		if err != nil {
			return err
		}
		was := r
		for _, f := range []struct {
			name string
			text cli.Text
			to   *time.Duration
		}{{"--ok", c.OK, &r.OK}, {"--failed", c.Failed, &r.Failed}} {
			if !f.text.Set {
				continue
			}
			if *f.to, err = cli.ParseDuration(f.name, f.text.Value); err != nil {
				return err
			}
			if *f.to < time.Millisecond {
				return cli.UsageError(fmt.Sprintf("%s %q is too short", f.name, f.text.Value), "give at least 1ms, or --record off")
			}
		}
		if c.Events.Set {
			r.Events = 0
			if c.Events.Value != "0" {
				if r.Events, err = cli.ParseDuration("--events", c.Events.Value); err != nil {
					return err
				}
			}
		}
		if c.MaxBytes.Set {
			if r.MaxBytes, err = cli.ParseSize("--max-bytes", c.MaxBytes.Value); err != nil {
				return err
			}
			if r.MaxBytes != 0 && r.MaxBytes < engine.MinLimitBytes {
				return cli.UsageError(fmt.Sprintf("--max-bytes %q is too little", c.MaxBytes.Value), "give at least 1M")
			}
		}
		if c.MaxEvents.Set {
			n, ok := cli.ParseNumber(c.MaxEvents.Value)
			if !ok {
				return cli.UsageError(fmt.Sprintf("--max-events %q is not a number from 0 to 9223372036854775807", c.MaxEvents.Value), "give how many history events to keep")
			}
			r.MaxEvents = n
		}
		if c.Record.Set {
			if c.Record.Value != "on" && c.Record.Value != "off" {
				return cli.UsageError(fmt.Sprintf("--record is %q", c.Record.Value), "say on or off")
			}
			r.Off = c.Record.Value == "off"
		}
		if r != was {
			if err := h.SetRunRetention(ctx, r); err != nil {
				return err
			}
		}
		held, err := heldBack(ctx, h, r)
		if err != nil {
			return err
		}
		if c.JSON {
			b := fmt.Appendf(nil, `{"record":%v,"ok_ms":%d,"failed_ms":%d,"events_ms":%d,"max_bytes":%d,"max_events":%d,"held_back":`,
				!r.Off, r.OK.Milliseconds(), r.Failed.Milliseconds(), r.Events.Milliseconds(), r.MaxBytes, r.MaxEvents)
			if held == "" {
				b = append(b, "null"...)
			} else {
				b = event.AppendString(b, held)
			}
			return a.Out.Text(string(b) + "}\n")
		}
		return a.Out.Text(retentionText(r, held))
	})
}

// retentionText is what is printed without --json.
func retentionText(r history.RunRetention, held string) string {
	said := "Runs of handlers are not recorded\n"
	if !r.Off {
		said = fmt.Sprintf("Runs of handlers are kept for %s, those that failed for %s\n", cli.DurationText(r.OK), cli.DurationText(r.Failed))
	}
	var most []string
	if r.Events > 0 {
		most = append(most, "for "+cli.DurationText(r.Events))
	}
	if r.MaxBytes > 0 {
		most = append(most, fmt.Sprintf("at most %d bytes", r.MaxBytes))
	}
	if r.MaxEvents > 0 {
		most = append(most, fmt.Sprintf("at most %d events", r.MaxEvents))
	}
	if len(most) > 0 {
		said += "History events are kept " + strings.Join(most, ", ") + "\n"
	}
	if held != "" {
		said += "  held back: " + terminal.Printable(held) + "\n"
	}
	return said
}

// heldBack returns why history events that are due are there still, "" when none are.
func heldBack(ctx context.Context, h *history.History, r history.RunRetention) (string, error) {
	due, err := h.EventsDue(ctx, r)
	if !due || err != nil {
		return "", err
	}
	if err := h.RetainEvents(ctx, true); err != nil {
		return err.Error(), nil
	}
	return "", nil
}

type historyTakeCmd struct {
	cli.ThreadFlags
	cli.JSONFlag
}

var historyTakeVerb = &cli.Verb{
	Name: "history take", Summary: "Take the runs of handlers that have ended into the history",
	Details:  `Every command about the history does so, and the handlers' supervisors have it done after a failure.`,
	Exits:    "0 taken, perhaps nothing",
	Examples: `thread history take --thread ./inbox`,
	Errors:   errorWords, Grammar: func() cli.Command { return new(historyTakeCmd) },
}

func (c *historyTakeCmd) Run(ctx context.Context, a *cli.App) error {
	if err := a.SetDir("--thread", c.Thread.Value); err != nil {
		return err
	}
	h, err := history.Open(ctx, a.Dir, history.LeaveRuns(), history.WithLogLines(a.LogInfo))
	if err != nil {
		return err
	}
	n, err := h.TakeRuns(ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		return a.Out.Text(fmt.Sprintf(`{"taken":%d}`+"\n", n))
	}
	return a.Out.Text(fmt.Sprintf("Took %d runs\n", n))
}
