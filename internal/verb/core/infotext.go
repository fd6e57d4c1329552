package core

import (
	"fmt"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/dispatch"
	"thread/internal/jsonform"
	"thread/internal/terminal"
)

// appendInfoText appends the summary for people: the lines of T-52, and
// after the lines of each consumer what is pending and how its handler is doing.
func appendInfoText(b []byte, info engine.Info, consumers []jsonform.ConsumerState, now time.Time) []byte {
	b = fmt.Appendf(b, "Thread: %s\nEvents: %d\nSubscriptions: %d\n", terminal.Printable(info.Dir), info.EventCount, len(consumers))
	if info.Scheduled > 0 {
		b = fmt.Appendf(b, "Scheduled: %d (next: %s)\n", info.Scheduled, event.FormatTime(info.NextScheduled))
	}
	if info.Durability != "" {
		b = fmt.Appendf(b, "Durability: %s\n", info.Durability)
	}
	if info.LinesOff {
		b = append(b, "Lines: off\n"...)
	}
	if info.Limits != nil {
		b = appendLimitsText(b, info.Limits)
	}
	for i := range consumers {
		c := &consumers[i]
		where, updated := "(none)", "(never)"
		if c.Filter != nil {
			where = terminal.Printable(*c.Filter)
		}
		if c.UpdatedAt != nil {
			updated = terminal.Printable(*c.UpdatedAt)
		}
		handler := terminal.Printable(c.Subscription.Handler)
		if c.Pull {
			handler = "(none: thread next takes the events)"
		}
		b = fmt.Appendf(b, "  - %s\n    handler: %s\n    filter:  %s\n    last_acked_id: %d\n    updated_at: %s\n",
			terminal.Printable(c.Consumer), handler, where, c.LastAcked, updated)
		switch {
		case c.PendingErr != nil:
			b = fmt.Appendf(b, "    pending: unknown (%s)\n", terminal.Printable(c.PendingErr.Error()))
		case c.Oldest != "":
			b = fmt.Appendf(b, "    pending: %d (oldest: %s)\n", c.Pending, age(c.Oldest, now))
		default:
			b = fmt.Appendf(b, "    pending: %d\n", c.Pending)
		}
		b = appendLeaseText(b, &c.Lease, now)
		b = appendDeliveryText(b, c)
		b = appendHandlerText(b, &c.Handler)
	}
	return b
}

// appendLeaseText appends what is in flight with thread next.
func appendLeaseText(b []byte, l *engine.LeaseState, now time.Time) []byte {
	if l.Number == 0 {
		return b
	}
	end := "until"
	if !l.Until.After(now) {
		end = "lease over since"
	}
	return fmt.Appendf(b, "    out: delivery %d, events %d to %d (count: %d), %s %s\n", l.Number, l.First, l.Last, l.Count, end, event.FormatTime(l.Until))
}

// appendDeliveryText appends what is out of the ordinary in a consumer's
// deliveries.
func appendDeliveryText(b []byte, c *jsonform.ConsumerState) []byte {
	if c.Paused {
		b = append(b, "    paused: until thread resume\n"...)
	}
	if c.Failing != 0 {
		b = fmt.Appendf(b, "    failing: event %d, attempts: %d, next at %s (%s)\n", c.Failing, c.Attempts, event.FormatTime(c.NextAt), terminal.Printable(c.LastError))
	}
	if c.ParallelState != (engine.ParallelState{Window: c.Window}) {
		b = fmt.Appendf(b, "    parallel: %d settled above last_acked_id in %d ranges, %d out, %d waiting\n", c.Settled, c.Ranges, c.Out, c.Waiting)
	}
	if c.Full() {
		b = fmt.Appendf(b, "    window full: nothing new is given out until the event after last_acked_id is settled (window: %d)\n", c.Window)
	}
	if c.Dead > 0 {
		b = fmt.Appendf(b, "    dead letters: %d\n", c.Dead)
	}
	if c.Retries > 0 {
		b = fmt.Appendf(b, "    dead letters sent back: %d\n", c.Retries)
	}
	return b
}

// appendHandlerText appends what is worth knowing of a handler, nothing for one
// that never ran.
func appendHandlerText(b []byte, h *dispatch.State) []byte {
	at := func(t *time.Time) string { return event.FormatTime(*t) }
	if h.Running && h.RunningSince != nil {
		b = fmt.Appendf(b, "    running since: %s\n", at(h.RunningSince))
	}
	if h.LastExit != "" && h.LastExitAt != nil {
		b = fmt.Appendf(b, "    last exit: %s at %s\n", terminal.Printable(h.LastExit), at(h.LastExitAt))
	}
	if h.Failures > 0 {
		b = fmt.Appendf(b, "    failures in a row: %d\n", h.Failures)
	}
	if h.Unpopped {
		b = append(b, "    popped nothing: exited 0 and left its events unread; thread consume -- CMD pops them for a command\n"...)
	}
	switch {
	case h.Stalled:
		b = append(b, "    stalled: failed too often; the next push or thread dispatch tries again\n"...)
	case h.Stopped:
		b = append(b, "    stopped: ended with events unread; the next push runs it again\n"...)
	case h.Interrupted:
		b = append(b, "    interrupted: its supervisor was killed; the next push runs it again\n"...)
	case h.RetryAt != nil:
		b = fmt.Appendf(b, "    retry at: %s\n", at(h.RetryAt))
	}
	return b
}

// age returns how long ago an event was created, or the text itself when it is
// imported text in another form.
func age(createdAt string, now time.Time) string {
	ms, ok := event.ParseTime(createdAt)
	if !ok {
		return terminal.Printable(createdAt)
	}
	return max(0, now.Sub(time.UnixMilli(ms))).Truncate(time.Second).String() + " old"
}
