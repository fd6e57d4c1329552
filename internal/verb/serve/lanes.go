package serve

import (
	"context"
	"fmt"
	"time"

	"thread/internal/cli"
	"thread/internal/serve"
)

type lanesCmd struct {
	cli.ThreadFlags
	cli.JSONFlag
}

func lanesVerb() *cli.Verb {
	return &cli.Verb{
		Name:    "lanes",
		Summary: "Show the lanes of thread serve",
		Details: `For each lane that is in use or configured: how many handlers run in it, its
limit, how many wait and for how long the first of them. A thread serve has its
lanes in common for all of its threads.`,
		Examples: `thread lanes --thread ./inbox`,
		Grammar:  func() cli.Command { return new(lanesCmd) },
		Errors:   errorWords,
	}
}

func (c *lanesCmd) Run(_ context.Context, a *cli.App) error {
	answer, err := ask(a, c.Thread.Value, serve.Request{Op: "lanes"})
	if err != nil {
		return err
	}
	for _, l := range answer.Lanes {
		if c.JSON {
			if err := a.Out.JSON(laneJSON{l.Name, l.Limit, l.Active, l.Queued, l.OldestMS}); err != nil {
				return err
			}
			continue
		}
		a.Out.Buf = fmt.Appendf(a.Out.Buf, "%s  %d of %d run, %d wait", cli.Printable(l.Name), l.Active, l.Limit, l.Queued)
		if l.Queued > 0 {
			a.Out.Buf = fmt.Appendf(a.Out.Buf, ", the first for %v", time.Duration(l.OldestMS)*time.Millisecond)
		}
		a.Out.Buf = append(a.Out.Buf, '\n')
	}
	return nil
}

type laneJSON struct {
	Name     string `json:"name"`
	Limit    int    `json:"limit"`
	Active   int    `json:"active"`
	Queued   int    `json:"queued"`
	OldestMS int64  `json:"oldest_ms"`
}
