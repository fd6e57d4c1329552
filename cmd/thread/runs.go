//go:build !noserve

package main

import (
	"context"
	"fmt"

	"thread/event"
	"thread/serve"
)

type runsCmd struct {
	threadFlags
	jsonFlag
}

func runsVerb() *verb {
	return &verb{
		name:    "runs",
		summary: "Show which handlers run or wait under thread serve",
		details: `For each consumer that is on its way: its state (queued, running, or waiting for
a retry), its lane, for how long, and of a running handler its process id and
whether it says that it streams or compacts.`,
		examples: `thread runs --thread ./inbox
thread runs --thread ./inbox --json | jq -r '.consumer_id'`,
		grammar: func() command { return new(runsCmd) },
	}
}

func (c *runsCmd) run(_ context.Context, a *app) error {
	answer, err := a.ask(c.Thread.value, serve.Request{Op: "runs"})
	if err != nil {
		return err
	}
	for _, r := range answer.Runs {
		if c.JSON {
			a.out.buf = appendRun(a.out.buf, &r)
		} else {
			a.out.buf = fmt.Appendf(a.out.buf, "%s  %s for %s, lane %s", printable(r.Consumer), r.State, timeAgo(r.Since), printable(r.Lane))
			if r.PID != 0 {
				a.out.buf = fmt.Appendf(a.out.buf, ", pid %d", r.PID)
			}
			if r.Activity != "" {
				a.out.buf = fmt.Appendf(a.out.buf, ", %s", r.Activity)
			}
			a.out.buf = append(a.out.buf, '\n')
		}
		if err := a.out.more(); err != nil {
			return err
		}
	}
	return nil
}

// appendRun appends a run as a line of JSON, in the forms of docs/JSON.md.
func appendRun(b []byte, r *serve.Run) []byte {
	b = event.AppendString(append(b, `{"consumer_id":`...), r.Consumer)
	b = event.AppendString(append(b, `,"state":`...), r.State)
	b = event.AppendString(append(b, `,"lane":`...), r.Lane)
	b = append(append(b, `,"since":"`...), event.FormatTime(r.Since)...)
	b = event.AppendString(append(b, `","run_id":`...), r.RunID)
	b = fmt.Appendf(b, `,"pid":%d`, r.PID)
	b = event.AppendString(append(b, `,"activity":`...), r.Activity)
	if !r.RetryAt.IsZero() {
		b = append(append(append(b, `,"retry_at":"`...), event.FormatTime(r.RetryAt)...), '"')
	}
	return append(b, "}\n"...)
}
