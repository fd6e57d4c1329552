package verb

import (
	"context"

	"thread/internal/apptable"
	"thread/internal/cli"
	"thread/internal/verb/take"
	"thread/net/internal/pgtable"
	"thread/net/pgstore"
	"thread/outbox"
)

type takeCmd struct{ take.Command }

var takeVerb = func() *cli.Verb {
	v := *take.Verb
	v.Grammar = func() cli.Command { return new(takeCmd) }
	v.Errors = func(a *cli.App) []cli.Rule {
		return append([]cli.Rule{
			{Is: pgstore.ErrPassword, Code: 2, Fix: "put it into ~/.pgpass, a service file or PGPASSWORD, and change it, because others may have seen it"},
			{Is: pgstore.ErrURL, Code: 2, What: "--from is not the URL of a database in PostgreSQL", Fix: "give postgres://[user@]host[:port]/database"},
			{Is: pgtable.ErrRights, Code: 1, Fix: "let its owner run GRANT SELECT, UPDATE ON the table and GRANT USAGE ON its schema TO the role"},
			{Is: apptable.ErrNoTable, Code: 1, Fix: "name the table with --table, perhaps with its schema; it needs the columns event_type and status"},
			{Is: pgtable.ErrRefused, Code: 1, Fix: "check --from, the role, and what the table and its triggers demand"},
		}, take.Rules...)
	}
	return &v
}()

func (c *takeCmd) Run(ctx context.Context, a *cli.App) error {
	if !cli.IsURL(c.From.Value) {
		return cli.UsageError("--from is not postgres://HOST/DATABASE", "run thread outbox take for another one")
	}
	config, err := pgstore.ParseDatabase(c.From.Value)
	if err != nil {
		return err
	}
	return c.Take(ctx, a, c.From.Value, func(ctx context.Context, name string) (apptable.Table, error) {
		table, err := pgtable.Open(ctx, config, name, outbox.RowColumns(), "event_type", "status")
		if err != nil {
			return nil, err
		}
		return table, nil
	})
}
