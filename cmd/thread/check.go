package main

import (
	"context"
	"fmt"

	"thread/engine"
	"thread/event"
)

type checkCmd struct {
	threadFlags
	jsonFlag
}

func checkVerb() *verb {
	return &verb{
		name:    "check",
		summary: "Look for damage in everything that a thread keeps",
		details: `Looks at every page of the database and how they hang together, at the checksum
of every record, at the index and the progress against the events, and at every
line of events*.jsonl against its event. Prints each fault with its place, and
at the end a digest of the content: two threads with the same digest hold the
same. Exit code 1 when there is any fault. Pushes wait while the database is
read.`,
		examples: `thread check --thread ./inbox
thread check --thread ./inbox --json | jq -r .digest`,
		grammar: func() command { return new(checkCmd) },
	}
}

func (c *checkCmd) run(ctx context.Context, a *app) error {
	t, err := a.open(c.Thread.value)
	if err != nil {
		return err
	}
	defer t.Close()
	report, err := t.Check(ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		a.out.buf = appendCheckJSON(a.out.buf, report)
	} else {
		a.out.buf = appendCheckText(a.out.buf, report)
	}
	n := int64(len(report.Faults)) + report.More
	if n == 0 {
		return nil
	}
	if err := a.out.flush(); err != nil {
		return err
	}
	what := fmt.Sprintf("%d faults were found", n)
	if n == 1 {
		what = "1 fault was found"
	}
	return logic(what+" in "+a.dir, "run thread repair --thread "+shellWord(a.dir)+" --to <new directory>")
}

func appendCheckText(b []byte, r *engine.CheckReport) []byte {
	b = fmt.Appendf(b, "Events: %d\nPages: %d in use, %d free\nLines: %d compared\n", r.Events, r.Pages, r.FreePages, r.Lines)
	for _, n := range r.Notes {
		b = fmt.Appendf(b, "Note: %s: %s\n", printable(n.Place), printable(n.What))
	}
	for _, f := range r.Faults {
		b = fmt.Appendf(b, "Fault: %s: %s\n", printable(f.Place), printable(f.What))
	}
	if r.More > 0 {
		b = fmt.Appendf(b, "Fault: and %d more\n", r.More)
	}
	if r.Digest != "" {
		b = fmt.Appendf(b, "Digest: %s\n", r.Digest)
	}
	return b
}

func appendCheckJSON(b []byte, r *engine.CheckReport) []byte {
	o := indented{buf: append(b, '{'), margin: "\n  "}
	o.number("event_count", r.Events)
	o.number("page_count", r.Pages)
	o.number("free_page_count", r.FreePages)
	o.number("line_count", r.Lines)
	o.number("fault_count", int64(len(r.Faults))+r.More)
	for _, list := range []struct {
		name   string
		faults []engine.Fault
	}{{"faults", r.Faults}, {"notes", r.Notes}} {
		o.key(list.name)
		o.buf = append(o.buf, '[')
		for i, f := range list.faults {
			if i > 0 {
				o.buf = append(o.buf, ',')
			}
			o.buf = event.AppendString(append(o.buf, "\n    {\"place\": "...), f.Place)
			o.buf = event.AppendString(append(o.buf, `, "what": `...), f.What)
			o.buf = append(o.buf, '}')
		}
		if len(list.faults) > 0 {
			o.buf = append(o.buf, "\n  "...)
		}
		o.buf = append(o.buf, ']')
	}
	o.optional("digest", r.Digest)
	return append(o.buf, "\n}\n"...)
}
