package sqlite

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"thread/compat"
	"thread/history"
	"thread/internal/cli"
)

// ErrorWords are the lines of the table of error words for package compat.
func ErrorWords(a *cli.App) []cli.Rule {
	notSQLite := a.Target + " is not a SQLite thread directory"
	if _, err := os.Lstat(a.Target); errors.Is(err, fs.ErrNotExist) {
		notSQLite = "there is no " + a.Target
	}
	return []cli.Rule{
		{Is: context.Canceled, Code: 1, What: "interrupted", Fix: "run it again; it begins where it has to"},
		{Is: compat.ErrNoSQLite, Code: 1, What: "there is no SQLite for this kind of host", Fix: "import and export on another one"},
		{Is: compat.ErrNotSQLite, Code: 1, What: notSQLite, Fix: "name a directory whose events.db is one of the TypeScript tool's"},
		{Is: compat.ErrInUse, Code: 1, What: "another program has the SQLite database of " + a.Target + " open", Fix: "stop it and retry, or import into a new directory with --to"},
		{Is: history.ErrOwner, Code: 1, Fix: "run it as that account, or as root"},
		{Is: compat.ErrNotHistory, Code: 1, Fix: "name a history.db of OpenHarness"},
		{Is: compat.ErrNotEmpty, Code: 1, Fix: "name a new or empty directory"},
		{Is: compat.ErrNotMirror, Code: 1, Fix: "name another file, or move that one away"},
		{Is: fs.ErrExist, Code: 1, What: a.Target + " already exists", Fix: "name a new one"},
	}
}
