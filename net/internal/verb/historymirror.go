package verb

import (
	"context"
	"errors"
	"fmt"

	"thread/history"
	"thread/internal/cli"
	"thread/internal/historymirror"
	"thread/internal/verb/mirror"
	"thread/internal/verb/sqlite"
	"thread/net/internal/pgmirror"
	"thread/net/pgstore"
)

type historyMirrorCmd struct{ sqlite.HistoryMirror }

var historyMirrorVerb = func() *cli.Verb {
	v := *mirror.Verb
	v.Grammar = func() cli.Command { return new(historyMirrorCmd) }
	v.Errors = func(a *cli.App) []cli.Rule {
		return append([]cli.Rule{
			{Is: pgstore.ErrPassword, Code: 2, Fix: "put it into ~/.pgpass, a service file or PGPASSWORD, and change it, because others may have seen it"},
			{Is: historymirror.ErrNotMirror, Code: 1, Fix: "name another schema with ?schema=NAME, or drop that one"},
			{Is: pgmirror.ErrVersion, Code: 1, Fix: "use the same version of thread-net everywhere, or name another schema with ?schema=NAME"},
			{Is: pgmirror.ErrRights, Code: 1, Fix: "let an administrator run CREATE SCHEMA name AUTHORIZATION role, or use the role that owns the schema"},
			{Is: pgmirror.ErrBusy, Code: 1, Fix: "retry; it continues where it was"},
			{Is: pgmirror.ErrRefused, Code: 1, Fix: "check --to, and what the database allows"},
		}, sqlite.ErrorWords(a)...)
	}
	return &v
}()

func (c *historyMirrorCmd) Run(ctx context.Context, a *cli.App) error {
	url := c.To.Value
	if !cli.IsURL(url) {
		return c.HistoryMirror.Run(ctx, a)
	}
	if err := a.SetDir("--thread", c.Thread.Value); err != nil {
		return err
	}
	if err := c.Check(); err != nil {
		return err
	}
	if c.State {
		return cli.UsageError("--state is for copies in SQLite", "query the table mirror_state")
	}
	config, schema, err := pgstore.ParseSchema(url, pgmirror.DefaultSchema)
	if errors.Is(err, pgstore.ErrURL) {
		return cli.UsageError("--to is not the URL of a schema in PostgreSQL",
			"give postgres://[user@]host[:port]/database?schema=NAME, with a name of at most 63 bytes and without a thread")
	}
	if err != nil {
		return err
	}
	h, err := history.Open(ctx, a.Dir, history.WithLogLines(a.LogInfo))
	if err != nil {
		return err
	}
	defer h.Close()
	a.Target = url
	ctx, stop := cli.Interruptible(ctx)
	defer stop()
	only, err := c.Only(ctx, h)
	if err != nil {
		return err
	}
	m, err := pgmirror.Open(ctx, h, config, schema, only)
	if err != nil {
		return err
	}
	defer m.Close()
	warn := func() {
		if why := rebuilt(m); why != "" {
			a.Warn("%s %s", url, why)
		}
	}
	warn()
	n, err := m.Sync(ctx)
	warn()
	if err != nil {
		return err
	}
	if err := c.Print(a, n, url); err != nil || !c.Follow {
		return err
	}
	return mirror.Keep(ctx, a, []mirror.Copy{{Name: url, Mirror: m, Rebuilt: func() string { return rebuilt(m) }}})
}

// rebuilt says why the last call began the copy again, "" if it did not.
func rebuilt(m *pgmirror.Mirror) string {
	if m.Rebuilt == "" {
		return ""
	}
	return fmt.Sprintf("was started over: %s; the old copy is the schema %s", m.Rebuilt, m.Aside)
}
