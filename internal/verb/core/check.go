package core

import (
	"context"
	"fmt"
	"path/filepath"

	"thread/engine"
	"thread/internal/cli"
	"thread/internal/fsck"
	"thread/internal/jsonform"
	"thread/internal/terminal"
)

type checkCmd struct {
	cli.ThreadFlags
	FixLog bool `name:"fix-log" help:"Rewrite the events*.jsonl files that have faults."`
	cli.JSONFlag
}

var checkVerb = &cli.Verb{
	Name:    "check",
	Summary: "Check a thread for damage",
	Details: `Checks every page of the database and the links between them, the checksum of every
record, the index and the progress against the events, and events*.jsonl: every
event must have its line, and every line must match its event. Prints each fault
with its place, and at the end a digest of the content: two threads with the same
digest have the same content. Exit code 1 when there is any fault. Lines that the next push
will complete after a crash are a note, not a fault; nor are lines of pruned events.
Of a thread in PostgreSQL the ids, the counters, the series and every record are
checked; the server checks its pages.

--fix-log rewrites the events*.jsonl files that have faults from the database and
keeps each old file next to the new one, with the suffix .bad. See docs/TROUBLESHOOTING.md.`,
	Exits: "0 no fault, perhaps warnings\n1 a fault, which is printed\n130 interrupted on a terminal",
	Examples: `thread check --thread ./inbox
thread check --thread ./inbox --fix-log
thread check --thread ./inbox --json | jq -r .digest`,
	Grammar: func() cli.Command { return new(checkCmd) },
}

// checkServer checks a thread on a server; nil in the programs that know directories only.
var checkServer func(ctx context.Context, t *engine.Thread) (*fsck.Report, error)

// SetCheck says how this program checks a thread on a server. It comes before Main.
func SetCheck(check func(ctx context.Context, t *engine.Thread) (*fsck.Report, error)) {
	checkServer = check
}

func (c *checkCmd) Run(ctx context.Context, a *cli.App) error {
	t, err := a.Open(c.Thread.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	onServer := cli.IsURL(a.Dir)
	if onServer && c.FixLog {
		return cli.UsageError("a thread in PostgreSQL has no events.jsonl", "leave --fix-log out")
	}
	check := fsck.Check
	if onServer {
		check = checkServer
	}
	var report *fsck.Report
	var fixed []fsck.FixedFile
	stands := "nothing was changed"
	if c.FixLog {
		stands = "each events*.jsonl is as it was, or as it is to be; run it again for the rest"
	}
	err = longJob(ctx, a, stands, func(ctx context.Context) (err error) {
		report, err = check(ctx, t)
		if err == nil && c.FixLog && report.DatabaseSound() {
			if fixed, err = fsck.FixLog(ctx, t); err == nil && len(fixed) > 0 {
				report, err = fsck.Check(ctx, t)
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	if c.JSON {
		err = a.Out.ReportJSON(newCheckJSON(report, fixed))
	} else {
		a.Out.Buf = appendCheckText(a.Out.Buf, report, fixed, !onServer)
	}
	n := int64(len(report.Faults)) + report.More
	if n == 0 || err != nil {
		return err
	}
	if err := a.Out.Flush(); err != nil {
		return err
	}
	what := fmt.Sprintf("%d faults were found", n)
	if n == 1 {
		what = "1 fault was found"
	}
	if onServer {
		return cli.LogicError(what+" in "+a.Dir, "restore the database from a backup")
	}
	if report.DatabaseSound() {
		return cli.LogicError(what+" in the lines of "+a.Dir, "run thread check --thread "+cli.ShellWord(a.Dir)+" --fix-log")
	}
	return cli.LogicError(what+" in "+a.Dir, "run thread repair --thread "+cli.ShellWord(a.Dir)+" --to <new directory>")
}

func appendCheckText(b []byte, r *fsck.Report, fixed []fsck.FixedFile, files bool) []byte {
	for _, f := range fixed {
		b = fmt.Appendf(b, "Fixed: %s", terminal.Printable(filepath.Base(f.Path)))
		if f.Lines > 0 {
			b = fmt.Appendf(b, ": %d lines written", f.Lines)
		}
		if f.Aside != "" {
			b = fmt.Appendf(b, "; what stood there is %s", terminal.Printable(filepath.Base(f.Aside)))
		}
		b = append(b, '\n')
	}
	b = fmt.Appendf(b, "Events: %d\n", r.Events)
	if files {
		b = fmt.Appendf(b, "Pages: %d in use, %d free\nLines: %d compared\n", r.Pages, r.FreePages, r.Lines)
	}
	if r.Format != 0 && r.Format < r.Newest {
		b = fmt.Appendf(b, "Format: %d; thread compact makes it %d, which programs of that time do not read\n", r.Format, r.Newest)
	} else if r.Format != 0 {
		b = fmt.Appendf(b, "Format: %d\n", r.Format)
	}
	for _, n := range r.Notes {
		b = fmt.Appendf(b, "Note: %s: %s\n", terminal.Printable(n.Place), terminal.Printable(n.What))
	}
	for _, f := range r.Faults {
		b = fmt.Appendf(b, "Fault: %s: %s\n", terminal.Printable(f.Place), terminal.Printable(f.What))
	}
	if r.More > 0 {
		b = fmt.Appendf(b, "Fault: and %d more\n", r.More)
	}
	if r.Digest != "" {
		b = fmt.Appendf(b, "Digest: %s\n", r.Digest)
	}
	return b
}

// checkJSON is what check --json prints.
type checkJSON struct {
	Events    int64       `json:"event_count"`
	Pages     int64       `json:"page_count"`
	FreePages int64       `json:"free_page_count"`
	Lines     int64       `json:"line_count"`
	Format    int64       `json:"format"`
	Newest    int64       `json:"newest_format"`
	Count     int64       `json:"fault_count"`
	Faults    []faultJSON `json:"faults"`
	Notes     []faultJSON `json:"notes"`
	Fixed     []fixedJSON `json:"fixed"`
	Digest    *string     `json:"digest"`
}

type faultJSON struct {
	Place string `json:"place"`
	What  string `json:"what"`
	File  string `json:"file,omitempty"`
	Line  int64  `json:"line,omitempty"`
	Event int64  `json:"event_id,omitempty"`
}

type fixedJSON struct {
	File  string  `json:"file"`
	Lines int64   `json:"line_count"`
	Aside *string `json:"aside"`
}

func newCheckJSON(r *fsck.Report, fixed []fsck.FixedFile) checkJSON {
	faults := func(found []fsck.Fault) []faultJSON {
		list := make([]faultJSON, len(found))
		for i, f := range found {
			list[i] = faultJSON{Place: f.Place, What: f.What, File: f.File, Line: f.Line, Event: f.Event}
		}
		return list
	}
	j := checkJSON{Events: r.Events, Pages: r.Pages, FreePages: r.FreePages, Lines: r.Lines, Format: r.Format, Newest: r.Newest, Count: int64(len(r.Faults)) + r.More,
		Faults: faults(r.Faults), Notes: faults(r.Notes), Fixed: make([]fixedJSON, len(fixed)), Digest: jsonform.Null(r.Digest)}
	for i, f := range fixed {
		j.Fixed[i] = fixedJSON{File: filepath.Base(f.Path), Lines: f.Lines}
		if f.Aside != "" {
			j.Fixed[i].Aside = jsonform.Null(filepath.Base(f.Aside))
		}
	}
	return j
}
