package verb

import (
	"context"

	"thread/internal/cli"
	"thread/net/pgstore"
)

// Verbs are those that thread-net has beside those of thread, and those that it has of its
// own for threads on a server.
var Verbs = []cli.Entry{
	{Name: "schema", Build: schemaVerb},
	{Name: "import", Build: importVerb},
	{Name: "export", Build: exportVerb},
	{Name: "outbox take", Build: takeVerb},
	{Name: "history mirror", Build: historyMirrorVerb},
	{Name: "serve", Build: serveVerb},
}

type schemaCmd struct {
	Help cli.HelpFlag `short:"h" help:"Show this help."`
}

func schemaVerb() *cli.Verb {
	return &cli.Verb{
		Name:    "schema",
		Summary: "Print the SQL that makes the schema of threads",
		Details: `thread init does it by itself, as a role that may create schemas. Where that is for
somebody else to do, this is what they run.`,
		Exits: "0 printed",
		Examples: `thread-net schema
thread-net schema | psql --single-transaction --set ON_ERROR_STOP=1 app`,
		Grammar: func() cli.Command { return new(schemaCmd) },
	}
}

func (c *schemaCmd) Run(_ context.Context, a *cli.App) error { return a.Out.Text(pgstore.Schema) }
