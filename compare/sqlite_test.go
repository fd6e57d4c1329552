//go:build linux

package main

import (
	"database/sql"

	_ "github.com/mattn/go-sqlite3" // driver "sqlite3", C
	_ "modernc.org/sqlite"          // driver "sqlite", Go
)

// schema is the schema of the tool that thread takes the place of, with its indexes.
const schema = `
CREATE TABLE IF NOT EXISTS events (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  created_at TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  source     TEXT    NOT NULL,
  type       TEXT    NOT NULL,
  subtype    TEXT,
  content    TEXT    NOT NULL
);
CREATE INDEX IF NOT EXISTS idx_events_source ON events(source);
CREATE INDEX IF NOT EXISTS idx_events_type   ON events(type);`

const insert = `INSERT INTO events (source, type, subtype, content) VALUES (?, ?, ?, ?)`

const columns = `id, created_at, source, type, subtype, content`

// openSQLite opens a database as durable as a thread: WAL, with a sync for every
// commit. Driver is sqlite3 or sqlite.
func openSQLite(driver, path string) (*sql.DB, error) {
	db, err := sql.Open(driver, path)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	for _, s := range []string{"PRAGMA busy_timeout=30000", "PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", schema} {
		if _, err := db.Exec(s); err != nil {
			db.Close()
			return nil, err
		}
	}
	return db, nil
}
