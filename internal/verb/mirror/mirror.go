// Package mirror is the verb history mirror except for the database that it writes to:
// thread-sqlite has it for SQLite, thread-net for PostgreSQL.
package mirror

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"thread/history"
	"thread/internal/cli"
	"thread/internal/terminal"
)

// Command is the grammar.
type Command struct {
	cli.ThreadFlags
	To        cli.Text `placeholder:"FILE|URL" help:"One SQLite file for all workspaces, or postgres://HOST/DATABASE?schema=NAME; without it each has its own file, .openharness/data/history.db below its root."`
	Workspace cli.Text `placeholder:"WORKSPACE" help:"Only this workspace."`
	Follow    bool     `short:"f" help:"Keep the copy up to date until interrupted."`
	cli.JSONFlag
}

// Verb is the verb without what differs.
var Verb = &cli.Verb{
	Name:    "history mirror",
	Summary: "Keep a copy of a history in SQLite or PostgreSQL up to date",
	Details: `Copies what is new since the last time into the tables of OpenHarness: sessions,
messages, runs, run_steps, tool_calls, hook_runs, action_runs, artifacts, and
mirror_state, which says how far it is. Workspaces of the kind chat are left out.
A copy that is damaged is set aside as FILE.damaged, or the schema NAME_damaged, and
started over; any other file or schema, also a copy of another history, is refused
and left alone. Read the copy, do not write to it.
In PostgreSQL a copy is a separate schema, thread_history unless the URL names
another one, and has the table workspaces, too.`,
	Exits: "0 up to date; with --follow: interrupted\n1 the copy cannot be written, or is not one of this history",
	Examples: `thread history mirror --thread ./inbox --to history.db
thread history mirror --thread ./inbox --follow
thread history mirror --thread ./inbox --follow --to postgres://db.example.org/audit?schema=inbox`,
}

// Check refuses what means nothing in either database.
func (c *Command) Check() error {
	if c.To.Set && c.To.Value == "" {
		return cli.UsageError("--to is empty", "name a file")
	}
	if c.Workspace.Set && c.Workspace.Value == "" {
		return cli.UsageError("--workspace is empty", "name one, or leave it out for all")
	}
	return nil
}

// Only returns the workspaces that are mirrored, nil for all.
func (c *Command) Only(ctx context.Context, h *history.History) (only []string, err error) {
	if !c.Workspace.Set {
		return nil, nil
	}
	for w, err := range h.Workspaces(ctx, history.WorkspaceQuery{}) {
		if err != nil {
			return nil, err
		}
		if w.ID == c.Workspace.Value && w.Kind == "chat" {
			return nil, cli.LogicError(fmt.Sprintf("the workspace %s is of the kind chat, which has no mirror", w.ID), "name another one; its history is in "+h.Dir())
		}
	}
	return []string{c.Workspace.Value}, nil
}

// Print says how many history events were copied.
func (c *Command) Print(a *cli.App, n int64, to string) error {
	if c.JSON {
		return a.Out.JSON(struct {
			To     string `json:"to"`
			Events int64  `json:"history_events"`
		}{to, n})
	}
	return a.Out.Text(fmt.Sprintf("Mirrored %d history events to %s\n", n, terminal.Printable(to)))
}

// Copy is one copy, and what warnings call it.
type Copy struct {
	Name   string
	Mirror interface {
		Follow(ctx context.Context, synced func(n int64, err error) error) error
	}
	Rebuilt func() string // why the last round began it again, "" where it did not; may be nil
}

// Keep keeps all copies up to date until ctx ends. What goes wrong stands in mirror_state
// and is said once; the next round may succeed.
func Keep(ctx context.Context, a *cli.App, copies []Copy) error {
	if err := a.Out.Flush(); err != nil {
		return err
	}
	var mu sync.Mutex // of stderr
	warn := func(c *Copy, what string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(a.Stderr, "Warning: %s\n", terminal.Printable(c.Name+": "+what))
	}
	errs := make([]error, len(copies))
	var wg sync.WaitGroup
	for i, c := range copies {
		wg.Go(func() {
			said := ""
			errs[i] = c.Mirror.Follow(ctx, func(_ int64, err error) error {
				now := ""
				if err != nil {
					now = err.Error()
				}
				if now != said && now != "" {
					warn(&c, now)
				}
				said = now
				if c.Rebuilt != nil && c.Rebuilt() != "" {
					warn(&c, c.Rebuilt())
				}
				return nil
			})
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
