package sqlite

import (
	"context"
	"errors"
	"fmt"

	"thread/compat"
	"thread/internal/cli"
)

// compatFailure puts the errors of package compat into words; path is what the
// job was about.
func compatFailure(ctx context.Context, err error, path string) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return cli.LogicError("interrupted", "run it again; it begins where it has to")
	case errors.Is(err, compat.ErrNoSQLite):
		return cli.LogicError("there is no SQLite for this kind of host", "import and export on another one")
	case errors.Is(err, compat.ErrNotSQLite):
		return cli.LogicError(fmt.Sprintf("%s is not a SQLite thread directory", path), "name a directory whose events.db is one of the TypeScript tool's")
	case errors.Is(err, compat.ErrInUse):
		return cli.LogicError("another program has the SQLite database of "+path+" open", "stop it and retry, or import into a new directory with --to")
	case errors.Is(err, compat.ErrNotEmpty):
		return cli.LogicError(err.Error(), "name a new or empty directory")
	}
	return err
}
