package compat

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/store"
	"thread/internal/target"
)

// The table mirror_state has one row. Status is "syncing" until the mirror has
// caught up, "ok" when it had at last_synced_at, and "failed" with an
// error_message when the thread could not be read. Thread is the directory that
// was copied last; a mirror made before there was that column gets it when it is
// opened.
const stateSQL = `CREATE TABLE mirror_state (
  last_event_id  INTEGER NOT NULL,
  last_synced_at TEXT,
  status         TEXT NOT NULL,
  error_message  TEXT,
  thread         TEXT
)`

// A mirror transaction has this many events, or fewer when they are long.
const (
	mirrorEvents = 1000
	mirrorBytes  = 8 << 20
)

// errMoved says that another process has written to the mirror meanwhile.
var errMoved = errors.New("another process writes to the mirror")

// Mirror is an incremental copy of a thread in one SQLite file, in the schema of
// a SQLite thread. Reading the copy is safe at any time; nothing else may write
// to it.
type Mirror struct {
	mirrorFile
	t   *engine.Thread
	dir string // of the thread, without links, or its URL
	now func() time.Time
}

// OpenMirror opens the copy of t at path, and makes it when it is missing. A SQLite
// file there that is damaged is set aside, under the name path + ".damaged" or, if
// that is taken, with a number behind it, and the copy is begun again. Anything else
// that is not a mirror of t is refused with ErrNotMirror, and stays as it is; so
// is a path inside of a thread directory, with target.ErrInThread.
func OpenMirror(ctx context.Context, t *engine.Thread, path string) (*Mirror, error) {
	if !Available {
		return nil, ErrNoSQLite
	}
	path, err := behindLinks(path)
	if err != nil {
		return nil, err
	}
	if err := target.Outside(path); err != nil {
		return nil, err
	}
	dir := t.URL()
	if dir == "" {
		if dir, err = filepath.EvalSymlinks(t.Dir()); err != nil {
			return nil, err
		}
	}
	m := &Mirror{mirrorFile: mirrorFile{path: path}, t: t, dir: dir, now: time.Now}
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
	if err := m.rebuild(ctx, why, m.open); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func damaged(err error) bool {
	code := resultCode(err)
	return code == codeCorrupt || code == codeNotADB
}

// open connects to the copy and checks it. It returns what is wrong with it.
func (m *Mirror) open(ctx context.Context) (wrong string, err error) {
	found, err := m.find()
	if err == nil && !found {
		// A thread that cannot be read gets no copy.
		if err = m.t.View(ctx, func(*engine.Tx) error { return nil }); err == nil {
			err = m.make(ctx, m.create)
		}
	}
	if err != nil {
		return "", err
	}
	if m.db, m.conn, err = connect(ctx, m.path, "mode=rw&_pragma=synchronous(NORMAL)"); err != nil {
		return "", err
	}
	var tables, ours int
	if err = m.conn.QueryRowContext(ctx, `SELECT count(*), total(name = 'mirror_state') FROM sqlite_schema`).Scan(&tables, &ours); err != nil {
		return "", err
	}
	if ours == 0 {
		return "", fmt.Errorf("%w: %s is another SQLite database", ErrNotMirror, m.path)
	}
	if wrong, err := m.check(ctx); err != nil || wrong != "" {
		return wrong, err
	}
	if wrong, err := m.compare(ctx); err != nil || wrong != "" {
		return wrong, err
	}
	return "", m.claim(ctx)
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
		return m.exec(ctx, `INSERT INTO mirror_state VALUES (0, NULL, 'syncing', NULL, ?)`, m.dir)
	})
}

func (m *Mirror) last(ctx context.Context) (id int64, err error) {
	return id, m.conn.QueryRowContext(ctx, `SELECT last_event_id FROM mirror_state`).Scan(&id)
}

// Sync copies what is new, in transactions of at most 1000 events, each with the
// id that it reached, so that it continues where it ended, however it ended.
// Subscriptions, progress and the rest follow in the last one. It returns how
// many events it copied. What it cannot read it notes in mirror_state.
//
// Nothing of the thread is locked while the copy is written. progress may be nil.
func (m *Mirror) Sync(ctx context.Context, progress Progress) (n int64, err error) {
	if _, serr := os.Stat(m.path); errors.Is(serr, os.ErrNotExist) || m.conn == nil {
		err = m.rebuild(ctx, "it was removed", m.open)
	}
	for err == nil {
		var more int64
		more, err = m.sync(ctx, progress)
		if n += more; !errors.Is(err, errMoved) {
			break
		}
		var wrong string // whichever process made it, continue from where that one is, if it is this thread's copy
		if wrong, err = m.compare(ctx); err == nil && wrong != "" {
			err = m.rebuild(ctx, wrong, m.open)
		}
	}
	if damaged(err) {
		if err = m.rebuild(ctx, err.Error(), m.open); err == nil {
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
	snap, err := snapshot(ctx, m.t)
	if err != nil {
		return 0, err
	}
	var batch []event.Event
	size, at := 0, last
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		if err := m.write(ctx, batch, at); err != nil {
			return err
		}
		at = batch[len(batch)-1].ID
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
	if err != nil {
		return n, err
	}
	if err = flush(); err != nil {
		return n, err
	}
	err = m.finish(ctx, &snap)
	return n, err
}

// write copies a batch into a mirror that has all events up to after, and returns
// errMoved for one that has more by now.
func (m *Mirror) write(ctx context.Context, batch []event.Event, after int64) error {
	return m.transact(ctx, func() error {
		moved, err := m.conn.ExecContext(ctx, `UPDATE mirror_state SET last_event_id = ?, status = 'syncing' WHERE last_event_id = ? AND thread = ?`,
			batch[len(batch)-1].ID, after, m.dir)
		if err != nil {
			return err
		}
		if n, err := moved.RowsAffected(); err != nil || n != 1 {
			return errors.Join(errMoved, err)
		}
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
		return nil
	})
}

// finish replaces the small tables and says that the mirror has caught up.
func (m *Mirror) finish(ctx context.Context, snap *store.Snapshot) error {
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
