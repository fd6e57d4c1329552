// Package sqlite has the verbs of thread-sqlite, those that need SQLite.
package sqlite

import "thread/internal/cli"

// Verbs are the verbs of thread-sqlite.
var Verbs = []cli.Entry{
	{Name: "import", Build: importVerb},
	{Name: "export", Build: exportVerb},
	{Name: "mirror", Build: mirrorVerb},
	{Name: "outbox take", Build: takeVerb},
	{Name: "history import", Build: historyImportVerb},
	{Name: "history mirror", Build: historyMirrorVerb},
}
