package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"thread/compat"
)

// interruptible returns a context that ends with Ctrl-C or SIGTERM, so that a
// long job can put away what it began.
func interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
}

// compatFailure puts the errors of package compat into words; path is what the
// job was about.
func compatFailure(ctx context.Context, err error, path string) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return logic("interrupted", "run it again; it begins where it has to")
	case errors.Is(err, compat.ErrNoSQLite):
		return logic("this thread was built without SQLite", "use the full build of thread on a host that has one")
	case errors.Is(err, compat.ErrNotSQLite):
		return logic(fmt.Sprintf("%s is not a SQLite thread directory", path), "name a directory whose events.db is one of the TypeScript tool's")
	case errors.Is(err, compat.ErrInUse):
		return logic("another program has the SQLite database of "+path+" open", "stop it and retry, or import into a new directory with --to")
	case errors.Is(err, compat.ErrNotEmpty):
		return logic(err.Error(), "name a new or empty directory")
	}
	return err
}
