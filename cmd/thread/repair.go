package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"thread/engine"
	"thread/event"
)

type repairCmd struct {
	threadFlags
	To text `required:"" placeholder:"NEWDIR" help:"The directory for what can be saved; it must not be a thread yet."`
	jsonFlag
}

func repairVerb() *verb {
	return &verb{
		name:    "repair",
		summary: "Save what can be read of a damaged thread into a new directory",
		details: `Takes each event from the database where its checksum fits, from the state
before the last change where that is whole, from events*.jsonl, or from pages
that are not in use any more; with it the subscriptions and the progress. The
index is built anew. Prints which ids were lost. The damaged directory is not
changed. Exit code 1 when anything was lost.`,
		examples: `thread repair --thread ./inbox --to ./inbox.new
mv ./inbox ./inbox.damaged && mv ./inbox.new ./inbox`,
		grammar: func() command { return new(repairCmd) },
	}
}

func (c *repairCmd) run(ctx context.Context, a *app) error {
	to, err := resolve(c.To.value)
	if err != nil {
		return err
	}
	if c.To.value == "" {
		return usage("--to is empty", "name a new directory")
	}
	if err := a.setDir("--thread", c.Thread.value); err != nil {
		return err
	}
	r, err := engine.Repair(ctx, a.dir, to)
	if errors.Is(err, engine.ErrExists) {
		return logic(to+" is already a thread directory", "name a new directory with --to")
	}
	if err != nil {
		return err
	}
	if c.JSON {
		a.out.buf = appendRepairJSON(a.out.buf, r)
	} else {
		a.out.buf = appendRepairText(a.out.buf, r, to)
	}
	if len(r.Lost) == 0 && len(r.Problems) == 0 {
		return nil
	}
	if err := a.out.flush(); err != nil {
		return err
	}
	return logic("not everything could be saved", "keep "+a.dir+" and look at what thread repair printed")
}

func appendRepairText(b []byte, r *engine.RepairReport, to string) []byte {
	b = fmt.Appendf(b, "Saved %d events into %s\n", r.Saved, printable(to))
	for _, s := range []struct {
		n    int64
		from string
	}{{r.FromDatabase, "the database"}, {r.FromPrevious, "the state before its last change"},
		{r.FromLines, "events*.jsonl"}, {r.FromUnused, "unused pages"}} {
		if s.n > 0 {
			b = fmt.Appendf(b, "  %d from %s\n", s.n, s.from)
		}
	}
	b = fmt.Appendf(b, "Subscriptions: %d\nProgress: %d consumers\n", r.Subscriptions, r.Progress)
	for _, p := range r.Problems {
		b = fmt.Appendf(b, "Problem: %s\n", printable(p))
	}
	if len(r.Lost) == 0 {
		return append(b, "Lost: no event\n"...)
	}
	ranges := make([]string, len(r.Lost))
	for i, l := range r.Lost {
		ranges[i] = fmt.Sprint(l.First)
		if l.Last > l.First {
			ranges[i] = fmt.Sprintf("%d-%d", l.First, l.Last)
		}
	}
	return fmt.Appendf(b, "Lost: %s\n", strings.Join(ranges, ", "))
}

func appendRepairJSON(b []byte, r *engine.RepairReport) []byte {
	o := indented{buf: append(b, '{'), margin: "\n  "}
	o.number("saved_count", r.Saved)
	o.number("from_database", r.FromDatabase)
	o.number("from_previous_state", r.FromPrevious)
	o.number("from_jsonl", r.FromLines)
	o.number("from_unused_pages", r.FromUnused)
	o.number("subscription_count", r.Subscriptions)
	o.number("progress_count", r.Progress)
	o.key("lost")
	o.buf = append(o.buf, '[')
	for i, l := range r.Lost {
		if i > 0 {
			o.buf = append(o.buf, ',')
		}
		o.buf = fmt.Appendf(o.buf, "[%d,%d]", l.First, l.Last)
	}
	o.buf = append(o.buf, ']')
	o.key("problems")
	o.buf = append(o.buf, '[')
	for i, p := range r.Problems {
		if i > 0 {
			o.buf = append(o.buf, ',')
		}
		o.buf = event.AppendString(o.buf, p)
	}
	return append(o.buf, "]\n}\n"...)
}
