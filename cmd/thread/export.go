package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"thread/compat"
	"thread/engine"
	"thread/event"
)

type exportCmd struct {
	threadFlags
	To     text `placeholder:"PATH" help:"A new or empty directory; for a text format a new file, without it stdout."`
	Format text `placeholder:"sqlite|jsonl|csv" help:"What to write (default sqlite)."`
	jsonFlag
}

func exportVerb() *verb {
	return &verb{
		name:    "export",
		summary: "Write a thread as a SQLite thread directory, or as text",
		details: `The export is the thread at one moment; others may push meanwhile. The TypeScript
tool, or anyone with sqlite3, can go on working in a SQLite directory, and thread
import takes it back. See docs/MIGRATION.md.`,
		examples: `thread export --thread ./inbox --to ./inbox-sqlite
thread export --thread ./inbox --format csv --to inbox.csv
thread export --thread ./inbox --format jsonl | gzip >inbox.jsonl.gz`,
		grammar: func() command { return new(exportCmd) },
	}
}

func (c *exportCmd) run(ctx context.Context, a *app) error {
	t, err := a.open(c.Thread.value)
	if err != nil {
		return err
	}
	defer t.Close()
	to := ""
	if c.To.set && c.To.value == "" {
		return usage("--to is empty", "name a directory or a file")
	}
	if c.To.set {
		if to, err = resolve(c.To.value); err != nil {
			return err
		}
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	format := compat.Format(c.Format.or("sqlite"))
	switch {
	case format == "sqlite" && to == "":
		return usage("--to is missing", "name a new directory, or use --format jsonl or csv")
	case format == "sqlite":
		bar := newBar(a.stderr, "exporting")
		n, err := compat.Export(ctx, t, to, bar.set)
		bar.end()
		if err != nil {
			return compatFailure(ctx, err, to)
		}
		return a.written("Exported", n, to, c.JSON)
	case format != compat.JSONL && format != compat.CSV:
		return usage("--format is "+c.Format.value, "say sqlite, jsonl or csv")
	case to == "":
		_, err = compat.WriteEvents(ctx, t, &a.out, format, nil)
		return compatFailure(ctx, err, a.dir)
	}
	n, err := exportFile(ctx, t, to, format, a.stderr)
	if err != nil {
		return compatFailure(ctx, err, to)
	}
	return a.written("Exported", n, to, c.JSON)
}

// written says how many events were written where.
func (a *app) written(word string, n int64, to string, json bool) error {
	if json {
		line := event.AppendString([]byte(`{"to":`), to)
		return a.out.text(fmt.Sprintf("%s,\"event_count\":%d}\n", line, n))
	}
	return a.out.text(fmt.Sprintf("%s %d events to %s\n", word, n, printable(to)))
}

// exportFile writes a new file, which appears when it is complete.
func exportFile(ctx context.Context, t *engine.Thread, to string, format compat.Format, stderr io.Writer) (n int64, err error) {
	if _, err := os.Lstat(to); err == nil {
		return 0, logic(to+" exists already", "name a new file")
	}
	f, err := os.CreateTemp(filepath.Dir(to), filepath.Base(to)+".*")
	if at := (*fs.PathError)(nil); errors.As(err, &at) {
		at.Path = to // nobody knows the other name
	}
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	bar := newBar(stderr, "exporting")
	n, err = compat.WriteEvents(ctx, t, f, format, bar.set)
	bar.end()
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return 0, err
	}
	return n, os.Rename(f.Name(), to)
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.buf = append(o.buf, p...)
	return len(p), o.more()
}
