package sqlite

import (
	"context"
	"slices"
	"strings"

	"thread/compat"
	"thread/internal/apptable"
	"thread/internal/cli"
	"thread/internal/verb/take"
)

// Take is outbox take for a file of SQLite. Programs that link a server have it also.
type Take struct{ take.Command }

var takeVerb = func() *cli.Verb {
	v := *take.Verb
	v.Server = true // thread-net takes from PostgreSQL
	v.Grammar = func() cli.Command { return new(Take) }
	v.Errors = TakeErrors
	return &v
}()

// TakeErrors are the errors of Take.
func TakeErrors(a *cli.App) []cli.Rule {
	return slices.Concat([]cli.Rule{
		{Is: compat.ErrNotSQLite, Code: 1, What: a.Target + " is not a SQLite database", Fix: "name the application's database file"},
		{Is: apptable.ErrNoTable, Code: 1, Fix: "name the table with --table; it needs a rowid and the columns event_type and status"},
	}, take.Rules, ErrorWords(a))
}

// NamesThread is for package cli: it is what PostgreSQL is needed for.
func (c *Take) NamesThread() string { return c.From.Value }

// Run is for package cli.
func (c *Take) Run(ctx context.Context, a *cli.App) error {
	scheme, file, _ := strings.Cut(c.From.Value, ":")
	if scheme != "sqlite" || file == "" {
		return cli.UsageError("--from is neither sqlite:FILE nor postgres://HOST/DATABASE", "say for example sqlite:app.db")
	}
	path, err := cli.Resolve(file)
	if err != nil {
		return err
	}
	return c.Take(ctx, a, path, func(ctx context.Context, name string) (apptable.Table, error) {
		if !compat.Available { // a constant: all that follows is left out of that build
			return nil, compat.ErrNoSQLite
		}
		table, err := compat.OpenTable(ctx, path, name, "event_type", "status")
		if err != nil {
			return nil, err
		}
		return table, nil
	})
}
