package verb

import (
	"context"
	"fmt"

	"thread/engine"
	"thread/internal/cli"
	"thread/internal/terminal"
	"thread/net/internal/move"
	"thread/net/servers"
)

type importCmd struct {
	Source cli.Text     `arg:"" name:"source" help:"A thread directory, or the URL of a thread."`
	To     cli.Text     `placeholder:"URL|NEWDIR" help:"Where the thread is to be."`
	Help   cli.HelpFlag `short:"h" help:"Show this help."`
	cli.JSONFlag
}

const moveDetails = `Everything is copied: events with their ids and times, subscriptions, positions, deliveries,
dead letters, dedupe keys, schedules, limits, and the history. What reads and writes the source should be stopped:
when it was written meanwhile nothing is made of the copy. One into PostgreSQL that was
interrupted continues where it was, and the thread is there when all of it is. One into a
directory begins again. The source stays as it is.`

var importVerb = &cli.Verb{
	Name: "import", Args: "<source>",
	Summary: "Copy a thread between a directory and PostgreSQL",
	Details: moveDetails,
	Exits:   "0 copied\n1 there is a thread already, or the source was written meanwhile",
	Examples: `thread import ./inbox --to 'postgres://db/app?thread=inbox'
thread import 'postgres://db/app?thread=inbox' --to ./inbox`,
	Grammar: func() cli.Command { return new(importCmd) },
	Errors:  moveErrors,
}

func (c *importCmd) Run(ctx context.Context, a *cli.App) error {
	if c.To.Value == "" {
		return cli.UsageError("--to is missing", "name a new directory or the URL of a thread")
	}
	if !cli.IsURL(c.Source.Value) && !cli.IsURL(c.To.Value) {
		return cli.UsageError("neither the source nor --to is a URL", "use thread import, or thread backup for a copy of a directory")
	}
	t, err := a.Open(c.Source.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	return moved(ctx, a, "Imported", t, c.To.Value, c.JSON)
}

type exportCmd struct {
	cli.ThreadFlags
	To     cli.Text `placeholder:"URL|NEWDIR" help:"Where the thread is to be."`
	Format cli.Text `placeholder:"thread" help:"What to write: a thread directory (the default)."`
	cli.JSONFlag
}

var exportVerb = &cli.Verb{
	Name:     "export",
	Summary:  "Copy a thread between PostgreSQL and a directory",
	Details:  moveDetails,
	Exits:    "0 copied\n1 there is a thread already, or the source was written meanwhile",
	Examples: `thread export --thread 'postgres://db/app?thread=inbox' --to ./inbox`,
	Grammar:  func() cli.Command { return new(exportCmd) },
	Errors:   moveErrors,
}

func (c *exportCmd) Run(ctx context.Context, a *cli.App) error {
	t, err := a.Open(c.Thread.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	switch {
	case c.Format.Or("thread") != "thread":
		return cli.UsageError("a thread in PostgreSQL is not exported as "+c.Format.Value,
			"export a directory with --to, and that with thread export --format "+c.Format.Value)
	case c.To.Value == "":
		return cli.UsageError("--to is missing", "name a new directory or the URL of a thread")
	}
	return moved(ctx, a, "Exported", t, c.To.Value, c.JSON)
}

// moved copies t and says so.
func moved(ctx context.Context, a *cli.App, word string, t *engine.Thread, to string, json bool) error {
	ctx, stop := cli.Interruptible(ctx)
	defer stop()
	bar := terminal.NewBar(a.Stderr, "copying")
	var r move.Report
	err := a.SetDir("--to", to) // what errors speak of is what is made
	if err != nil {
		return err
	}
	h, err := historyOf(ctx, t)
	if err != nil {
		return err
	}
	if h != nil {
		defer h.Close()
	}
	if cli.IsURL(a.Dir) {
		r, err = moveToServer(ctx, t, h, a.Dir, bar.Set)
	} else {
		r, err = moveToDirectory(ctx, t, h, a.Dir, bar.Set)
	}
	bar.End()
	if r.Dropped {
		a.Warn("%s had a part of another thread, which was never imported to its end: that is dropped", a.Dir)
	}
	if err != nil {
		return err
	}
	if json {
		return a.Out.JSON(struct {
			Thread        string `json:"thread"`
			Events        int64  `json:"event_count"`
			Resumed       int64  `json:"resumed_count"`
			Subscriptions int64  `json:"subscription_count"`
			Digest        string `json:"digest"`
		}{a.Dir, r.Events, r.Resumed, r.Consumers, fmt.Sprintf("%x", r.Digest)})
	}
	before := ""
	if r.Resumed > 0 {
		before = fmt.Sprintf(" (%d of them were there)", r.Resumed)
	}
	return a.Out.Text(fmt.Sprintf("%s %d events%s and %d subscriptions into %s\nDigest: %x\n", word, r.Events, before, r.Consumers, terminal.Printable(a.Dir), r.Digest))
}

func moveErrors(a *cli.App) []cli.Rule {
	return append(servers.Servers{}.Errors(a),
		cli.Rule{Is: context.Canceled, Code: 1, What: "interrupted", Fix: "run it again; it continues where it was"},
		cli.Rule{Is: move.ErrChanged, Code: 1, Fix: "stop what pushes and consumes, and run it again; it continues where it was"},
	)
}
