package compat

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"thread/internal/apptable"
)

// Table is the outbox table of an application in its own SQLite file. It implements
// apptable.Table.
type Table struct {
	db      *sql.DB
	conn    *sql.Conn
	path    string
	name    string // quoted
	columns []string
	after   *int64 // the last row that Pending returned
}

// OpenTable opens a table in the SQLite file at path, which must have the columns
// named in need. Names of columns are told apart without regard to case, as SQLite
// does, and are given back in lower case.
//
// It returns ErrNotSQLite for another file and apptable.ErrNoTable for a table that is not
// there, has no rowid or lacks a column.
func OpenTable(ctx context.Context, path, name string, need ...string) (*Table, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, err
	}
	if err := checkSource(path); err != nil {
		return nil, err
	}
	db, conn, err := connect(ctx, path, "_txlock=immediate")
	if err != nil {
		return nil, (&Table{path: path}).fail(err)
	}
	t := &Table{db: db, conn: conn, path: path, name: quoteName(name)}
	if err := t.look(ctx, name, need); err != nil {
		return nil, errors.Join(t.fail(err), t.Close())
	}
	return t, nil
}

func quoteName(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// look finds out what columns there are.
func (t *Table) look(ctx context.Context, name string, need []string) error {
	var kind string
	err := t.conn.QueryRowContext(ctx, `SELECT type FROM sqlite_schema WHERE name = ? COLLATE NOCASE AND type IN ('table', 'view')`, name).Scan(&kind)
	if errors.Is(err, sql.ErrNoRows) || err == nil && kind != "table" {
		return fmt.Errorf("%w: %s has no table %q", apptable.ErrNoTable, t.path, name)
	}
	if err != nil {
		return err
	}
	rows, err := t.conn.QueryContext(ctx, `SELECT name FROM pragma_table_info(?)`, name)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var column string
		if err := rows.Scan(&column); err != nil {
			return err
		}
		t.columns = append(t.columns, strings.ToLower(column))
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, column := range need {
		if !slices.Contains(t.columns, column) {
			return fmt.Errorf("%w: the table %q has no column %s", apptable.ErrNoTable, name, column)
		}
	}
	if _, err := t.conn.ExecContext(ctx, "SELECT rowid FROM "+t.name+" LIMIT 0"); err != nil {
		if resultCode(err) == codeBusy {
			return err
		}
		return fmt.Errorf("%w: the table %q has no rowid", apptable.ErrNoTable, name)
	}
	return nil
}

// Has reports whether there is a column of that name.
func (t *Table) Has(column string) bool { return slices.Contains(t.columns, column) }

// Rewind implements apptable.Table.
func (t *Table) Rewind() { t.after = nil }

// Pending implements apptable.Table.
func (t *Table) Pending(ctx context.Context, limit int) ([]apptable.Row, error) {
	var names []string
	for _, column := range t.columns {
		names = append(names, quoteName(column))
	}
	where, args := " WHERE status = 'pending'", []any{limit}
	if t.after != nil {
		where, args = where+" AND rowid > ?", []any{*t.after, limit}
	}
	rows, err := t.conn.QueryContext(ctx, "SELECT rowid, "+strings.Join(names, ", ")+" FROM "+t.name+where+" ORDER BY rowid LIMIT ?", args...)
	if err != nil {
		return nil, t.fail(err)
	}
	defer rows.Close()
	var list []apptable.Row
	for rows.Next() {
		row, id := apptable.Row{Values: map[string]any{}}, int64(0)
		values := make([]any, len(t.columns))
		into := []any{&id}
		for i := range values {
			into = append(into, &values[i])
		}
		if err := rows.Scan(into...); err != nil {
			return nil, t.fail(err)
		}
		for i, column := range t.columns {
			if at, ok := values[i].(time.Time); ok { // of a column that is declared as one
				values[i] = at.UTC().Format(time.RFC3339Nano)
			}
			row.Values[column] = values[i]
		}
		row.Name, row.Place = strconv.FormatInt(id, 10), id
		list, t.after = append(list, row), &id
	}
	return list, t.fail(rows.Err())
}

// Mark implements apptable.Table. A row that the application has changed or replaced
// meanwhile is left alone: its event_id must be the same.
func (t *Table) Mark(ctx context.Context, marks []apptable.Mark, trial bool) ([]error, error) {
	refused := make([]error, len(marks))
	for {
		tx, err := t.conn.BeginTx(ctx, nil)
		if err != nil {
			return nil, t.fail(err)
		}
		undone, err := t.markAll(ctx, tx, marks, refused)
		switch {
		case err != nil:
			return nil, errors.Join(t.fail(err), ended(tx.Rollback()))
		case undone: // by a trigger that rolls back all: once more, without its row
			_ = tx.Rollback()
		case trial:
			return refused, t.fail(tx.Rollback())
		default:
			return refused, t.fail(tx.Commit())
		}
	}
}

// markAll marks the rows that are not refused yet. It reports whether a row has rolled back the
// whole transaction.
func (t *Table) markAll(ctx context.Context, tx *sql.Tx, marks []apptable.Mark, refused []error) (undone bool, err error) {
	for i, m := range marks {
		if refused[i] != nil {
			continue
		}
		if _, err := tx.ExecContext(ctx, "SAVEPOINT mark"); err != nil {
			return false, err
		}
		err := t.mark(ctx, tx, m)
		end := "RELEASE mark"
		if code := resultCode(err); err != nil && code != codeError && code != codeConstraint && !errors.Is(err, apptable.ErrPending) {
			return false, err
		}
		if err != nil {
			refused[i], end = err, "ROLLBACK TO mark; RELEASE mark"
		}
		if _, err := tx.ExecContext(ctx, end); err != nil && refused[i] == nil {
			return false, err
		} else if err != nil {
			return true, nil
		}
	}
	return false, nil
}

func (t *Table) mark(ctx context.Context, tx *sql.Tx, m apptable.Mark) error {
	set, where := " SET status = ?", " WHERE rowid = ? AND status = 'pending'"
	to, at := []any{m.Status}, []any{m.Row.Place}
	if m.Error != "" && t.Has("error") {
		set, to = set+", error = ?", append(to, m.Error)
	}
	if t.Has("event_id") {
		where, at = where+" AND event_id IS ?", append(at, m.Row.Values["event_id"])
	}
	if _, err := tx.ExecContext(ctx, "UPDATE "+t.name+set+where, append(to, at...)...); err != nil {
		return err
	}
	var left int64
	if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM "+t.name+where, at...).Scan(&left); err != nil || left == 0 {
		return err
	}
	return apptable.ErrPending
}

// ended returns nil for a transaction that SQLite has ended itself.
func ended(err error) error {
	if resultCode(err) == codeError {
		return nil
	}
	return err
}

// Close closes the file.
func (t *Table) Close() error { return errors.Join(t.conn.Close(), t.db.Close()) }

// fail gives an error of SQLite a form that can be told apart.
func (t *Table) fail(err error) error {
	switch resultCode(err) {
	case codeBusy:
		return fmt.Errorf("%w: %w", apptable.ErrBusy, err)
	case codeCorrupt, codeNotADB:
		return fmt.Errorf("%s: %w", t.path, err)
	}
	return diskError(t.path, err)
}
