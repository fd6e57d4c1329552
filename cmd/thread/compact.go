package main

import (
	"context"
	"fmt"

	"thread/engine"
)

type compactCmd struct {
	threadFlags
	jsonFlag
}

func compactVerb() *verb {
	return &verb{
		name:    "compact",
		summary: "Give the space that the database does not use back to the disk",
		details: `Writes a copy of the database without unused pages and puts it in the place of
the old one in one step. Other commands wait meanwhile. The disk needs room for
both.`,
		examples: `thread compact --thread ./inbox`,
		grammar:  func() command { return new(compactCmd) },
	}
}

func (c *compactCmd) run(ctx context.Context, a *app) error {
	t, err := a.open(c.Thread.value)
	if err != nil {
		return err
	}
	defer t.Close()
	r, err := t.Compact(ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		a.out.buf = appendCompactionJSON(a.out.buf, r, false)
		return nil
	}
	a.out.buf = fmt.Appendf(a.out.buf, "Compacted %d events: %d bytes, %d before\n", r.Kept, r.Size, r.Before)
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
