package core

import (
	"context"
	"strconv"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/cli"
	"thread/internal/dispatch"
	"thread/internal/jsonform"
)

// pushLater is push with --delay or --at.
func (c *pushCmd) pushLater(ctx context.Context, a *cli.App, t *engine.Thread, d event.Draft) error {
	delay, at, err := c.due()
	if err != nil {
		return err
	}
	if c.Window.Set {
		if d.DedupeWindow, err = cli.ParseDuration("--dedupe-window", c.Window.Value); err != nil {
			return err
		}
	}
	var e event.Event
	var waits engine.Delayed
	if delay > 0 {
		e, waits, err = t.DelayFor(ctx, d, delay)
	} else {
		e, waits, err = t.DelayUntil(ctx, d, at)
	}
	if err != nil {
		return err
	}
	if e.ID == 0 {
		// Its time may be over by now; then the next look releases it.
		awaited, err := dispatch.Rescheduled(ctx, t, waits.At)
		notAwaited(a, t, awaited, err)
	} else {
		a.NotStarted("push: the event is stored", cli.Wake(ctx, t, d.Source))
	}
	switch {
	case c.Quiet:
		return nil
	case e.ID != 0 && c.JSON:
		return a.Out.Event(&e)
	case e.ID != 0:
		return a.Out.Text(strconv.FormatInt(e.ID, 10) + "\n")
	case c.JSON:
		return a.Out.JSON(struct {
			ID      *int64 `json:"id"` // it has none yet
			Delayed int64  `json:"delayed_id"`
			jsonform.Planned
		}{nil, waits.ID, jsonform.NewPlanned(waits.At, &d)})
	}
	return a.Out.Text("Scheduled for " + event.FormatTime(waits.At) + ", delayed id " + strconv.FormatInt(waits.ID, 10) + "\n")
}

// notAwaited warns where no process releases at its time what was scheduled.
func notAwaited(a *cli.App, t *engine.Thread, awaited bool, err error) {
	if err != nil {
		a.NotStarted("the event is scheduled", err)
	} else if !awaited && t.URL() == "" { // there every process that waits for events looks, too
		a.Warn("no process waits for that time: the next command that uses the thread pushes it; for more, run thread serve --thread %s, or thread dispatch from cron", cli.ShellWord(a.Dir))
	}
}

// due returns the delay of --delay, or the time of --at.
func (c *pushCmd) due() (delay time.Duration, at time.Time, err error) {
	switch {
	case c.Batch:
		return 0, at, cli.UsageError("--delay and --at do not go with --batch", "push the events one by one")
	case c.Delay.Set && c.At.Set:
		return 0, at, cli.UsageError("--delay and --at exclude each other", "give one of them")
	case c.Delay.Set:
		delay, err = cli.ParseDuration("--delay", c.Delay.Value)
		return delay, at, err
	}
	at, err = cli.ParseTime("--at", c.At.Value, time.Now(), cli.Future)
	return 0, at, err
}
