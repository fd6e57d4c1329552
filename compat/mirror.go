//go:build !nosqlite && ((linux && (386 || amd64 || arm || arm64 || loong64 || ppc64le || riscv64 || s390x)) || (darwin && (amd64 || arm64)) || (freebsd && (amd64 || arm64)) || (netbsd && amd64) || (openbsd && (amd64 || arm64)) || (windows && (386 || amd64 || arm64)))

package compat

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"thread/engine"
	"thread/event"
)

// The table mirror_state has one row. Status is "syncing" until the mirror has
// caught up, "ok" when it had at last_synced_at, and "failed" with an
// error_message when the thread could not be read.
const stateSQL = `CREATE TABLE mirror_state (
  last_event_id  INTEGER NOT NULL,
  last_synced_at TEXT,
  status         TEXT NOT NULL,
  error_message  TEXT
)`

// A mirror transaction has this many events, or fewer when they are long.
const (
	mirrorEvents = 1000
	mirrorBytes  = 8 << 20
)

// errForeign is returned for a file that Mirror must not touch.
var errForeign = errors.New("is a SQLite database, but not a mirror")

// Mirror is an incremental copy of a thread in one SQLite file, in the schema of
// a SQLite thread. Reading the copy is safe at any time; nothing else may write
// to it.
type Mirror struct {
	t    *engine.Thread
	path string
	db   *sql.DB
	conn *sql.Conn
	now  func() time.Time

	// Rebuilt says why the copy was begun anew, "" when it was not.
	Rebuilt string
}

// OpenMirror opens the copy of t at path, and makes it when it is missing. A
// copy that is damaged, or that does not fit the thread, is set aside under the
// name path + ".damaged" and begun anew. A SQLite file that is something else is
// refused.
func OpenMirror(ctx context.Context, t *engine.Thread, path string) (*Mirror, error) {
	if !Available {
		return nil, ErrNoSQLite
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	m := &Mirror{t: t, path: path, now: time.Now}
	why, err := m.open(ctx)
	if err == nil && why == "" {
		return m, nil
	}
	if err != nil && !damaged(err) {
		return nil, errors.Join(inUse(err), m.Close())
	}
	if err != nil {
		why = err.Error()
	}
	if err := m.rebuild(ctx, why); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func damaged(err error) bool {
	code := resultCode(err)
	return code == codeCorrupt || code == codeNotADB
}

func (m *Mirror) rebuild(ctx context.Context, why string) error {
	if err := m.Close(); err != nil {
		return err
	}
	aside := m.path + ".damaged"
	for _, suffix := range []string{"-wal", "-shm", "-journal", ""} {
		// The WAL goes first: what is left of it must not meet the new file.
		err := os.Rename(m.path+suffix, aside+suffix)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	m.Rebuilt = why
	why, err := m.open(ctx)
	if err == nil && why != "" {
		err = fmt.Errorf("a new mirror is wrong: %s", why)
	}
	return err
}

// open connects to the copy and checks it. It returns what is wrong with it.
func (m *Mirror) open(ctx context.Context) (wrong string, err error) {
	f, err := os.OpenFile(m.path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	if err := f.Close(); err != nil {
		return "", err
	}
	if m.db, m.conn, err = connect(ctx, m.path, "mode=rw&_pragma=synchronous(NORMAL)"); err != nil {
		return "", err
	}
	var tables, ours int
	err = m.conn.QueryRowContext(ctx, `SELECT count(*), total(name = 'mirror_state') FROM sqlite_schema`).Scan(&tables, &ours)
	if err != nil {
		return "", err
	}
	if tables == 0 {
		return "", m.create(ctx)
	}
	if ours == 0 {
		return "", fmt.Errorf("%s %w", m.path, errForeign)
	}
	var check string
	if err := m.conn.QueryRowContext(ctx, `PRAGMA quick_check(1)`).Scan(&check); err != nil {
		return "", err
	}
	if check != "ok" {
		return check, nil
	}
	return m.compare(ctx)
}

func (m *Mirror) create(ctx context.Context) error {
	if _, err := m.conn.ExecContext(ctx, `PRAGMA journal_mode=WAL`); err != nil {
		return err
	}
	return m.transact(ctx, func() error {
		for _, o := range schema {
			if err := m.exec(ctx, o.sql); err != nil {
				return err
			}
		}
		if err := m.exec(ctx, stateSQL); err != nil {
			return err
		}
		return m.exec(ctx, `INSERT INTO mirror_state VALUES (0, NULL, 'syncing', NULL)`)
	})
}

// compare says whether the copy can be of this thread: its newest event is the
// same one there.
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
	case errors.Is(err, sql.ErrNoRows):
		if last == 0 {
			return "", nil
		}
		return "the events are gone", nil
	case err != nil && resultCode(err) == 0:
		return "the newest event is no event", nil
	case err != nil:
		return "", err
	case newest.ID != last:
		return fmt.Sprintf("its newest event is %d, not %d", newest.ID, last), nil
	}
	es, err := m.t.Peek(ctx, engine.Query{After: last - 1, Limit: 1})
	if err != nil {
		return "", err
	}
	if len(es) == 0 || string(es[0].AppendJSON(nil)) != string(newest.AppendJSON(nil)) {
		return fmt.Sprintf("event %d is another one in the thread", last), nil
	}
	return "", nil
}

func (m *Mirror) last(ctx context.Context) (id int64, err error) {
	err = m.conn.QueryRowContext(ctx, `SELECT last_event_id FROM mirror_state`).Scan(&id)
	return id, err
}

func (m *Mirror) exec(ctx context.Context, query string, args ...any) error {
	_, err := m.conn.ExecContext(ctx, query, args...)
	return err
}

func (m *Mirror) transact(ctx context.Context, fn func() error) error {
	if err := m.exec(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err := fn()
	if err == nil {
		err = m.exec(ctx, "COMMIT")
	}
	if err != nil {
		_ = m.exec(context.Background(), "ROLLBACK") // err is what went wrong
	}
	return err
}

// Sync copies what is new, in transactions of at most 1000 events, each with the
// id that it reached, so that it goes on where it ended, however it ended.
// Subscriptions, progress and the rest follow in the last one. It returns how
// many events it copied. What it cannot read it notes in mirror_state.
//
// Nothing of the thread is locked while the copy is written. progress may be nil.
func (m *Mirror) Sync(ctx context.Context, progress Progress) (n int64, err error) {
	if _, serr := os.Stat(m.path); errors.Is(serr, os.ErrNotExist) {
		err = m.rebuild(ctx, "it was removed")
	}
	if err == nil {
		n, err = m.sync(ctx, progress)
	}
	if damaged(err) {
		if err = m.rebuild(ctx, err.Error()); err == nil {
			n, err = m.sync(ctx, progress)
		}
	}
	if m.conn != nil && err != nil && resultCode(err) == 0 && ctx.Err() == nil {
		err = errors.Join(err, m.exec(ctx, `UPDATE mirror_state SET status = 'failed', error_message = ?`, err.Error()))
	}
	return n, diskError(m.path, inUse(err))
}

func (m *Mirror) sync(ctx context.Context, progress Progress) (n int64, err error) {
	last, err := m.last(ctx)
	if err != nil {
		return 0, err
	}
	snap, err := m.t.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	var batch []event.Event
	size := 0
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		if err := m.write(ctx, batch); err != nil {
			return err
		}
		n += int64(len(batch))
		if progress != nil {
			progress(n, snap.Head-last)
		}
		batch, size = batch[:0], 0
		return nil
	}
	err = readSlices(ctx, m.t, last, snap.Head, func(es []event.Event) error {
		for i := range es {
			batch = append(batch, es[i])
			if size += len(es[i].Content); len(batch) == mirrorEvents || size > mirrorBytes {
				if err := flush(); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err == nil {
		err = flush()
	}
	if err == nil {
		err = m.finish(ctx, &snap)
	}
	return n, err
}

func (m *Mirror) write(ctx context.Context, batch []event.Event) error {
	return m.transact(ctx, func() error {
		insert, err := m.conn.PrepareContext(ctx, `INSERT OR REPLACE INTO events (id, created_at, source, type, subtype, content) VALUES (?,?,?,?,?,?)`)
		if err != nil {
			return err
		}
		defer insert.Close()
		var args [6]any
		for i := range batch {
			if _, err := insert.ExecContext(ctx, appendArgs(args[:0], &batch[i])...); err != nil {
				return err
			}
		}
		return m.exec(ctx, `UPDATE mirror_state SET last_event_id = ?, status = 'syncing'`, batch[len(batch)-1].ID)
	})
}

// finish replaces the small tables and says that the mirror has caught up.
func (m *Mirror) finish(ctx context.Context, snap *engine.Snapshot) error {
	kept, extras, err := splitExtras(snap)
	if err != nil {
		return err
	}
	return m.transact(ctx, func() error {
		for _, query := range []string{`DELETE FROM subscriptions`, `DELETE FROM consumer_progress`, `DROP TABLE IF EXISTS thread_extra`} {
			if err := m.exec(ctx, query); err != nil {
				return err
			}
		}
		exec := func(query string, args ...any) error { return m.exec(ctx, query, args...) }
		if err := writeConsumers(exec, snap, kept.rowids); err != nil {
			return err
		}
		if err := setCounter(ctx, m.conn, snap.LastID); err != nil {
			return err
		}
		if err := writeExtras(exec, extras); err != nil {
			return err
		}
		return exec(`UPDATE mirror_state SET last_synced_at = ?, status = 'ok', error_message = NULL`, event.FormatTime(m.now()))
	})
}

// Close closes the copy.
func (m *Mirror) Close() error {
	if m.db == nil {
		return nil
	}
	var err error
	if m.conn != nil {
		err = m.conn.Close()
	}
	err = errors.Join(err, m.db.Close())
	m.db, m.conn = nil, nil
	return err
}
