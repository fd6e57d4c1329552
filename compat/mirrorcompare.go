package compat

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"thread/engine"
	"thread/event"
)

// compare says what is wrong with the copy in itself, and returns ErrNotMirror when
// it is one of another thread: its newest event is another one there, or, where
// that event cannot be looked at any more, its directory was.
func (m *Mirror) compare(ctx context.Context) (wrong string, err error) {
	last, err := m.last(ctx)
	if errors.Is(err, sql.ErrNoRows) {
		return "mirror_state is empty", nil
	}
	if err != nil {
		return "", err
	}
	var newest event.Event
	err = m.conn.QueryRowContext(ctx, `SELECT id, +created_at, +source, +type, +subtype, +content FROM events ORDER BY id DESC LIMIT 1`).
		Scan(&newest.ID, &newest.CreatedAt, &newest.Source, &newest.Type, &newest.Subtype, &newest.Content)
	switch {
	case errors.Is(err, sql.ErrNoRows) && last == 0:
		return "", m.checkDir(ctx)
	case errors.Is(err, sql.ErrNoRows):
		return "the events are gone", nil
	case err != nil && resultCode(err) == 0:
		return "the newest event is not an event", nil
	case err != nil:
		return "", err
	case newest.ID != last:
		return fmt.Sprintf("its newest event is %d, not %d", newest.ID, last), nil
	}
	es, err := m.t.Peek(ctx, engine.Query{After: last - 1, Limit: 1})
	if err != nil {
		return "", err
	}
	if len(es) == 1 && es[0].ID == last {
		if string(es[0].AppendJSON(nil)) != string(newest.AppendJSON(nil)) {
			return "", fmt.Errorf("%w: %s is of another thread, whose event %d is another one", ErrNotMirror, m.path, last)
		}
		return "", nil
	}
	info, err := m.t.Info(ctx)
	if err != nil {
		return "", err
	}
	if info.Newest < last || info.EventCount == info.Stored {
		return "", fmt.Errorf("%w: %s is of another thread, as this one has no event %d", ErrNotMirror, m.path, last)
	}
	return "", m.checkDir(ctx) // it was pruned
}

// checkDir returns ErrNotMirror when another directory was copied last.
func (m *Mirror) checkDir(ctx context.Context) error {
	has, err := m.hasThread(ctx)
	if err != nil {
		return err
	}
	var dir sql.NullString
	if has {
		if err := m.conn.QueryRowContext(ctx, `SELECT thread FROM mirror_state`).Scan(&dir); err != nil {
			return err
		}
	}
	if dir.String != m.dir && (has || !m.empty(ctx)) {
		return fmt.Errorf("%w: %s is of another thread, or of this one under another name, %q", ErrNotMirror, m.path, dir.String)
	}
	return nil
}

func (m *Mirror) empty(ctx context.Context) bool {
	last, err := m.last(ctx)
	return err == nil && last == 0
}

func (m *Mirror) hasThread(ctx context.Context) (has bool, err error) {
	err = m.conn.QueryRowContext(ctx, `SELECT count(*) FROM pragma_table_info('mirror_state') WHERE name = 'thread'`).Scan(&has)
	return has, err
}

// claim notes that the copy is of this directory.
func (m *Mirror) claim(ctx context.Context) error {
	return m.transact(ctx, func() error {
		has, err := m.hasThread(ctx)
		if err == nil && !has {
			err = m.exec(ctx, `ALTER TABLE mirror_state ADD COLUMN thread TEXT`)
		}
		if err != nil {
			return err
		}
		return m.exec(ctx, `UPDATE mirror_state SET thread = ? WHERE thread IS NOT ?`, m.dir, m.dir)
	})
}
