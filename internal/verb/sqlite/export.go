package sqlite

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
	"thread/internal/cli"
	"thread/internal/durable"
	"thread/internal/target"
	"thread/internal/terminal"
)

type exportCmd struct {
	cli.ThreadFlags
	To     cli.Text `placeholder:"PATH" help:"A new or empty directory; for a text format a new file, without it stdout."`
	Format cli.Text `placeholder:"sqlite|jsonl|csv" help:"What to write (default sqlite)."`
	cli.JSONFlag
}

var exportVerb = &cli.Verb{
	Name:    "export",
	Summary: "Write a thread as a SQLite thread directory, or as text",
	Details: `The export is the thread at one moment; others may push meanwhile. The TypeScript
tool, or anyone with sqlite3, can continue to work in a SQLite directory, and thread
import takes it back. See docs/MIGRATION.md. With a URL it copies a thread out of
PostgreSQL, or into it: see docs/reference/postgresql.md.`,
	Exits: "0 written\n1 --to exists already",
	Examples: `thread export --thread ./inbox --to ./inbox-sqlite
thread export --thread ./inbox --format csv --to inbox.csv
thread export --thread ./inbox --format jsonl | gzip >inbox.jsonl.gz`,
	Grammar: func() cli.Command { return new(exportCmd) },
	Server:  true,
	Errors:  ErrorWords,
}

// NamesThread is for package cli.
func (c *exportCmd) NamesThread() string { return c.To.Value }

func (c *exportCmd) Run(ctx context.Context, a *cli.App) error {
	t, err := a.Open(c.Thread.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	to := ""
	if c.To.Set && c.To.Value == "" {
		return cli.UsageError("--to is empty", "name a directory or a file")
	}
	if c.To.Set {
		if to, err = cli.Resolve(c.To.Value); err != nil {
			return err
		}
		a.Target = to
	}
	ctx, stop := cli.Interruptible(ctx)
	defer stop()
	format := compat.Format(c.Format.Or("sqlite"))
	switch {
	case format == "sqlite" && to == "":
		return cli.UsageError("--to is missing", "name a new directory, or use --format jsonl or csv")
	case format == "sqlite":
		bar := terminal.NewBar(a.Stderr, "exporting")
		n, err := compat.Export(ctx, t, to, bar.Set)
		bar.End()
		if err != nil {
			return err
		}
		return written(a, "Exported", n, to, c.JSON)
	case format != compat.JSONL && format != compat.CSV:
		return cli.UsageError("--format is "+c.Format.Value, "use sqlite, jsonl or csv")
	case to == "":
		_, err = compat.WriteEvents(ctx, t, &a.Out, format, nil)
		return err
	}
	n, err := exportFile(ctx, t, to, format, a.Stderr)
	if err != nil {
		return err
	}
	return written(a, "Exported", n, to, c.JSON)
}

// written says how many events were written where.
func written(a *cli.App, word string, n int64, to string, json bool) error {
	if json {
		return a.Out.JSON(struct {
			To     string `json:"to"`
			Events int64  `json:"event_count"`
		}{to, n})
	}
	return a.Out.Text(fmt.Sprintf("%s %d events to %s\n", word, n, terminal.Printable(to)))
}

// exportFile writes a new file, which appears when it is complete.
func exportFile(ctx context.Context, t *engine.Thread, to string, format compat.Format, stderr io.Writer) (n int64, err error) {
	if _, err := os.Lstat(to); err == nil {
		return 0, cli.Taken(to)
	}
	if err := target.Outside(to); err != nil {
		return 0, err
	}
	f, err := os.CreateTemp(filepath.Dir(to), filepath.Base(to)+".*")
	if at := (*fs.PathError)(nil); errors.As(err, &at) {
		at.Path = to // the other name is unknown outside
	}
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	bar := terminal.NewBar(stderr, "exporting")
	n, err = compat.WriteEvents(ctx, t, f, format, bar.Set)
	bar.End()
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return 0, err
	}
	_, err = durable.Rename(f.Name(), to, target.Rename)
	return n, err
}
