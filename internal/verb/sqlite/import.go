package sqlite

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"thread/compat"
	"thread/internal/cli"
	"thread/internal/terminal"
)

type importCmd struct {
	Source  cli.Text     `arg:"" name:"source" help:"A SQLite thread directory."`
	To      cli.Text     `placeholder:"NEWDIR" help:"Make a new thread there and leave the source as it is."`
	InPlace bool         `name:"in-place" help:"Make the source itself the thread (the default)."`
	OnBad   cli.Text     `name:"on-bad-row" placeholder:"fail|skip" help:"What to do about data that has no place in a thread (default fail: import nothing)."`
	Help    cli.HelpFlag `short:"h" help:"Show this help."`
	cli.JSONFlag
}

var importVerb = &cli.Verb{
	Name: "import", Args: "<source>",
	Summary: "Take over a SQLite thread directory",
	Details: `Everything is kept: ids, times, subscriptions, progress. In place is for a
directory that only this command line uses from then on: a program that has the
TypeScript library in it would continue without its messages. The SQLite database
stays there as events.sqlite, and no other program may have it open. An import
that is interrupted changes nothing and can be run again. See docs/MIGRATION.md. With
a URL it copies a thread into PostgreSQL or out of it: see docs/reference/postgresql.md.`,
	Exits: "0 taken over\n1 no SQLite thread, or rows that have no place in a thread",
	Examples: `thread import ./old/inbox --to ./inbox
thread import ./inbox
thread import ./old/inbox --to ./inbox --on-bad-row skip`,
	Grammar: func() cli.Command { return new(importCmd) },
	Server:  true,
	Errors:  ErrorWords,
}

// NamesThread is for package cli.
func (c *importCmd) NamesThread() string {
	if cli.IsURL(c.Source.Value) {
		return c.Source.Value
	}
	return c.To.Value
}

// skipBadRows is what --on-bad-row says.
func skipBadRows(onBad cli.Text) (bool, error) {
	switch onBad.Or("fail") {
	case "fail":
		return false, nil
	case "skip":
		return true, nil
	}
	return false, cli.UsageError("--on-bad-row is "+onBad.Value, "use fail or skip")
}

func (c *importCmd) Run(ctx context.Context, a *cli.App) error {
	if c.InPlace && c.To.Set {
		return cli.UsageError("--to and --in-place exclude each other", "name one of them")
	}
	skip, err := skipBadRows(c.OnBad)
	if err != nil {
		return err
	}
	o := compat.ImportOptions{SkipBadRows: skip}
	if err := a.SetDir("<source>", c.Source.Value); err != nil {
		return err
	}
	source := a.Dir
	a.Target = source
	if c.To.Set {
		if err := a.SetDir("--to", c.To.Value); err != nil {
			return err
		}
		o.To = a.Dir
	}
	ctx, stop := cli.Interruptible(ctx)
	defer stop()
	bar := terminal.NewBar(a.Stderr, "importing")
	o.Progress = bar.Set
	r, err := compat.Import(ctx, source, o)
	bar.End()
	if errors.Is(err, compat.ErrBadRows) {
		return cli.LogicError(fmt.Sprintf("%s has data that has no place in a thread: %s", source, listFaults(r.Faults, r.FaultCount)),
			"fix it, or leave it out with --on-bad-row skip; nothing was imported")
	}
	if err != nil {
		return err
	}
	warnLeftOut(a, r.Faults, r.FaultCount)
	for _, f := range r.BadFilters {
		a.Warn("consumer '%s' has a filter that is not accepted (%v): it was kept, and gets no events until it is subscribed again", f.Consumer, f.Err)
	}
	if c.JSON {
		return a.Out.JSON(struct {
			Thread        string `json:"thread"`
			Events        int64  `json:"event_count"`
			Subscriptions int64  `json:"subscription_count"`
			Progress      int64  `json:"progress_count"`
			LeftOut       int64  `json:"left_out_count"`
		}{a.Dir, r.Events, r.Subscriptions, r.Consumers, r.FaultCount})
	}
	return a.Out.Text(fmt.Sprintf("Imported %d events, %d subscriptions and the progress of %d consumers into %s\n",
		r.Events, r.Subscriptions, r.Consumers, terminal.Printable(a.Dir)))
}

func warnLeftOut(a *cli.App, faults []compat.Fault, count int64) {
	for _, f := range faults {
		a.Warn("left out: %s", f)
	}
	if more := count - int64(len(faults)); more > 0 {
		a.Warn("left out: %d more", more)
	}
}

// listFaults fits the faults, or as many as one can read, into one line.
func listFaults(faults []compat.Fault, count int64) string {
	const most = 20
	var list []string
	for _, f := range faults[:min(most, len(faults))] {
		list = append(list, f.String())
	}
	if more := count - int64(len(list)); more > 0 {
		list = append(list, fmt.Sprintf("%d more", more))
	}
	return strings.Join(list, "; ")
}
