//go:build (linux && (386 || amd64 || arm || arm64 || loong64 || ppc64le || riscv64 || s390x)) || (darwin && (amd64 || arm64)) || (freebsd && (amd64 || arm64)) || (netbsd && amd64) || (openbsd && (amd64 || arm64)) || (windows && (386 || amd64 || arm64))

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
		return nil, err
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

// Pending returns the first rows that are pending, in the order in which they were
// inserted, at most limit.
func (t *Table) Pending(ctx context.Context, limit int) ([]apptable.Row, error) {
	var names []string
	for _, column := range t.columns {
		names = append(names, quoteName(column))
	}
	rows, err := t.conn.QueryContext(ctx, "SELECT rowid, "+strings.Join(names, ", ")+" FROM "+t.name+" WHERE status = 'pending' ORDER BY rowid LIMIT ?", limit)
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
		list = append(list, row)
	}
	return list, t.fail(rows.Err())
}

// Mark gives rows that are still pending their new status, in one durable
// transaction. A row that the application has changed or replaced meanwhile is left
// alone: its event_id must be the same. Mark returns how many rows it changed.
func (t *Table) Mark(ctx context.Context, marks []apptable.Mark) (n int64, err error) {
	tx, err := t.conn.BeginTx(ctx, nil)
	if err != nil {
		return 0, t.fail(err)
	}
	for _, m := range marks {
		query, args := "UPDATE "+t.name+" SET status = ?", []any{m.Status}
		if m.Error != "" && t.Has("error") {
			query, args = query+", error = ?", append(args, m.Error)
		}
		query, args = query+" WHERE rowid = ? AND status = 'pending'", append(args, m.Row.Place)
		if t.Has("event_id") {
			query, args = query+" AND event_id IS ?", append(args, m.Row.Values["event_id"])
		}
		result, err := tx.ExecContext(ctx, query, args...)
		var changed int64
		if err == nil {
			changed, err = result.RowsAffected()
		}
		if err != nil {
			return 0, errors.Join(t.fail(err), tx.Rollback())
		}
		n += changed
	}
	return n, t.fail(tx.Commit())
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
