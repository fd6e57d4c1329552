package verb

import (
	"context"
	"errors"

	"thread/internal/apptable"
	"thread/internal/cli"
	"thread/internal/verb/sqlite"
	"thread/internal/verb/take"
	"thread/net/internal/pgtable"
	"thread/net/pgstore"
	"thread/outbox"
)

type takeCmd struct{ sqlite.Take }

var takeVerb = func() *cli.Verb {
	v := *take.Verb
	v.Grammar = func() cli.Command { return new(takeCmd) }
	v.Errors = func(a *cli.App) []cli.Rule {
		rules := []cli.Rule{
			{Is: pgstore.ErrPassword, Code: 2, Fix: "put it into ~/.pgpass, a service file or PGPASSWORD, and change it, because others may have seen it"},
			{Is: pgtable.ErrRights, Code: 1, Fix: "let its owner run GRANT SELECT, UPDATE ON the table and GRANT USAGE ON its schema TO the role"},
			{Is: pgtable.ErrRefused, Code: 1, Fix: "check --from, the role, and what the table and its triggers demand"},
		}
		if cli.IsURL(a.Target) {
			rules = append(rules, cli.Rule{Is: apptable.ErrNoTable, Code: 1, Fix: "name the table with --table, perhaps with its schema; it needs the columns event_type and status"})
		}
		return append(rules, sqlite.TakeErrors(a)...)
	}
	return &v
}()

func (c *takeCmd) Run(ctx context.Context, a *cli.App) error {
	if !cli.IsURL(c.From.Value) {
		return c.Take.Run(ctx, a)
	}
	config, err := pgstore.ParseDatabase(c.From.Value)
	if errors.Is(err, pgstore.ErrURL) {
		return cli.UsageError("--from is not the URL of a database in PostgreSQL", "give postgres://[user@]host[:port]/database")
	}
	if err != nil {
		return err
	}
	return c.Command.Take(ctx, a, c.From.Value, func(ctx context.Context, name string) (apptable.Table, error) {
		table, err := pgtable.Open(ctx, config, name, outbox.RowColumns(), "event_type", "status")
		if err != nil {
			return nil, err
		}
		return table, nil
	})
}
