package compat

import "thread/internal/historymirror"

// sqliteTypes are the types of the columns of a history mirror.
var sqliteTypes = map[historymirror.Kind]string{historymirror.Text: "TEXT", historymirror.Time: "TEXT", historymirror.JSON: "TEXT", historymirror.Number: "INTEGER"}

// The state of a history mirror; see package historymirror.
const (
	historyStateSQL = `CREATE TABLE mirror_state (
  workspace_id   TEXT PRIMARY KEY,
  last_event_id  INTEGER NOT NULL,
  last_synced_at TEXT NOT NULL,
  status         TEXT NOT NULL,
  error_message  TEXT
)`
	historyOfSQL = `CREATE TABLE thread_mirror (
  thread        TEXT NOT NULL,
  workspace_id  TEXT NOT NULL,
  workspaces    TEXT NOT NULL,
  last_event_id INTEGER NOT NULL,
  witness       TEXT NOT NULL,
  states        INTEGER NOT NULL
)`
)

// historySQL is the schema.
func historySQL() []string {
	return append(historymirror.SQL(historymirror.Tables, sqliteTypes), historyStateSQL, historyOfSQL)
}
