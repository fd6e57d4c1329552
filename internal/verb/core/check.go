package core

import (
	"context"
	"fmt"
	"path/filepath"

	"thread/engine"
	"thread/event"
	"thread/internal/cli"
)

type checkCmd struct {
	cli.ThreadFlags
	FixLog bool `name:"fix-log" help:"Write those of events*.jsonl anew that are not what they should be."`
	cli.JSONFlag
}

func checkVerb() *cli.Verb {
	return &cli.Verb{
		Name:    "check",
		Summary: "Look for damage in everything that a thread keeps",
		Details: `Looks at every page of the database and how they hang together, at the checksum
of every record, at the index and the progress against the events, and at
events*.jsonl: every event must have its line, and every line be that of its
event. Prints each fault with its place, and at the end a digest of the content:
two threads with the same digest hold the same. Exit code 1 when there is any
fault. What the next push completes, the last lines after a crash, is a note and
no fault; lines of events that were pruned are none either.

--fix-log writes the files of lines that have a fault anew from the database;
what stood there is kept beside it, with the ending .bad.`,
		Examples: `thread check --thread ./inbox
thread check --thread ./inbox --fix-log
thread check --thread ./inbox --json | jq -r .digest`,
		Grammar: func() cli.Command { return new(checkCmd) },
	}
}

func (c *checkCmd) Run(ctx context.Context, a *cli.App) error {
	t, err := a.Open(c.Thread.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	report, err := t.Check(ctx)
	if err != nil {
		return err
	}
	var fixed []engine.FixedFile
	if c.FixLog && report.DatabaseSound() {
		if fixed, err = t.FixLog(ctx); err == nil && len(fixed) > 0 {
			report, err = t.Check(ctx)
		}
		if err != nil {
			return err
		}
	}
	if c.JSON {
		a.Out.Buf = appendCheckJSON(a.Out.Buf, report, fixed)
	} else {
		a.Out.Buf = appendCheckText(a.Out.Buf, report, fixed)
	}
	n := int64(len(report.Faults)) + report.More
	if n == 0 {
		return nil
	}
	if err := a.Out.Flush(); err != nil {
		return err
	}
	what := fmt.Sprintf("%d faults were found", n)
	if n == 1 {
		what = "1 fault was found"
	}
	if report.DatabaseSound() {
		return cli.LogicError(what+" in the lines of "+a.Dir, "run thread check --thread "+cli.ShellWord(a.Dir)+" --fix-log")
	}
	return cli.LogicError(what+" in "+a.Dir, "run thread repair --thread "+cli.ShellWord(a.Dir)+" --to <new directory>")
}

func appendCheckText(b []byte, r *engine.CheckReport, fixed []engine.FixedFile) []byte {
	for _, f := range fixed {
		b = fmt.Appendf(b, "Fixed: %s", cli.Printable(filepath.Base(f.Path)))
		if f.Lines > 0 {
			b = fmt.Appendf(b, ": %d lines written", f.Lines)
		}
		if f.Aside != "" {
			b = fmt.Appendf(b, "; what stood there is %s", cli.Printable(filepath.Base(f.Aside)))
		}
		b = append(b, '\n')
	}
	b = fmt.Appendf(b, "Events: %d\nPages: %d in use, %d free\nLines: %d compared\n", r.Events, r.Pages, r.FreePages, r.Lines)
	for _, n := range r.Notes {
		b = fmt.Appendf(b, "Note: %s: %s\n", cli.Printable(n.Place), cli.Printable(n.What))
	}
	for _, f := range r.Faults {
		b = fmt.Appendf(b, "Fault: %s: %s\n", cli.Printable(f.Place), cli.Printable(f.What))
	}
	if r.More > 0 {
		b = fmt.Appendf(b, "Fault: and %d more\n", r.More)
	}
	if r.Digest != "" {
		b = fmt.Appendf(b, "Digest: %s\n", r.Digest)
	}
	return b
}

func appendCheckJSON(b []byte, r *engine.CheckReport, fixed []engine.FixedFile) []byte {
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
			if f.File != "" {
				o.buf = event.AppendString(append(o.buf, `, "file": `...), f.File)
			}
			if f.Line > 0 {
				o.buf = fmt.Appendf(o.buf, `, "line": %d`, f.Line)
			}
			if f.Event > 0 {
				o.buf = fmt.Appendf(o.buf, `, "event_id": %d`, f.Event)
			}
			o.buf = append(o.buf, '}')
		}
		if len(list.faults) > 0 {
			o.buf = append(o.buf, "\n  "...)
		}
		o.buf = append(o.buf, ']')
	}
	o.key("fixed")
	o.buf = append(o.buf, '[')
	for i, f := range fixed {
		if i > 0 {
			o.buf = append(o.buf, ',')
		}
		o.buf = event.AppendString(append(o.buf, "\n    {\"file\": "...), filepath.Base(f.Path))
		o.buf = fmt.Appendf(o.buf, `, "line_count": %d, "aside": `, f.Lines)
		if f.Aside == "" {
			o.buf = append(o.buf, "null}"...)
			continue
		}
		o.buf = append(event.AppendString(o.buf, filepath.Base(f.Aside)), '}')
	}
	if len(fixed) > 0 {
		o.buf = append(o.buf, "\n  "...)
	}
	o.buf = append(o.buf, ']')
	o.optional("digest", r.Digest)
	return append(o.buf, "\n}\n"...)
}
