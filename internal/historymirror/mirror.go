// Package historymirror keeps a copy of a history in the tables of OpenHarness up to
// date, in whichever database: compat has SQLite, thread-net PostgreSQL.
package historymirror

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"thread/engine"
	"thread/event"
	"thread/history"
	"thread/internal/address"
)

// A batch has this many history events, or fewer when they are long.
const (
	batchEvents = 500
	batchBytes  = 8 << 20
)

// Statement is one of the SQL that all databases share, with ? for its arguments: nil,
// strings and int64s.
type Statement struct {
	SQL  string
	Args []any
}

// Database has the tables of a mirror.
type Database interface {
	// State is what StateSQL finds.
	State(ctx context.Context) (State, error)
	// Write does the statements in one transaction, in which no other process writes. look is
	// called in it before them, and ends it with the error that it returns.
	Write(ctx context.Context, look func(State) error, statements []Statement) error
}

// Mirror copies a history into a database.
type Mirror struct {
	// Page is how many history events a batch has, at most.
	Page int
	// Fit returns what a column of that kind can hold of a text; nil where it is the text.
	Fit func(Kind, string) string
	// Strict refuses, with ErrNotMirror, what is the mirror of another workspace. Else it
	// becomes the mirror of this one, as in a directory that was copied.
	Strict bool

	db         Database
	tables     []Table
	h          *history.History
	dir        string // of the thread, without links, or its URL
	workspaces []string
	now        func() time.Time
	fresh      bool // nothing was synced yet by this handle
}

// New returns a mirror of h, of the workspaces with these ids, or of all for nil. Workspaces of
// the kind chat never are in it.
func New(h *history.History, db Database, tables []Table, workspaces []string) (*Mirror, error) {
	dir := address.HistoryOf(h.Dir())
	if dir == "" {
		var err error
		if dir, err = filepath.EvalSymlinks(filepath.Dir(h.Dir())); err != nil {
			return nil, err
		}
	}
	workspaces = slices.Clone(workspaces)
	slices.Sort(workspaces)
	return &Mirror{Page: batchEvents, db: db, tables: tables, h: h, dir: dir, workspaces: workspaces, now: time.Now, fresh: true}, nil
}

// Dir is the thread whose history it is: a directory without links, or a URL.
func (m *Mirror) Dir() string { return m.dir }

// Sync copies what is new, in batches, each with the id that it reached, so that it goes
// on where it ended, however it ended. It begins from 0 when the log does not continue
// what was copied: it was pruned beyond that, is a restored older one, or belongs to
// another workspace by now. It returns how many history events it copied.
//
// Nothing of the history is locked while the copy is written.
func (m *Mirror) Sync(ctx context.Context) (n int64, err error) {
	for {
		b, err := m.Next(ctx)
		if err != nil || b == nil {
			return n, err
		}
		switch err := m.Write(ctx, b); {
		case errors.Is(err, ErrMoved):
			continue // whichever process made it, continue from where that one is
		case err != nil:
			return n, err
		}
		n += int64(len(b.page.Changes))
		if b.page.Last == b.page.Head {
			return n, nil
		}
	}
}

// Batch is what is copied in one transaction.
type Batch struct {
	was  State
	page history.Page
	of   scope
	anew bool // all rows go first
	at   string
}

// ErrNotMirror is returned for what is not a mirror of that history.
var ErrNotMirror = errors.New("not a mirror of this history")

// Belongs returns ErrNotMirror unless a mirror with this state may belong to the history
// whose own workspace has the id own.
func (s *State) Belongs(own string) error {
	if s.Own == "" || s.Own == own {
		return nil
	}
	return fmt.Errorf("%w: it is of the history of %q, the workspace %s", ErrNotMirror, s.Thread, s.Own)
}

// ErrMoved is returned for a batch that another process was faster with.
var ErrMoved = errors.New("the mirror was written by another process")

// Next returns the next batch, nil when there is nothing to write.
func (m *Mirror) Next(ctx context.Context) (*Batch, error) {
	s, err := m.db.State(ctx)
	if err != nil {
		return nil, err
	}
	b := &Batch{was: s, at: event.FormatTime(m.now())}
	if b.page, err = m.h.Page(ctx, s.last, m.Page, batchBytes); err != nil {
		return nil, err
	}
	if m.Strict {
		if err := s.Belongs(b.page.Own); err != nil {
			return nil, err
		}
	}
	b.of = m.scope(&b.page)
	torn := s.torn(&b.page, &b.of)
	if torn && s.last > 0 {
		if b.page, err = m.h.Page(ctx, 0, m.Page, batchBytes); err != nil {
			return nil, err
		}
		b.of = m.scope(&b.page)
	}
	if !torn && s.last == b.page.Head && (s.status == "idle" || s.status == "") && !m.fresh {
		return nil, nil
	}
	b.anew = torn || s.last == 0
	return b, nil
}

// Write writes a batch, and returns ErrMoved when another process has changed the mirror
// meanwhile.
func (m *Mirror) Write(ctx context.Context, b *Batch) error {
	statements, err := m.Statements(b)
	if err != nil {
		return err
	}
	err = m.db.Write(ctx, func(now State) error {
		if now.last != b.was.last || now.Own != b.was.Own || now.workspaces != b.was.workspaces {
			return ErrMoved
		}
		return nil
	}, statements)
	if err != nil {
		return err
	}
	m.fresh = false
	return nil
}

// Statements do to the tables what the batch says, and note it.
func (m *Mirror) Statements(b *Batch) (list []Statement, err error) {
	fit := m.Fit
	if fit == nil {
		fit = func(_ Kind, s string) string { return s }
	}
	do := func(sql string, args ...any) { list = append(list, Statement{sql, args}) }
	if b.anew {
		do(`DELETE FROM mirror_state`)
		for i := range m.tables {
			do("DELETE FROM " + m.tables[i].Name)
		}
	}
	p := &b.page
	met := b.of.listed(p)
	upserts := map[*Table]string{}
	events := TableOf(m.tables, HistoryEvents.Entity) != nil
	for i := range p.Changes {
		c := &p.Changes[i]
		if events {
			b.storeEvent(c, fit, do)
		}
		t := TableOf(m.tables, c.Entity)
		if t == nil {
			continue
		}
		workspace := c.Workspace
		if c.Entity == history.Workspace && c.Op != history.OpDelete {
			workspace = c.EntityID
		}
		if !b.of.has(workspace) {
			do("DELETE FROM "+t.Name+" WHERE id = ?", fit(Text, c.EntityID))
			continue
		}
		if !slices.Contains(met, workspace) {
			met = append(met, workspace)
		}
		if upserts[t] == "" {
			upserts[t] = t.upsertSQL()
		}
		values, err := t.Values(c.Row, workspace)
		if err != nil {
			return nil, fmt.Errorf("history event %d: %w", c.ID, err)
		}
		for j, column := range t.Columns() {
			if text, ok := values[j].(string); ok {
				values[j] = fit(column.Kind, text)
			}
		}
		do(upserts[t], values...)
	}
	status := "idle"
	if p.Last < p.Head {
		status = "syncing"
	}
	for _, id := range met {
		do(`INSERT INTO mirror_state (workspace_id, last_event_id, last_synced_at, status) VALUES (?, 0, ?, ?) ON CONFLICT DO NOTHING`, fit(Text, id), b.at, status)
	}
	do(`UPDATE mirror_state SET last_event_id = ?, last_synced_at = ?, status = ?, error_message = NULL`, p.Last, b.at, status)
	do(`UPDATE thread_mirror SET thread = ?, workspace_id = ?, workspaces = ?, last_event_id = ?, witness = ?,
  states = (SELECT count(*) FROM mirror_state)`, fit(Text, m.dir), p.Own, b.of.String(), p.Last, witnessOf(p.End))
	return list, nil
}

// storeEvent stores the history event itself, where the copy has a table for it.
func (b *Batch) storeEvent(c *history.PageChange, fit func(Kind, string) string, do func(sql string, args ...any)) {
	workspace := c.Workspace
	if c.Entity == history.Workspace {
		workspace = c.EntityID
	}
	switch {
	case c.Op == history.OpDelete:
		do(deletionSQL, c.ID, c.Op, fit(Time, c.At), string(c.Entity), fit(Text, c.EntityID))
	case b.of.has(workspace):
		var session any
		if c.Session != "" {
			session = fit(Text, c.Session)
		}
		do(eventSQL, c.ID, fit(Text, workspace), session, string(c.Entity), fit(Text, c.EntityID), c.Op, fit(JSON, string(c.Row)), fit(Time, c.At))
	}
}

const (
	// lookAgain is how long Follow trusts the file system to tell of changes. Some
	// network file systems never do.
	lookAgain = time.Minute
	// tryAgain is how soon Follow syncs again where that went wrong.
	tryAgain = 5 * time.Second
)

// Follow calls sync, which syncs the mirror, again whenever the history changes, until
// ctx ends; it then returns nil. After each round it calls synced with what sync returned,
// and continues if synced returns nil.
func (m *Mirror) Follow(ctx context.Context, sync func(context.Context) (int64, error), synced func(n int64, err error) error) error {
	t, err := m.h.Thread()
	if err == nil && t == nil { // make it, to watch it
		if err = m.h.Update(ctx, func(*history.Tx) error { return nil }); err == nil {
			t, err = m.h.Thread()
		}
	}
	if err != nil {
		return err
	}
	return Follow(ctx, t, sync, synced)
}

// Follow is Follow of any mirror of what is in t.
func Follow(ctx context.Context, t *engine.Thread, sync func(context.Context) (int64, error), synced func(n int64, err error) error) error {
	w, err := t.Watch()
	if err != nil {
		return err
	}
	defer w.Close()
	for {
		n, err := sync(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err := synced(n, err); err != nil {
			return err
		}
		again := lookAgain
		if err != nil {
			again = tryAgain
		}
		if err := w.Wait(ctx, time.Now().Add(again)); ctx.Err() != nil {
			return nil
		} else if err != nil {
			return err
		}
	}
}
