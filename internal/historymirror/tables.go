package historymirror

import (
	"bytes"
	"encoding/json"
	"strings"

	"thread/history"
)

// Table is a table of a history.db, as OpenHarness has it.
type Table struct {
	Entity  history.Entity
	Name    string
	columns []string // see Columns
	indexes []string
}

// Kind is what a column holds.
type Kind byte

// The kinds of columns.
const (
	Text   Kind = 't'
	Time   Kind = '@' // as text
	JSON   Kind = '!' // as text
	Number Kind = '#' // a whole one
)

// Column is a column of a table. The first one of each table is its id.
type Column struct {
	Name string
	Kind Kind
}

// Tables are those that are mirrored: the columns of OpenHarness in their order, and
// behind them those that its design names also. A column is followed by ! if it holds
// JSON and by # if it holds a whole number.
var Tables = []Table{
	{history.Session, "sessions",
		[]string{"id", "workspace_id", "subject_ref", "agent_name", "active_agent_name", "title", "status", "last_run_at", "created_at", "updated_at", "auth_context!"},
		[]string{"workspace_id, created_at DESC", "subject_ref, created_at DESC", "status, updated_at DESC"}},
	{history.Message, "messages",
		[]string{"id", "session_id", "run_id", "role", "content!", "metadata!", "created_at"},
		[]string{"session_id, created_at", "run_id, created_at"}},
	{history.RunEntity, "runs",
		[]string{"id", "workspace_id", "session_id", "initiator_ref", "trigger_type", "trigger_ref", "agent_name", "effective_agent_name", "switch_count#", "status",
			"cancel_requested_at", "started_at", "ended_at", "error_code", "error_message", "metadata!", "created_at", "parent_run_id", "heartbeat_at"},
		[]string{"session_id, created_at DESC", "workspace_id, created_at DESC", "initiator_ref, created_at DESC", "status, heartbeat_at"}},
	{history.RunStep, "run_steps",
		[]string{"id", "run_id", "seq#", "step_type", "name", "agent_name", "status", "input!", "output!", "started_at", "ended_at"},
		[]string{"run_id, seq"}},
	{history.ToolCall, "tool_calls",
		[]string{"id", "run_id", "step_id", "source_type", "tool_name", "request!", "response!", "status", "duration_ms#", "started_at", "ended_at"},
		[]string{"run_id, started_at", "source_type, tool_name, started_at DESC"}},
	{history.HookRun, "hook_runs",
		[]string{"id", "run_id", "hook_name", "event_name", "capabilities!", "patch!", "status", "started_at", "ended_at", "error_message"},
		[]string{"run_id, started_at"}},
	{history.ActionRun, "action_runs",
		[]string{"id", "run_id", "action_name", "caller_type", "input!", "output!", "status", "started_at", "ended_at"},
		[]string{"run_id, started_at"}},
	{history.Artifact, "artifacts",
		[]string{"id", "run_id", "type", "path", "content_ref", "metadata!", "created_at"},
		[]string{"run_id, created_at DESC"}},
}

// Workspaces is the table of the workspaces themselves, which the design has where rows of
// many are in one database. OpenHarness does not mirror it.
var Workspaces = Table{history.Workspace, "workspaces",
	[]string{"id", "external_ref", "name", "root_path", "execution_policy", "status", "metadata!", "created_at", "updated_at", "kind"},
	[]string{"root_path", "external_ref", "status, updated_at DESC"}}

// HistoryEvents is the table of the history events themselves, which the design has in
// PostgreSQL. Session events are those with a session.
var HistoryEvents = Table{"history_event", "history_events",
	[]string{"id#", "workspace_id", "session_id", "entity_type", "entity_id", "op", "payload!", "occurred_at"},
	[]string{"workspace_id, id", "workspace_id, occurred_at DESC", "session_id, id", "entity_type, entity_id, id"}}

// SessionEventsSQL makes the view of the events of sessions.
const SessionEventsSQL = "CREATE VIEW session_events AS SELECT * FROM history_events WHERE session_id IS NOT NULL"

// eventSQL stores a history event whose workspace is known. The workspace of a deletion is the one of
// the row's earlier event: without one it is left out, as it may be of a chat.
const eventSQL = `INSERT INTO history_events (id, workspace_id, session_id, entity_type, entity_id, op, payload, occurred_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING`

const deletionSQL = `INSERT INTO history_events (id, workspace_id, session_id, entity_type, entity_id, op, payload, occurred_at)
SELECT CAST(? AS bigint), workspace_id, session_id, entity_type, entity_id, CAST(? AS text), NULL, CAST(? AS timestamptz) FROM history_events WHERE entity_type = ? AND entity_id = ? ORDER BY id DESC LIMIT 1
ON CONFLICT DO NOTHING`

// TableOf returns the one of the tables that has the rows of an entity, nil for none.
func TableOf(tables []Table, e history.Entity) *Table {
	for i := range tables {
		if tables[i].Entity == e {
			return &tables[i]
		}
	}
	return nil
}

// Columns returns the columns in their order.
func (t *Table) Columns() []Column {
	list := make([]Column, len(t.columns))
	for i, c := range t.columns {
		switch kind := Kind(c[len(c)-1]); {
		case kind == JSON || kind == Number:
			list[i] = Column{c[:len(c)-1], kind}
		case strings.HasSuffix(c, "_at"):
			list[i] = Column{c, Time}
		default:
			list[i] = Column{c, Text}
		}
	}
	return list
}

// SQL makes the tables, their indexes, and views under the names that the design has
// for the entities. types are the types of the columns.
func SQL(tables []Table, types map[Kind]string) (statements []string) {
	for i := range tables {
		t := &tables[i]
		columns := t.Columns()
		defined := make([]string, len(columns))
		for j, c := range columns {
			defined[j] = c.Name + " " + types[c.Kind]
		}
		defined[0] += " PRIMARY KEY"
		statements = append(statements, "CREATE TABLE "+t.Name+" (\n  "+strings.Join(defined, ",\n  ")+"\n)")
		for _, of := range t.indexes {
			name := t.Name + "_" + strings.NewReplacer(", ", "_", " DESC", "").Replace(of)
			statements = append(statements, "CREATE INDEX "+name+" ON "+t.Name+" ("+of+")")
		}
		statements = append(statements, "CREATE VIEW "+string(t.Entity)+" AS SELECT * FROM "+t.Name)
	}
	return statements
}

// upsertSQL puts a row in place of the one with its id.
func (t *Table) upsertSQL() string {
	var names, set []string
	for i, c := range t.Columns() {
		if names = append(names, c.Name); i > 0 {
			set = append(set, c.Name+" = excluded."+c.Name)
		}
	}
	return "INSERT INTO " + t.Name + " (" + strings.Join(names, ", ") + ") VALUES (?" + strings.Repeat(", ?", len(names)-1) + ")\n" +
		"ON CONFLICT (id) DO UPDATE SET " + strings.Join(set, ", ")
}

// Values returns what stands in the columns for a row that belongs to that workspace:
// nil, a string or an int64.
func (t *Table) Values(row json.RawMessage, workspace string) ([]any, error) {
	var in map[string]json.RawMessage
	if err := json.Unmarshal(row, &in); err != nil {
		return nil, err
	}
	values := make([]any, len(t.columns))
	for i, c := range t.Columns() {
		v := in[c.Name]
		switch {
		case c.Name == "workspace_id":
			values[i] = workspace
		case v == nil || bytes.Equal(v, []byte("null")):
		case c.Kind == JSON:
			values[i] = string(v)
		case c.Kind == Number:
			var n int64
			if err := json.Unmarshal(v, &n); err != nil {
				return nil, err
			}
			values[i] = n
		default:
			var s string
			if err := json.Unmarshal(v, &s); err != nil {
				return nil, err
			}
			values[i] = s
		}
	}
	return values, nil
}
