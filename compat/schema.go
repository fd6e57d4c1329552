package compat

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// The schema of the TypeScript tool, in its wording and order.
var schema = []object{
	{"table", "events", "events", `CREATE TABLE events (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  created_at TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  source     TEXT    NOT NULL,
  type       TEXT    NOT NULL,
  subtype    TEXT,
  content    TEXT    NOT NULL
)`},
	{"index", "idx_events_source", "events", `CREATE INDEX idx_events_source ON events(source)`},
	{"index", "idx_events_type", "events", `CREATE INDEX idx_events_type   ON events(type)`},
	{"table", "subscriptions", "subscriptions", `CREATE TABLE subscriptions (
  consumer_id  TEXT NOT NULL,
  handler_cmd  TEXT NOT NULL,
  filter       TEXT,
  PRIMARY KEY (consumer_id)
)`},
	{"table", "consumer_progress", "consumer_progress", `CREATE TABLE consumer_progress (
  consumer_id   TEXT NOT NULL PRIMARY KEY,
  last_acked_id INTEGER NOT NULL DEFAULT 0,
  updated_at    TEXT NOT NULL
)`},
}

const (
	extraTable = "thread_extra"
	extraSQL   = `CREATE TABLE thread_extra (bucket TEXT NOT NULL, key BLOB, value BLOB)`
	stateTable = "mirror_state"
)

// object is a row of sqlite_schema.
type object struct{ kind, name, table, sql string }

// column is what a table must have, in this order: see PRAGMA table_xinfo.
type column struct {
	name, affinity string
	notNull        bool
	key            int
}

var columns = map[string][]column{
	"events": {
		{"id", "INTEGER", false, 1}, {"created_at", "TEXT", true, 0}, {"source", "TEXT", true, 0},
		{"type", "TEXT", true, 0}, {"subtype", "TEXT", false, 0}, {"content", "TEXT", true, 0},
	},
	"subscriptions": {
		{"consumer_id", "TEXT", true, 1}, {"handler_cmd", "TEXT", true, 0}, {"filter", "TEXT", false, 0},
	},
	"consumer_progress": {
		{"consumer_id", "TEXT", true, 1}, {"last_acked_id", "INTEGER", true, 0}, {"updated_at", "TEXT", true, 0},
	},
}

// readSchema reads sqlite_schema in its order, without what SQLite made itself.
func readSchema(ctx context.Context, q querier) (objects []object, err error) {
	rows, err := q.QueryContext(ctx, `SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var o object
		if err := rows.Scan(&o.kind, &o.name, &o.table, &o.sql); err != nil {
			return nil, err
		}
		objects = append(objects, o)
	}
	return objects, rows.Err()
}

// checkSchema returns ErrNotSQLite when a table or a column is missing, reports
// what a thread has no place for, and returns what is to be kept.
func checkSchema(ctx context.Context, q querier, r *Report) (keep []object, extras bool, err error) {
	objects, err := readSchema(ctx, q)
	if err != nil {
		return nil, false, err
	}
	for name := range columns {
		if !slices.ContainsFunc(objects, func(o object) bool { return o.kind == "table" && o.name == name }) {
			return nil, false, fmt.Errorf("%w: no table %s", ErrNotSQLite, name)
		}
	}
	for _, o := range objects {
		_, ours := columns[o.table]
		switch {
		case o.kind == "table" && o.name == extraTable:
			extras = true
		case o.kind == "table" && (o.name == stateTable || strings.HasPrefix(o.name, "sqlite_")):
			// what a mirror knows of itself, the counter, and the statistics of ANALYZE
		case o.kind == "table" && !ours:
			r.fault(o.name, "", "is not part of a thread")
		case o.kind == "table":
			ok, err := checkTable(ctx, q, o, r)
			if err != nil {
				return nil, false, err
			}
			if !ok { // written in the usual wording when it is exported
				o.sql = schema[slices.IndexFunc(schema, func(s object) bool { return s.name == o.name })].sql
			}
			keep = append(keep, o)
		case ours || o.kind == "view":
			keep = append(keep, o)
		default:
			r.fault(o.table, "", "%s %s is not part of a thread", o.kind, o.name)
		}
	}
	return keep, extras, nil
}

func checkTable(ctx context.Context, q querier, o object, r *Report) (ok bool, err error) {
	rows, err := q.QueryContext(ctx, `SELECT name, upper(type), "notnull", pk, hidden FROM pragma_table_xinfo(?)`, o.name)
	if err != nil {
		return false, err
	}
	defer rows.Close()
	before := r.FaultCount
	expected := columns[o.name]
	seen := 0
	for rows.Next() {
		var c column
		var hidden int
		if err := rows.Scan(&c.name, &c.affinity, &c.notNull, &c.key, &hidden); err != nil {
			return false, err
		}
		i := slices.IndexFunc(expected, func(w column) bool { return strings.EqualFold(w.name, c.name) })
		if i < 0 || hidden != 0 {
			r.fault(o.name, "", "column %s is not part of a thread", c.name)
			continue
		}
		w := expected[i]
		seen++
		if w.affinity != c.affinity || w.notNull != c.notNull || w.key != c.key {
			r.fault(o.name, "", "column %s is not declared as in a thread", c.name)
		}
	}
	if err := rows.Err(); err != nil {
		return false, err
	}
	if seen != len(expected) {
		return false, fmt.Errorf("%w: table %s lacks a column", ErrNotSQLite, o.name)
	}
	words := strings.ToUpper(o.sql)
	if strings.Contains(words, "COLLATE") {
		r.fault(o.name, "", "a column declares a collation")
	}
	if o.name == "events" && !strings.Contains(words, "AUTOINCREMENT") {
		r.fault(o.name, "", "id is not AUTOINCREMENT")
	}
	return r.FaultCount == before, nil
}
