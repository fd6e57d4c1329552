package sqlite

import (
	"context"
	"errors"
	"fmt"

	"thread/compat"
	"thread/history"
	"thread/internal/cli"
	"thread/internal/terminal"
)

type historyImportCmd struct {
	cli.ThreadFlags
	Source cli.Text `arg:"" name:"file" help:"A history.db of OpenHarness."`
	OnBad  cli.Text `name:"on-bad-row" placeholder:"fail|skip" help:"What to do about rows that have no place in a history (default fail: import nothing)."`
	cli.JSONFlag
}

// HistoryImport is history import. Programs that link a server have it also.
var HistoryImport = &cli.Verb{
	Name: "history import", Args: "<file>", Server: true,
	Summary: "Take over the rows of a history.db",
	Details: `Takes sessions, messages, runs and what hangs on them, with their ids and times, from
a history.db of OpenHarness: one with a column for each field, or one with rows as
JSON. The rows of its workspace become rows of this directory. The file stays as it
is. A row whose id is there already is left alone, so that an import that was
interrupted is run again.`,
	Exits:    "0 taken over\n1 rows that have no place in a history",
	Examples: `thread history import --thread ./inbox .openharness/data/history.db`,
	Grammar:  func() cli.Command { return new(historyImportCmd) },
	Errors:   ErrorWords,
}

func (c *historyImportCmd) Run(ctx context.Context, a *cli.App) error {
	skip, err := skipBadRows(c.OnBad)
	if err != nil {
		return err
	}
	o := compat.HistoryImportOptions{SkipBadRows: skip}
	if err := a.SetDir("--thread", c.Thread.Value); err != nil {
		return err
	}
	if c.Source.Value == "" {
		return cli.UsageError("<file> is empty", "name a history.db")
	}
	path, err := cli.Resolve(c.Source.Value)
	if err != nil {
		return err
	}
	h, err := history.Open(ctx, a.Dir)
	if err != nil {
		return err
	}
	defer h.Close()
	a.Target = path
	if !compat.Available { // a constant: all that follows is left out of that build
		return compat.ErrNoSQLite
	}
	ctx, stop := cli.Interruptible(ctx)
	defer stop()
	bar := terminal.NewBar(a.Stderr, "importing")
	o.Progress = bar.Set
	r, err := compat.ImportHistory(ctx, h, path, o)
	bar.End()
	if errors.Is(err, compat.ErrBadRows) {
		return cli.LogicError(fmt.Sprintf("%s has rows that have no place in a history: %s", path, listFaults(r.Faults, r.FaultCount)),
			"fix it, or leave them out with --on-bad-row skip; nothing was imported")
	}
	if err != nil {
		return err
	}
	warnLeftOut(a, r.Faults, r.FaultCount)
	if c.JSON {
		return a.Out.JSON(struct {
			Imported int64 `json:"imported"`
			Already  int64 `json:"already_there"`
			LeftOut  int64 `json:"left_out_count"`
		}{r.Imported, r.Already, r.FaultCount})
	}
	return a.Out.Text(fmt.Sprintf("Imported %d rows; %d were there already\n", r.Imported, r.Already))
}
