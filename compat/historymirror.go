package compat

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"thread/history"
	"thread/internal/historymirror"
	"thread/internal/target"
)

// HistoryMirror is an incremental copy of a history in one SQLite file, in the tables of
// OpenHarness. Reading the copy is safe at any time; nothing else may write to it.
type HistoryMirror struct {
	mirrorFile
	m    *historymirror.Mirror
	h    *history.History
	opts HistoryMirrorOptions
}

// HistoryMirrorOptions say what is mirrored.
type HistoryMirrorOptions struct {
	// Workspaces are the ids of what is mirrored; nil for all. Workspaces of the kind
	// chat never are.
	Workspaces []string
	// Default says that the file is in the place that a workspace has for its mirror:
	// then it is begun again, and not refused, when it is a mirror of another workspace,
	// as in a directory that was copied; and it may lie in a thread directory.
	Default bool
}

// OpenHistoryMirror opens the copy of h at path, and makes it when it is missing. What is
// damaged there is set aside, as OpenMirror does, also what is not a SQLite file at all but has
// the name of one (.db, .sqlite, .sqlite3), and the copy is begun again. Anything else that
// is not a mirror of h is refused with ErrNotMirror, and stays as it is; so is a path
// inside of a thread directory, with target.ErrInThread.
func OpenHistoryMirror(ctx context.Context, h *history.History, path string, o HistoryMirrorOptions) (*HistoryMirror, error) {
	path, err := behindLinks(path)
	if err != nil {
		return nil, err
	}
	if !o.Default {
		if err := target.Outside(path); err != nil {
			return nil, err
		}
	}
	m := &HistoryMirror{mirrorFile: mirrorFile{path: path}, h: h, opts: o}
	if m.m, err = historymirror.New(h, historyTables{m}, historymirror.Tables, o.Workspaces); err != nil {
		return nil, err
	}
	m.anything = o.Default || slices.Contains([]string{".db", ".sqlite", ".sqlite3"}, filepath.Ext(path))
	wrong, err := m.open(ctx)
	switch {
	case err == nil && wrong == "":
		return m, nil
	case err != nil && !damaged(err) && !m.leftOver(err):
		return nil, errors.Join(inUse(err), m.Close())
	case err != nil:
		wrong = err.Error()
	}
	if err := m.rebuild(ctx, wrong, m.open); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// open connects to the copy and checks it. It returns what is wrong with it.
func (m *HistoryMirror) open(ctx context.Context) (wrong string, err error) {
	found, err := m.find()
	if err == nil && !found {
		err = m.make(ctx, m.create)
	}
	if err != nil {
		return "", err
	}
	if m.db, m.conn, err = connect(ctx, m.path, "mode=rw&_pragma=synchronous(NORMAL)"); err != nil {
		return "", err
	}
	var ours int
	if err := m.conn.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_schema WHERE name IN ('thread_mirror', 'mirror_state', 'runs')`).Scan(&ours); err != nil {
		return "", err
	}
	if ours != 3 {
		return "", fmt.Errorf("%w: %s is another SQLite database", ErrNotMirror, m.path)
	}
	if wrong, err := m.check(ctx); err != nil || wrong != "" {
		return wrong, err
	}
	s, err := historyTables{m}.State(ctx)
	if errors.Is(err, sql.ErrNoRows) {
		return "thread_mirror is empty", nil
	}
	if err != nil {
		return "", err
	}
	w, err := m.h.Workspace(ctx)
	if err != nil {
		return "", err
	}
	if s.Own != w.ID && s.Thread != m.m.Dir() && !m.opts.Default {
		return "", fmt.Errorf("%w: %s is of the history of %q", ErrNotMirror, m.path, s.Thread)
	}
	return "", nil
}

func (m *HistoryMirror) create(ctx context.Context) error {
	if err := m.exec(ctx, `PRAGMA journal_mode=WAL`); err != nil {
		return err
	}
	return m.transact(ctx, func() error {
		for _, statement := range historySQL() {
			if err := m.exec(ctx, statement); err != nil {
				return err
			}
		}
		return m.exec(ctx, `INSERT INTO thread_mirror VALUES (?, '', '', 0, '', 0)`, m.m.Dir())
	})
}

// Sync copies what is new, in transactions of at most 500 history events, as
// [historymirror.Mirror.Sync] does. What goes wrong it notes in mirror_state.
func (m *HistoryMirror) Sync(ctx context.Context) (n int64, err error) {
	if _, serr := os.Stat(m.path); errors.Is(serr, os.ErrNotExist) || m.conn == nil {
		err = m.rebuild(ctx, "it was removed", m.open)
	}
	if err == nil {
		n, err = m.m.Sync(ctx)
	}
	if damaged(err) {
		if err = m.rebuild(ctx, err.Error(), m.open); err == nil {
			n, err = m.m.Sync(ctx)
		}
	}
	if m.conn != nil && err != nil && resultCode(err) == 0 && ctx.Err() == nil {
		err = errors.Join(err, m.exec(ctx, `UPDATE mirror_state SET status = 'error', error_message = ?`, err.Error()))
	}
	return n, diskError(m.path, inUse(err))
}

// Follow syncs again whenever the history changes, until ctx ends; it then returns nil.
// After each round it calls synced with how many history events that copied and what went
// wrong, and continues if synced returns nil.
func (m *HistoryMirror) Follow(ctx context.Context, synced func(n int64, err error) error) error {
	return m.m.Follow(ctx, m.Sync, synced)
}

// historyTables are the tables of a HistoryMirror.
type historyTables struct{ *HistoryMirror }

// State implements historymirror.Database.
func (d historyTables) State(ctx context.Context) (historymirror.State, error) {
	var r historymirror.StateRow
	err := d.conn.QueryRowContext(ctx, historymirror.StateSQL).
		Scan(&r.Thread, &r.Own, &r.Workspaces, &r.Last, &r.Witness, &r.States, &r.Count, &r.Least, &r.Status)
	return r.State(), err
}

// Write implements historymirror.Database.
func (d historyTables) Write(ctx context.Context, look func(historymirror.State) error, statements []historymirror.Statement) error {
	return d.transact(ctx, func() error {
		s, err := d.State(ctx)
		if err != nil {
			return err
		}
		if err = look(s); err != nil {
			return err
		}
		prepared := map[string]*sql.Stmt{}
		defer func() {
			for _, p := range prepared {
				p.Close()
			}
		}()
		for _, s := range statements {
			p := prepared[s.SQL]
			if p == nil {
				if p, err = d.conn.PrepareContext(ctx, s.SQL); err != nil {
					return err
				}
				prepared[s.SQL] = p
			}
			if _, err := p.ExecContext(ctx, s.Args...); err != nil {
				return err
			}
		}
		return nil
	})
}
