package serve

import (
	"context"
	"fmt"

	"thread/event"
	"thread/internal/cli"
	"thread/internal/serve"
)

type runsCmd struct {
	cli.ThreadFlags
	cli.JSONFlag
}

func runsVerb() *cli.Verb {
	return &cli.Verb{
		Name:    "runs",
		Summary: "Show which handlers run or wait under thread serve",
		Details: `For each consumer that is on its way: its state (queued, running, or waiting for
a retry), its lane, for how long, and of a running handler its process id and
whether it says that it streams or compacts.`,
		Examples: `thread runs --thread ./inbox
thread runs --thread ./inbox --json | jq -r '.consumer_id'`,
		Grammar: func() cli.Command { return new(runsCmd) },
		Errors:  errorWords,
	}
}

func (c *runsCmd) Run(_ context.Context, a *cli.App) error {
	answer, err := ask(a, c.Thread.Value, serve.Request{Op: "runs"})
	if err != nil {
		return err
	}
	for _, r := range answer.Runs {
		if c.JSON {
			if err := a.Out.JSON(newRunJSON(&r)); err != nil {
				return err
			}
		} else {
			a.Out.Buf = fmt.Appendf(a.Out.Buf, "%s  %s for %s, lane %s", cli.Printable(r.Consumer), r.State, timeAgo(r.Since), cli.Printable(r.Lane))
			if r.PID != 0 {
				a.Out.Buf = fmt.Appendf(a.Out.Buf, ", pid %d", r.PID)
			}
			if r.Activity != "" {
				a.Out.Buf = fmt.Appendf(a.Out.Buf, ", %s", r.Activity)
			}
			a.Out.Buf = append(a.Out.Buf, '\n')
		}
		if err := a.Out.More(); err != nil {
			return err
		}
	}
	return nil
}

// runJSON is a run in the forms of docs/JSON.md.
type runJSON struct {
	Consumer string `json:"consumer_id"`
	State    string `json:"state"`
	Lane     string `json:"lane"`
	Since    string `json:"since"`
	RunID    string `json:"run_id"`
	PID      int    `json:"pid"`
	Activity string `json:"activity"`
	RetryAt  string `json:"retry_at,omitempty"`
}

func newRunJSON(r *serve.Run) runJSON {
	j := runJSON{r.Consumer, r.State, r.Lane, event.FormatTime(r.Since), r.RunID, r.PID, r.Activity, ""}
	if !r.RetryAt.IsZero() {
		j.RetryAt = event.FormatTime(r.RetryAt)
	}
	return j
}
