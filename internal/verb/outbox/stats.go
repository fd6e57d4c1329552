package outbox

import (
	"context"
	"fmt"
	"slices"
	"time"

	"thread/engine"
	"thread/internal/cli"
	"thread/outbox"
)

type statsCmd struct {
	cli.ThreadFlags
	cli.JSONFlag
}

var statsVerb = &cli.Verb{
	Name:     "outbox stats",
	Summary:  "Count what is pending and failed in the outbox",
	Exits:    "0 counted",
	Examples: `thread outbox stats --thread ./inbox --json`,
	Grammar:  func() cli.Command { return new(statsCmd) },
}

func (c *statsCmd) Run(ctx context.Context, a *cli.App) error {
	t, err := a.Open(c.Thread.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	var s outbox.Stats
	if err := t.View(ctx, func(tx *engine.Tx) (err error) { s, err = outbox.ReadStats(tx); return err }); err != nil {
		return err
	}
	if c.JSON {
		return printJSON(a, s)
	}
	oldest := "none"
	if s.OldestPending != nil {
		oldest = fmt.Sprintf("%s (%v)", *s.OldestPending, time.Duration(*s.OldestSeconds*float64(time.Second)).Round(time.Second))
	}
	text := fmt.Sprintf("pending: %d\nfailed: %d\noldest pending: %s\n", s.Pending, s.Failed, oldest)
	var types []string
	for typ := range s.Types {
		types = append(types, typ)
	}
	slices.Sort(types)
	for _, typ := range types {
		text += fmt.Sprintf("%s: %d pending, %d failed\n", typ, s.Types[typ].Pending, s.Types[typ].Failed)
	}
	return a.Out.Text(text)
}
