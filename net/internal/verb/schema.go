package verb

import (
	"context"

	"thread/internal/cli"
	"thread/internal/verb/sqlite"
	"thread/net/pgstore"
)

// Verbs are those that thread-net has next to thread's, and the verbs that it has by its
// own for threads on a server.
var Verbs = []cli.Entry{
	{Name: "schema", Verb: schemaVerb},
	{Name: "import", Verb: importVerb},
	{Name: "export", Verb: exportVerb},
	{Name: "mirror", Verb: sqlite.Mirror},
	{Name: "outbox take", Verb: takeVerb},
	{Name: "history import", Verb: sqlite.HistoryImport},
	{Name: "history mirror", Verb: historyMirrorVerb},
}

type schemaCmd struct {
	Schema cli.Text     `placeholder:"NAME" help:"The name of the schema (default thread)."`
	Role   []string     `placeholder:"ROLE" sep:"none" help:"Let this role use the schema; may be given more than once."`
	Help   cli.HelpFlag `short:"h" help:"Show this help."`
}

var schemaVerb = &cli.Verb{
	Name:    "schema",
	Summary: "Print the SQL that makes the schema of threads",
	Details: `thread init does it by itself, as a role that may create schemas. Where another role has to do it, this is what
that role runs.`,
	Exits: "0 printed",
	Examples: `thread-net schema
thread-net schema | psql --single-transaction --set ON_ERROR_STOP=1 app
thread-net schema --schema tenant1 --role tenant1`,
	Grammar: func() cli.Command { return new(schemaCmd) },
}

func (c *schemaCmd) Run(_ context.Context, a *cli.App) error {
	schema := c.Schema.Or(pgstore.DefaultSchema)
	for _, name := range append([]string{schema}, c.Role...) {
		if !pgstore.IsIdentifier(name) {
			return cli.UsageError("a schema or role is not a name of 1 to 63 bytes", "give another name")
		}
	}
	if !c.Schema.Set && len(c.Role) == 0 {
		return a.Out.Text(pgstore.Schema)
	}
	return a.Out.Text(pgstore.SchemaFor(schema, c.Role...))
}
