package main

import (
	"context"
	"fmt"

	"thread/compat"
)

type mirrorCmd struct {
	threadFlags
	To     text `required:"" placeholder:"FILE" help:"The SQLite file; it is made when it is missing."`
	Follow bool `help:"Go on after that, until interrupted."`
	jsonFlag
}

func mirrorVerb() *verb {
	return &verb{
		name:    "mirror",
		summary: "Keep a SQLite copy of a thread up to date",
		details: `Copies what is new since the last time. A copy that is damaged, or of another
thread, is set aside as FILE.damaged and begun anew. Read it, do not write to it;
its table mirror_state says how far it is.`,
		examples: `thread mirror --thread ./inbox --to inbox.db
thread mirror --thread ./inbox --to inbox.db --follow`,
		grammar: func() command { return new(mirrorCmd) },
	}
}

func (c *mirrorCmd) run(ctx context.Context, a *app) error {
	t, err := a.open(c.Thread.value)
	if err != nil {
		return err
	}
	defer t.Close()
	if c.To.value == "" {
		return usage("--to is empty", "name a file")
	}
	path, err := resolve(c.To.value)
	if err != nil {
		return err
	}
	if !compat.Available { // a constant: all that follows is left out of such a build
		return compatFailure(ctx, compat.ErrNoSQLite, path)
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	m, err := compat.OpenMirror(ctx, t, path)
	if err != nil {
		return compatFailure(ctx, err, path)
	}
	defer m.Close()
	if m.Rebuilt != "" {
		a.warn("%s was begun anew: %s; the old copy is %s.damaged", path, m.Rebuilt, path)
	}
	bar := newBar(a.stderr, "mirroring")
	n, err := m.Sync(ctx, bar.set)
	bar.end()
	if err != nil {
		return compatFailure(ctx, err, path)
	}
	if err := a.written("Mirrored", n, path, c.JSON); err != nil || !c.Follow {
		return err
	}
	if err := a.out.flush(); err != nil {
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
			fmt.Fprintf(a.stderr, "Warning: %s\n", printable(now))
		}
		said = now
		return nil
	})
}
