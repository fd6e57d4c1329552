// Package sqlite has the verbs of thread-sqlite, those that need SQLite.
package sqlite

import "thread/internal/cli"

// Verbs are the verbs of thread-sqlite.
var Verbs = []cli.Entry{
	{Name: "import", Verb: importVerb},
	{Name: "export", Verb: exportVerb},
	{Name: "mirror", Verb: Mirror},
	{Name: "outbox take", Verb: takeVerb},
	{Name: "history import", Verb: HistoryImport},
	{Name: "history mirror", Verb: historyMirrorVerb},
}
