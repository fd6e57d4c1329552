//go:build !noserve

package main

import (
	"context"
	"strconv"
	"time"

	"thread/dispatch"
	"thread/engine"
	"thread/event"
)

// pushLater is push with --delay or --at.
func (c *pushCmd) pushLater(ctx context.Context, a *app, t *engine.Thread, d event.Draft) error {
	at, err := c.due(time.Now())
	if err != nil {
		return err
	}
	if c.Window.set {
		if d.DedupeWindow, err = parseDuration("--dedupe-window", c.Window.value); err != nil {
			return err
		}
	}
	e, err := t.PushAt(ctx, d, at)
	if err != nil {
		return err
	}
	if e.ID == 0 {
		// Its time may be over by now; then the next look releases it.
		dispatch.Rescheduled(t)
	} else if err := wake(ctx, t, d.Source); err != nil {
		a.logWarning("push: the event is stored, but no handler could be started: %v; run thread dispatch --thread %s", err, a.dir)
	}
	switch {
	case c.Quiet:
		return nil
	case e.ID != 0 && c.JSON:
		a.out.buf = append(e.AppendJSON(a.out.buf), '\n')
		return nil
	case e.ID != 0:
		return a.out.text(strconv.FormatInt(e.ID, 10) + "\n")
	case c.JSON:
		a.out.buf = appendPlanned(append(a.out.buf, `{"id":null`...), at, &d)
		return nil
	}
	return a.out.text("Scheduled for " + event.FormatTime(at) + "\n")
}

// due returns the time that --delay or --at names.
func (c *pushCmd) due(now time.Time) (at time.Time, err error) {
	switch {
	case c.Batch:
		return at, usage("--delay and --at do not go with --batch", "push the events one by one")
	case c.Delay.set && c.At.set:
		return at, usage("--delay and --at exclude each other", "give one of them")
	case c.Delay.set:
		d, err := parseDuration("--delay", c.Delay.value)
		return now.Add(d), err
	}
	if at, err = time.Parse(time.RFC3339Nano, c.At.value); err == nil {
		return at, nil
	}
	for _, layout := range []string{"2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04"} {
		if at, err := time.ParseInLocation(layout, c.At.value, time.Local); err == nil {
			return at, nil
		}
	}
	return at, usage("--at \""+c.At.value+"\" is not a time", "give for example 2026-01-31T09:00:00Z, or 2026-01-31 09:00 for local time")
}

// appendPlanned appends the rest of an object: when what is pushed.
func appendPlanned(b []byte, at time.Time, d *event.Draft) []byte {
	b = event.AppendString(append(b, `,"next_at":`...), event.FormatTime(at))
	b = event.AppendString(append(b, `,"source":`...), d.Source)
	b = event.AppendString(append(b, `,"type":`...), d.Type)
	b = appendText(append(b, `,"subtype":`...), d.Subtype)
	b = event.AppendString(append(b, `,"content":`...), d.Content)
	return append(b, '}', '\n')
}
