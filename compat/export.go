package compat

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"database/sql"

	"thread/engine"
	"thread/event"
	"thread/internal/durable"
	"thread/internal/store"
	"thread/internal/target"
	"thread/jsonlog"
	"thread/lock"
)

// Export writes a thread as a SQLite thread directory, which the TypeScript tool
// continues working in. What is written is the thread at one moment; others may
// push meanwhile. to must not exist, or be an empty directory; the database
// appears in it complete or not at all. events.jsonl gets the newest 10,000
// events. progress may be nil.
//
// Export returns ErrNotEmpty, ErrNoSQLite, engine.ErrNotDir, target.ErrInThread and
// the errors of reading.
func Export(ctx context.Context, t *engine.Thread, to string, progress Progress) (events int64, err error) {
	if !Available {
		return 0, ErrNoSQLite
	}
	if to, err = filepath.Abs(to); err != nil {
		return 0, err
	}
	if err := cmp.Or(checkEmpty(to), target.Outside(to)); err != nil {
		return 0, err
	}
	snap, err := snapshot(ctx, t)
	if err != nil {
		return 0, err
	}
	_, statErr := os.Stat(to)
	if err := durable.MkdirAll(to, 0o700); err != nil {
		return 0, err
	}
	made := []string{"events.jsonl", databaseName + ".new", "run", "logs"}
	remove := func(names []string) {
		for _, name := range names {
			for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
				os.Remove(filepath.Join(to, name) + suffix)
			}
		}
	}
	for _, name := range made[2:] {
		if err := os.Mkdir(filepath.Join(to, name), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return 0, err
		}
	}
	alone := filepath.Join(to, "run", ".init")
	held, err := lock.Try(alone, lock.Exclusive)
	if errors.Is(err, lock.ErrHeld) {
		return 0, fmt.Errorf("%w: another import or export writes to %s", engine.ErrBusy, to)
	}
	if err != nil {
		return 0, err
	}
	if err := checkEmpty(to); err != nil { // another export may have ended meanwhile
		return 0, errors.Join(err, held.Close())
	}
	defer func() {
		os.Remove(alone) // it is not a part of a SQLite thread directory
		held.Close()
		if err == nil {
			return
		}
		remove(made)
		if errors.Is(statErr, os.ErrNotExist) {
			os.Remove(to)
		}
	}()
	remove(made[:2]) // what an interrupted export left
	tmp := filepath.Join(to, databaseName+".new")
	x := exporter{t: t, snap: &snap, progress: progress}
	if err := x.write(ctx, tmp); err != nil {
		return 0, diskError(to, err)
	}
	if err := x.writeLines(ctx, to); err != nil {
		return 0, err
	}
	return x.events, publish(tmp, filepath.Join(to, databaseName))
}

// publish gives a complete file its name, durably, unless there is one of that name.
func publish(tmp, path string) error {
	f, err := os.OpenFile(tmp, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	renamed, err := durable.Rename(tmp, path, target.Rename)
	if renamed && err != nil {
		err = fmt.Errorf("%w: %w", engine.ErrUnknownOutcome, err)
	}
	return err
}

type exporter struct {
	t        *engine.Thread
	snap     *store.Snapshot
	progress Progress
	events   int64
	newest   [jsonlog.MaxLines]int64 // the ids written last, a ring
}

// write builds the database. It is not visible before it is complete, so SQLite
// need not be able to roll anything back; indexes are built after the rows.
func (x *exporter) write(ctx context.Context, path string) error {
	kept, extras, err := splitExtras(x.snap)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	db, conn, err := connect(ctx, path, "mode=rw&_pragma=journal_mode(OFF)&_pragma=synchronous(OFF)&_pragma=locking_mode(EXCLUSIVE)&_pragma=cache_size(-8192)")
	if err != nil {
		return err
	}
	defer db.Close()
	defer conn.Close()
	exec := func(query string, args ...any) error {
		_, err := conn.ExecContext(ctx, query, args...)
		return err
	}
	tables, rest := kept.schema, []object(nil)
	tables = slices.DeleteFunc(slices.Clone(tables), func(o object) bool {
		if o.kind != "table" {
			rest = append(rest, o)
		}
		return o.kind != "table"
	})
	for _, o := range tables {
		if err := exec(o.sql); err != nil {
			return fmt.Errorf("%s %s: %w", o.kind, o.name, err)
		}
	}
	if err := exec("BEGIN"); err != nil {
		return err
	}
	if err := x.writeEvents(ctx, conn); err != nil {
		return err
	}
	if err := writeConsumers(exec, x.snap, kept.rowids); err != nil {
		return err
	}
	if err := setCounter(ctx, conn, x.snap.LastID); err != nil {
		return err
	}
	for _, o := range rest {
		if err := exec(o.sql); err != nil {
			return fmt.Errorf("%s %s: %w", o.kind, o.name, err)
		}
	}
	if err := writeExtras(exec, extras); err != nil {
		return err
	}
	for _, name := range pragmas {
		if n := kept.pragma[name]; n != 0 {
			if err := exec(fmt.Sprintf("PRAGMA %s=%d", name, n)); err != nil {
				return err
			}
		}
	}
	// The mode is part of the file; closing it removes the WAL again.
	for _, query := range []string{"COMMIT", "PRAGMA locking_mode=NORMAL", "PRAGMA journal_mode=WAL"} {
		if err := exec(query); err != nil {
			return err
		}
	}
	return errors.Join(conn.Close(), db.Close())
}

// insertRows is how many events one statement inserts.
const insertRows = 32

func insertEvents(rows int) string {
	return `INSERT INTO events (id, created_at, source, type, subtype, content) VALUES ` +
		strings.TrimSuffix(strings.Repeat("(?,?,?,?,?,?),", rows), ",")
}

func (x *exporter) writeEvents(ctx context.Context, conn *sql.Conn) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	batches, read := x.read(ctx)
	full, err := conn.PrepareContext(ctx, insertEvents(insertRows))
	if err != nil {
		return err
	}
	defer full.Close()
	args := make([]any, 0, 6*insertRows)
	for batch := range batches {
		for i := range batch {
			args = appendArgs(args, &batch[i])
			if len(args) == cap(args) {
				if _, err := full.ExecContext(ctx, args...); err != nil {
					return err
				}
				args = args[:0]
			}
			x.newest[x.events%jsonlog.MaxLines] = batch[i].ID
			x.events++
		}
		if x.progress != nil {
			x.progress(x.events, x.snap.Stored)
		}
	}
	if err := <-read; err != nil {
		return err
	}
	if len(args) > 0 {
		_, err = conn.ExecContext(ctx, insertEvents(len(args)/6), args...)
	}
	return err
}

func appendArgs(args []any, e *event.Event) []any {
	var subtype any
	if e.Subtype != nil {
		subtype = *e.Subtype
	}
	return append(args, e.ID, e.CreatedAt, e.Source, e.Type, subtype, e.Content)
}

// read passes on the events of the snapshot in a separate goroutine, which ends
// with ctx.
func (x *exporter) read(ctx context.Context) (<-chan []event.Event, <-chan error) {
	batches, done := make(chan []event.Event, 2), make(chan error, 1)
	go func() {
		defer close(batches)
		done <- readSlices(ctx, x.t, 0, x.snap.Head, func(batch []event.Event) error { return send(ctx, batches, batch) })
	}()
	return batches, done
}

// writeConsumers inserts subscriptions and progress with the rowids that they
// came with, or that say their order.
func writeConsumers(exec func(string, ...any) error, s *store.Snapshot, rowids map[string]int64) error {
	for i := range s.Subscriptions {
		sub := &s.Subscriptions[i]
		var filter any
		if sub.Filter != nil {
			filter = *sub.Filter
		}
		err := exec(`INSERT INTO subscriptions (rowid, consumer_id, handler_cmd, filter) VALUES (?,?,?,?)`, int64(sub.Ordinal), sub.Consumer, sub.Handler, filter)
		if err != nil {
			return err
		}
	}
	var later []store.ConsumerProgress // came after the import: SQLite chooses their rowids
	insert := func(rowid any, p *store.ConsumerProgress) error {
		return exec(`INSERT INTO consumer_progress (rowid, consumer_id, last_acked_id, updated_at) VALUES (?,?,?,?)`, rowid, p.Consumer, p.LastAcked, p.UpdatedAt)
	}
	for i := range s.Progress {
		p := &s.Progress[i]
		rowid, ok := rowids[p.Consumer]
		if !ok {
			later = append(later, *p)
			continue
		}
		if err := insert(rowid, p); err != nil {
			return err
		}
	}
	for i := range later {
		if err := insert(nil, &later[i]); err != nil {
			return err
		}
	}
	return nil
}

// setCounter sets the AUTOINCREMENT counter, which has no row before the first
// event.
func setCounter(ctx context.Context, q querier, lastID int64) error {
	if lastID == 0 {
		return nil
	}
	r, err := q.ExecContext(ctx, `UPDATE sqlite_sequence SET seq = ? WHERE name = 'events'`, lastID)
	if err != nil {
		return err
	}
	if n, err := r.RowsAffected(); err != nil || n > 0 {
		return err
	}
	_, err = q.ExecContext(ctx, `INSERT INTO sqlite_sequence (name, seq) VALUES ('events', ?)`, lastID)
	return err
}

func writeExtras(exec func(string, ...any) error, rows []extraRow) error {
	if len(rows) == 0 {
		return nil
	}
	if err := exec(extraSQL); err != nil {
		return err
	}
	for _, row := range rows {
		if err := exec(`INSERT INTO thread_extra (bucket, key, value) VALUES (?,?,?)`, row.bucket, row.key, row.value); err != nil {
			return err
		}
	}
	return nil
}

// writeLines writes events.jsonl from the thread, not from the new database: the
// newest events that write has written.
func (x *exporter) writeLines(ctx context.Context, dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, "events.jsonl"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	var after int64
	if x.events > jsonlog.MaxLines {
		after = x.newest[x.events%jsonlog.MaxLines] - 1
	}
	w := newLineWriter(f, JSONL)
	err = readSlices(ctx, x.t, after, x.snap.Head, w.write)
	return errors.Join(err, w.flush(), f.Sync(), f.Close())
}

// snapshot returns all of a thread but its events, after what has fallen due was
// released.
func snapshot(ctx context.Context, t *engine.Thread) (store.Snapshot, error) {
	if err := t.View(ctx, func(*engine.Tx) error { return nil }); err != nil {
		return store.Snapshot{}, err
	}
	return store.TakeSnapshot(ctx, t.Store())
}
