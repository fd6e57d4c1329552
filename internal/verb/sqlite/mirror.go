package sqlite

import (
	"context"
	"fmt"

	"thread/compat"
	"thread/internal/cli"
	"thread/internal/terminal"
)

type mirrorCmd struct {
	cli.ThreadFlags
	To     cli.Text `required:"" placeholder:"FILE" help:"The SQLite file; it is made when it is missing."`
	Follow bool     `short:"f" help:"Keep the copy up to date until interrupted."`
	cli.JSONFlag
}

// Mirror is mirror. Programs that link a server have it also.
var Mirror = &cli.Verb{
	Name:    "mirror",
	Server:  true,
	Summary: "Keep a SQLite copy of a thread up to date",
	Details: `Copies what is new since the last time. A copy that is damaged is set aside as
FILE.damaged and started over; any other file, also a copy of another thread, is
refused and left alone. Read the copy, do not write to it; its table
mirror_state says how far it is.`,
	Exits: "0 up to date; with --follow: interrupted\n1 the copy cannot be written, or is not one of this thread",
	Examples: `thread mirror --thread ./inbox --to inbox.db
thread mirror --thread ./inbox --to inbox.db --follow`,
	Grammar: func() cli.Command { return new(mirrorCmd) },
	Errors:  ErrorWords,
}

func (c *mirrorCmd) Run(ctx context.Context, a *cli.App) error {
	t, err := a.Open(c.Thread.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	if c.To.Value == "" {
		return cli.UsageError("--to is empty", "name a file")
	}
	path, err := cli.Resolve(c.To.Value)
	if err != nil {
		return err
	}
	a.Target = path
	if !compat.Available { // a constant: all that follows is left out of that build
		return compat.ErrNoSQLite
	}
	ctx, stop := cli.Interruptible(ctx)
	defer stop()
	m, err := compat.OpenMirror(ctx, t, path)
	if err != nil {
		return err
	}
	defer m.Close()
	if m.Rebuilt != "" {
		a.Warn("%s was started over: %s; the old copy is %s", path, m.Rebuilt, m.Aside)
	}
	bar := terminal.NewBar(a.Stderr, "mirroring")
	n, err := m.Sync(ctx, bar.Set)
	bar.End()
	if err != nil {
		return err
	}
	if err := written(a, "Mirrored", n, path, c.JSON); err != nil || !c.Follow {
		return err
	}
	if err := a.Out.Flush(); err != nil {
		return err
	}
	said := ""
	return m.Follow(ctx, func(_ int64, err error) error {
		// What goes wrong stands in mirror_state and is said once; the next round
		// may succeed.
		now := ""
		if err != nil {
			now = err.Error()
		}
		if now != said && now != "" {
			fmt.Fprintf(a.Stderr, "Warning: %s\n", terminal.Printable(now))
		}
		said = now
		return nil
	})
}
