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

func compactVerb() *cli.Verb {
	return &cli.Verb{
		Name:    "compact",
		Summary: "Give the space that the database does not use back to the disk",
		Details: `Writes a copy of the database without unused pages and puts it in the place of
the old one in one step. Other commands wait meanwhile. The disk needs room for
both.`,
		Examples: `thread compact --thread ./inbox`,
		Grammar:  func() cli.Command { return new(compactCmd) },
	}
}

func (c *compactCmd) Run(ctx context.Context, a *cli.App) error {
	t, err := a.Open(c.Thread.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	r, err := t.Compact(ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		a.Out.Buf = appendCompactionJSON(a.Out.Buf, r, false)
		return nil
	}
	a.Out.Buf = fmt.Appendf(a.Out.Buf, "Compacted %d events: %d bytes, %d before\n", r.Kept, r.Size, r.Before)
	return nil
}

func appendCompactionJSON(b []byte, r engine.Compaction, dry bool) []byte {
	o := indented{buf: append(b, '{'), margin: "\n  "}
	o.number("dropped_count", r.Dropped)
	o.number("dropped_through_id", r.Through)
	o.number("stored_count", r.Kept)
	o.number("size_bytes", r.Size)
	o.number("size_before_bytes", r.Before)
	o.boolean("dry_run", dry)
	return append(o.buf, "\n}\n"...)
}
