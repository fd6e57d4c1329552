package core

import (
	"context"
	"fmt"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/cli"
	"thread/internal/dispatch"
	"thread/internal/jsonform"
	"thread/internal/terminal"
)

type retainCmd struct {
	cli.ThreadFlags
	MaxAge    cli.Text `name:"max-age" placeholder:"DURATION" help:"Drop events that are older, for example 30d; 0 for any age."`
	MaxBytes  cli.Text `name:"max-bytes" placeholder:"SIZE" help:"Drop the oldest when events.db is larger, for example 200M; 0 for any size."`
	MaxEvents cli.Text `name:"max-events" placeholder:"N" help:"Drop the oldest when there are more; 0 for any number."`
	Force     bool     `help:"Drop what consumers have not acked, and the events of dead letters, too."`
	Lines     cli.Text `placeholder:"on|off" help:"off: write no events.jsonl and no line for a push into logs/thread.log; on: write them from now on."`
	Off       bool     `help:"Keep everything from now on."`
	cli.JSONFlag
}

var retainVerb = &cli.Verb{
	Name:    "retain",
	Summary: "Show or change what the thread keeps by itself",
	Details: `Without a limit it shows what holds. Limits that are given replace all of those before,
are kept at once, and from then on by thread serve or after pushes, in the background.
An event that a consumer still waits for, or has as a dead letter, keeps all newer ones;
thread info names the consumer. An eighth more is dropped than --max-bytes and
--max-events ask for, because the database is rewritten; for their age events go at the
latest a day late. Rotated events-*.jsonl and logs go with their events. Ids are not reused.

--lines off spares flash: events.jsonl is rotated, and a push writes no line. Then grep finds
no new events, thread repair cannot take them from events.jsonl, and thread check does not
compare older lines with their events. --lines on begins a new events.jsonl with the next push.`,
	Exits: "0 shown or stored",
	Examples: `thread retain --thread ./inbox --max-age 30d --max-bytes 200M
thread retain --thread ./inbox
thread retain --thread ./inbox --off`,
	Grammar: func() cli.Command { return new(retainCmd) },
}

func (c *retainCmd) Run(ctx context.Context, a *cli.App) error {
	t, err := a.OpenEvents(c.Thread.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	l, set, err := c.limits()
	if err != nil {
		return err
	}
	if err := c.setLines(ctx, a, t); err != nil {
		return err
	}
	var done engine.Compaction
	if set {
		if err := t.SetLimits(ctx, l); err != nil {
			return err
		}
		if done, err = t.Retain(ctx); err != nil {
			a.Warn("the limits are stored, and could not be kept yet: %v", err)
		}
	}
	s, err := t.Limits(ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		return a.Out.IndentedJSON(newRetainJSON(s, done))
	}
	if done.Dropped > 0 {
		a.Out.Buf = fmt.Appendf(a.Out.Buf, "Dropped %d events, %d stay\n", done.Dropped, done.Kept)
	}
	a.Out.Buf = appendLimitsText(a.Out.Buf, s)
	if c.Lines.Value == "off" {
		a.Out.Buf = append(a.Out.Buf, linesOffText...)
	}
	return nil
}

// setLines turns events.jsonl off or on, if --lines is given.
func (c *retainCmd) setLines(ctx context.Context, a *cli.App, t *engine.Thread) error {
	off, err := linesOff(a, c.Lines)
	if err != nil || !c.Lines.Set {
		return err
	}
	return t.SetLines(ctx, !off)
}

// limits reads the flags; set reports whether there is one that changes something.
func (c *retainCmd) limits() (l engine.Limits, set bool, err error) {
	set = c.MaxAge.Set || c.MaxBytes.Set || c.MaxEvents.Set
	if c.Off && set || c.Force && !set {
		return l, set, cli.UsageError("--off goes alone, and --force with a limit", "see thread retain --help")
	}
	l.Force = c.Force
	if c.MaxAge.Set && c.MaxAge.Value != "0" {
		if l.MaxAge, err = cli.ParseDuration("--max-age", c.MaxAge.Value); err != nil {
			return l, set, err
		}
	}
	if c.MaxBytes.Set {
		if l.MaxBytes, err = cli.ParseSize("--max-bytes", c.MaxBytes.Value); err != nil {
			return l, set, err
		}
		if l.MaxBytes != 0 && l.MaxBytes < engine.MinLimitBytes {
			return l, set, cli.UsageError(fmt.Sprintf("--max-bytes %q is too little", c.MaxBytes.Value), "give at least 1M")
		}
	}
	if c.MaxEvents.Set {
		n, ok := cli.ParseNumber(c.MaxEvents.Value)
		if !ok {
			return l, set, cli.UsageError(fmt.Sprintf("--max-events %q is not a number from 0 to 9223372036854775807", c.MaxEvents.Value), "give how many events to keep")
		}
		l.MaxEvents = n
	}
	return l, set || c.Off, nil
}

// appendLimitsText appends the lines that retain prints, and info for a thread with
// limits; s is nil without.
func appendLimitsText(b []byte, s *engine.LimitsState) []byte {
	if s == nil {
		return append(b, "Kept: everything\n"...)
	}
	b = append(b, "Kept:"...)
	sep := " "
	for _, l := range []struct {
		n    int64
		text string
	}{{int64(s.MaxAge), cli.DurationText(s.MaxAge)}, {s.MaxBytes, fmt.Sprintf("%d bytes", s.MaxBytes)}, {s.MaxEvents, fmt.Sprintf("%d events", s.MaxEvents)}} {
		if l.n != 0 {
			b = fmt.Appendf(b, "%sat most %s", sep, l.text)
			sep = ", "
		}
	}
	if s.Force {
		b = append(b, ", unread or not"...)
	}
	b = append(b, '\n')
	if s.Held != nil {
		b = fmt.Appendf(b, "  held back: %s\n", terminal.Printable(s.Held.Error()))
	}
	if !s.Doubted.IsZero() && s.MaxAge != 0 {
		b = fmt.Appendf(b, "  the clock has jumped: until it has gone on for a day, age counts up to %s\n", event.FormatTime(s.Trusted))
	}
	return b
}

// retainJSON is what retain prints with --json.
type retainJSON struct {
	*jsonform.Limits
	Dropped int64 `json:"dropped_count"`
}

func newRetainJSON(s *engine.LimitsState, done engine.Compaction) retainJSON {
	l := jsonform.NewLimits(s)
	if l == nil {
		l = new(jsonform.Limits)
	}
	return retainJSON{l, done.Dropped}
}

// keepLimits is for a push that no other process does it for. A slow disk needs a second.
func keepLimits(ctx context.Context, t *engine.Thread) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_ = dispatch.Retain(ctx, t) // a later push tries again
}
