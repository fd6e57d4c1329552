package core

import (
	"context"
	"fmt"

	"thread/engine"
	"thread/internal/cli"
)

type compactCmd struct {
	cli.ThreadFlags
	cli.JSONFlag
}

var compactVerb = &cli.Verb{
	Name:    "compact",
	Summary: "Return unused space in the database to the disk",
	Details: `Writes a copy of the database without unused pages and replaces the old one in one
step. Pushes wait only for that step. The disk needs space for both. The new one
has the owner, the group and the mode of the old one; an account that cannot give it
those is refused.`,
	Exits:       "0 compacted\n130 interrupted on a terminal: nothing has changed",
	Examples:    `thread compact --thread ./inbox`,
	Grammar:     func() cli.Command { return new(compactCmd) },
	Directories: "its server gives space back by itself",
}

func (c *compactCmd) Run(ctx context.Context, a *cli.App) error {
	t, err := a.Open(c.Thread.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	var r engine.Compaction
	err = longJob(ctx, a, "the database is as it was", func(ctx context.Context) (err error) {
		r, err = t.Compact(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return a.Out.IndentedJSON(newCompactionJSON(r, false))
	}
	a.Out.Buf = fmt.Appendf(a.Out.Buf, "Compacted %d events: %d bytes, %d before\n", r.Kept, r.Size, r.Before)
	return nil
}

// compactionJSON is what compact and prune print with --json.
type compactionJSON struct {
	Dropped int64 `json:"dropped_count"`
	Through int64 `json:"dropped_through_id"`
	Kept    int64 `json:"stored_count"`
	Size    int64 `json:"size_bytes"`
	Before  int64 `json:"size_before_bytes"`
	DryRun  bool  `json:"dry_run"`
}

func newCompactionJSON(r engine.Compaction, dry bool) compactionJSON {
	return compactionJSON{r.Dropped, r.Through, r.Kept, r.Size, r.Before, dry}
}
