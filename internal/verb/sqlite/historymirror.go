package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"thread/compat"
	"thread/history"
	"thread/internal/cli"
	"thread/internal/durable"
	"thread/internal/terminal"
	"thread/internal/verb/mirror"
)

// mirrorPlace is where a workspace has its mirror, below its root.
var mirrorPlace = filepath.Join(".openharness", "data", "history.db")

// HistoryMirror is history mirror for files of SQLite. Programs that link a server have it also.
type HistoryMirror struct {
	mirror.Command
	State bool `help:"Copy nothing; print how far each SQLite copy is, and what went wrong."`
}

var historyMirrorVerb = func() *cli.Verb {
	v := *mirror.Verb
	v.Server = true // thread-net has the one for PostgreSQL
	v.Grammar = func() cli.Command { return new(HistoryMirror) }
	v.Errors = ErrorWords
	return &v
}()

// NamesThread is for package cli: it is what PostgreSQL is needed for.
func (c *HistoryMirror) NamesThread() string { return c.To.Value }

// place is one file and the workspaces that are mirrored into it, nil for all.
type place struct {
	path string
	opts compat.HistoryMirrorOptions
}

// Run is for package cli.
func (c *HistoryMirror) Run(ctx context.Context, a *cli.App) error {
	// Without --to the thread says which files are written.
	setDir := a.OwnDir
	if c.To.Set {
		setDir = func(dir string) error { return a.SetDir("--thread", dir) }
	}
	if err := setDir(c.Thread.Value); err != nil {
		return err
	}
	if err := c.Check(); err != nil {
		return err
	}
	if scheme, _, ok := strings.Cut(c.To.Value, ":"); ok && (scheme == "postgres" || scheme == "postgresql") {
		return cli.UsageError("--to is not postgres://HOST/DATABASE", "say for example postgres://localhost/app")
	}
	h, err := history.Open(ctx, a.Dir, history.WithLogLines(a.LogInfo))
	if err != nil {
		return err
	}
	defer h.Close()
	if !compat.Available { // a constant: all that follows is left out of that build
		return compat.ErrNoSQLite
	}
	ctx, stop := cli.Interruptible(ctx)
	defer stop()
	places, err := c.places(ctx, h)
	if err != nil {
		return err
	}
	if c.State {
		return c.states(ctx, a, places)
	}
	mirrors := make([]*compat.HistoryMirror, 0, len(places))
	defer func() {
		for _, m := range mirrors {
			m.Close()
		}
	}()
	for _, p := range places {
		a.Target = p.path
		if p.opts.Default {
			if err := durable.MkdirAll(filepath.Dir(p.path), 0o755); err != nil {
				return err
			}
		}
		m, err := compat.OpenHistoryMirror(ctx, h, p.path, p.opts)
		if err != nil {
			return err
		}
		mirrors = append(mirrors, m)
		if m.Rebuilt != "" {
			a.Warn("%s was started over: %s; the old copy is %s", p.path, m.Rebuilt, m.Aside)
		}
		n, err := m.Sync(ctx)
		if err != nil {
			return err
		}
		if err := c.Print(a, n, p.path); err != nil {
			return err
		}
	}
	if !c.Follow {
		return nil
	}
	copies := make([]mirror.Copy, len(mirrors))
	for i, m := range mirrors {
		copies[i] = mirror.Copy{Name: places[i].path, Mirror: m}
	}
	return mirror.Keep(ctx, a, copies)
}

// states prints mirror_state of each file that is there.
func (c *HistoryMirror) states(ctx context.Context, a *cli.App, places []place) error {
	if c.Follow {
		return cli.UsageError("--state and --follow exclude each other", "give one of them")
	}
	for _, p := range places {
		if _, err := os.Stat(p.path); errors.Is(err, os.ErrNotExist) && p.opts.Default {
			continue // not made yet
		}
		list, err := compat.MirrorStates(ctx, p.path)
		if err != nil {
			return err
		}
		for _, s := range list {
			if err := c.printState(a, p.path, &s); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *HistoryMirror) printState(a *cli.App, path string, s *compat.MirrorState) error {
	var problem *string
	if s.ErrorMessage.Valid {
		problem = &s.ErrorMessage.String
	}
	if c.JSON {
		return a.Out.JSON(struct {
			To        string  `json:"to"`
			Workspace string  `json:"workspace_id"`
			Last      int64   `json:"last_event_id"`
			At        string  `json:"last_synced_at"`
			Status    string  `json:"status"`
			Error     *string `json:"error_message"`
		}{path, s.WorkspaceID, s.LastEventID, s.LastSyncedAt, s.Status, problem})
	}
	return a.Out.Text(terminal.Printable(fmt.Sprintf("%s  workspace %s at history event %d  %s  %s  %s", path, s.WorkspaceID, s.LastEventID, s.LastSyncedAt, s.Status, s.ErrorMessage.String)) + "\n")
}

// places returns the files that are to be kept.
func (c *HistoryMirror) places(ctx context.Context, h *history.History) (list []place, err error) {
	only, err := c.Only(ctx, h)
	if err != nil {
		return nil, err
	}
	if c.To.Set {
		path, err := cli.Resolve(c.To.Value)
		return []place{{path, compat.HistoryMirrorOptions{Workspaces: only}}}, err
	}
	for w, err := range h.Workspaces(ctx, history.WorkspaceQuery{}) {
		if err != nil {
			return nil, err
		}
		switch {
		case only != nil && w.ID != c.Workspace.Value:
			continue
		case w.Kind == "chat" || c.State && !filepath.IsAbs(w.RootPath):
			continue
		case !filepath.IsAbs(w.RootPath):
			return nil, cli.LogicError(fmt.Sprintf("the workspace %s has no absolute root_path", w.ID), "set it with thread workspace set --root-path, or name one file with --to")
		}
		path := filepath.Join(w.RootPath, mirrorPlace)
		if i := slices.IndexFunc(list, func(p place) bool { return p.path == path }); i >= 0 {
			list[i].opts.Workspaces = append(list[i].opts.Workspaces, w.ID)
			continue
		}
		if info, err := os.Stat(w.RootPath); !c.State && (err != nil || !info.IsDir()) {
			return nil, cli.LogicError(fmt.Sprintf("the root of the workspace %s, %s, is not a directory", w.ID, w.RootPath), "make it, or name one file with --to")
		}
		list = append(list, place{path, compat.HistoryMirrorOptions{Workspaces: []string{w.ID}, Default: true}})
	}
	if list == nil {
		return nil, cli.LogicError("no workspace has a place for a mirror", "record something first, or name a file with --to")
	}
	return list, nil
}
