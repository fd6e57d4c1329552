//go:build linux

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"thread/engine"
	"thread/history"
)

// historySchema is the one of the document that history stands in for, with its
// indexes, as SQLite has it.
const historySchema = `
CREATE TABLE session (id TEXT PRIMARY KEY, workspace_id TEXT, subject_ref TEXT, agent_name TEXT, active_agent_name TEXT, title TEXT, status TEXT,
  last_run_at TEXT, auth_context TEXT, created_at TEXT, updated_at TEXT) WITHOUT ROWID;
CREATE INDEX s1 ON session(workspace_id, created_at DESC);
CREATE INDEX s2 ON session(subject_ref, created_at DESC);
CREATE INDEX s3 ON session(status, updated_at DESC);
CREATE TABLE message (id TEXT PRIMARY KEY, session_id TEXT, run_id TEXT, role TEXT, content TEXT, metadata TEXT, created_at TEXT) WITHOUT ROWID;
CREATE INDEX m1 ON message(session_id, created_at);
CREATE INDEX m2 ON message(run_id, created_at);
CREATE TABLE run (id TEXT PRIMARY KEY, workspace_id TEXT, session_id TEXT, parent_run_id TEXT, trigger_type TEXT, trigger_ref TEXT, initiator_ref TEXT,
  agent_name TEXT, effective_agent_name TEXT, switch_count INT, status TEXT, cancel_requested_at TEXT, started_at TEXT, ended_at TEXT, heartbeat_at TEXT,
  error_code TEXT, error_message TEXT, metadata TEXT, created_at TEXT) WITHOUT ROWID;
CREATE INDEX r1 ON run(session_id, created_at DESC);
CREATE INDEX r2 ON run(workspace_id, created_at DESC);
CREATE INDEX r3 ON run(initiator_ref, created_at DESC);
CREATE INDEX r4 ON run(status, heartbeat_at);
CREATE TABLE run_step (id TEXT PRIMARY KEY, run_id TEXT, seq INT, step_type TEXT, name TEXT, agent_name TEXT, status TEXT, input TEXT, output TEXT,
  started_at TEXT, ended_at TEXT) WITHOUT ROWID;
CREATE UNIQUE INDEX p1 ON run_step(run_id, seq);
CREATE TABLE tool_call (id TEXT PRIMARY KEY, run_id TEXT, step_id TEXT, source_type TEXT, tool_name TEXT, request TEXT, response TEXT, status TEXT,
  duration_ms INT, started_at TEXT, ended_at TEXT) WITHOUT ROWID;
CREATE INDEX t1 ON tool_call(run_id, started_at);
CREATE INDEX t2 ON tool_call(source_type, tool_name, started_at DESC);
CREATE TABLE history_event (id INTEGER PRIMARY KEY AUTOINCREMENT, workspace_id TEXT, entity_type TEXT, entity_id TEXT, op TEXT, payload TEXT, occurred_at TEXT);
CREATE INDEX h1 ON history_event(workspace_id, id);
CREATE INDEX h2 ON history_event(workspace_id, occurred_at DESC);`

// The columns of each table, in their order.
var historyColumns = map[history.Entity]string{
	history.Session:   "id, workspace_id, subject_ref, agent_name, active_agent_name, title, status, last_run_at, auth_context, created_at, updated_at",
	history.Message:   "id, session_id, run_id, role, content, metadata, created_at",
	history.RunEntity: "id, workspace_id, session_id, parent_run_id, trigger_type, trigger_ref, initiator_ref, agent_name, effective_agent_name, switch_count, status, cancel_requested_at, started_at, ended_at, heartbeat_at, error_code, error_message, metadata, created_at",
	history.RunStep:   "id, run_id, seq, step_type, name, agent_name, status, input, output, started_at, ended_at",
	history.ToolCall:  "id, run_id, step_id, source_type, tool_name, request, response, status, duration_ms, started_at, ended_at",
}

// values returns the columns of a row for SQLite.
func values(r history.Row) []any {
	at := func(t time.Time) any {
		if t.IsZero() {
			return nil
		}
		return t.UTC().Format("2006-01-02T15:04:05.000Z")
	}
	text := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	switch r := r.(type) {
	case *history.SessionRow:
		return []any{r.ID, "w", text(r.SubjectRef), text(r.AgentName), text(r.ActiveAgentName), text(r.Title), r.Status, at(r.LastRunAt), text(string(r.AuthContext)), at(r.CreatedAt), at(r.UpdatedAt)}
	case *history.MessageRow:
		return []any{r.ID, r.SessionID, text(r.RunID), r.Role, string(r.Content), text(string(r.Metadata)), at(r.CreatedAt)}
	case *history.RunRow:
		return []any{r.ID, "w", text(r.SessionID), text(r.ParentRunID), r.TriggerType, text(r.TriggerRef), text(r.InitiatorRef), text(r.AgentName), text(r.EffectiveAgentName), r.SwitchCount,
			r.Status, at(r.CancelRequestedAt), at(r.StartedAt), at(r.EndedAt), at(r.HeartbeatAt), text(r.ErrorCode), text(r.ErrorMessage), text(string(r.Metadata)), at(r.CreatedAt)}
	case *history.StepRow:
		return []any{r.ID, r.RunID, r.Seq, r.StepType, text(r.Name), text(r.AgentName), r.Status, text(string(r.Input)), text(string(r.Output)), at(r.StartedAt), at(r.EndedAt)}
	case *history.ToolCallRow:
		return []any{r.ID, r.RunID, text(r.StepID), r.SourceType, r.ToolName, text(string(r.Request)), text(string(r.Response)), r.Status, r.DurationMS, at(r.StartedAt), at(r.EndedAt)}
	}
	return nil
}

// prepareTheirs prepares the inserts, each by the name of its table, before there is
// a transaction: the one connection is then in use.
func prepareTheirs(db *sql.DB) (map[history.Entity]*sql.Stmt, error) {
	stmts := map[history.Entity]*sql.Stmt{}
	for e, columns := range historyColumns {
		marks := strings.TrimSuffix(strings.Repeat("?, ", 1+strings.Count(columns, ",")), ", ")
		stmt, err := db.Prepare("INSERT OR REPLACE INTO " + string(e) + " (" + columns + ") VALUES (" + marks + ")")
		if err != nil {
			return nil, err
		}
		stmts[e] = stmt
	}
	stmt, err := db.Prepare("INSERT INTO history_event (workspace_id, entity_type, entity_id, op, payload, occurred_at) VALUES (?, ?, ?, 'upsert', ?, ?)")
	stmts[""] = stmt
	return stmts, err
}

// storeTheirs writes rows and their history events in one transaction.
func storeTheirs(db *sql.DB, stmts map[history.Entity]*sql.Stmt, rows []history.Row) error {
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, r := range rows {
		e := r.Entity()
		if _, err := tx.Stmt(stmts[e]).Exec(values(r)...); err != nil {
			return err
		}
		payload, err := history.AppendJSON(nil, r)
		if err != nil {
			return err
		}
		if _, err := tx.Stmt(stmts[""]).Exec("w", string(e), history.IDOf(r), string(payload), time.Now().UTC().Format("2006-01-02T15:04:05.000Z")); err != nil {
			return err
		}
	}
	return tx.Commit()
}

func storeOurs(h *history.History, rows []history.Row) error {
	return h.Update(context.Background(), func(tx *history.Tx) error {
		for _, r := range rows {
			if err := tx.Put(r); err != nil {
				return err
			}
		}
		return nil
	})
}

// sessionRows are the rows of one session: 100 of them.
func sessionRows(n int, at time.Time) (rows []history.Row) {
	id := fmt.Sprintf("session_%08d", n)
	subject := fmt.Sprintf("user:%d", n%997)
	rows = append(rows, &history.SessionRow{ID: id, SubjectRef: subject, AgentName: "coder", ActiveAgentName: "coder", Status: "active", Title: "a session", CreatedAt: at, UpdatedAt: at})
	text := []byte(`[{"type":"text","text":"` + strings.Repeat("some words of a message ", 8) + `"}]`)
	request, response := []byte(`{"request":{"messages":`+string(text)+`}}`), []byte(`{"response":{"content":`+string(text)+`}}`)
	for r := range 11 {
		at = at.Add(time.Second)
		run := fmt.Sprintf("run_%08d_%02d", n, r)
		status := []string{"completed", "completed", "completed", "failed"}[(n+r)%4]
		rows = append(rows, &history.RunRow{ID: run, SessionID: id, TriggerType: "message", TriggerRef: "m", InitiatorRef: subject, AgentName: "coder",
			EffectiveAgentName: "coder", Status: status, StartedAt: at, EndedAt: at, HeartbeatAt: at, CreatedAt: at, Attempt: 1})
		for i := range 4 {
			rows = append(rows, &history.MessageRow{ID: fmt.Sprintf("message_%08d_%02d_%d", n, r, i), SessionID: id, RunID: run, Role: "user", Content: text, CreatedAt: at})
		}
		for i := range 2 {
			step := fmt.Sprintf("step_%08d_%02d_%d", n, r, i)
			rows = append(rows,
				&history.StepRow{ID: step, RunID: run, Seq: int64(i + 1), StepType: "model_call", AgentName: "coder", Status: "completed", Input: request, Output: response, StartedAt: at, EndedAt: at},
				&history.ToolCallRow{ID: "tool_" + step, RunID: run, StepID: step, SourceType: "native", ToolName: fmt.Sprintf("tool%d", n%50), Request: text, Response: text, Status: "completed", DurationMS: 12, StartedAt: at, EndedAt: at})
		}
	}
	return rows[:100]
}

// records compares recorded runs with the tables and indexes of their document in SQLite.
func (l *lab) records() error {
	ctx := context.Background()
	if _, err := engine.Init(l.path("recorded")); err != nil {
		return err
	}
	h, err := l.openRecorded()
	if err != nil {
		return err
	}
	db, err := openSQLite("sqlite3", l.path("recorded.db"))
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.Exec(historySchema); err != nil {
		return err
	}
	stmts, err := prepareTheirs(db)
	if err != nil {
		return err
	}
	sessions := l.events / 100
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var ours, theirs time.Duration
	for n := 0; n < sessions; {
		var rows []history.Row
		for ; n < sessions && len(rows) < 5000; n++ {
			rows = append(rows, sessionRows(n, start.Add(time.Duration(n)*time.Minute))...)
		}
		began := time.Now()
		if err := storeOurs(h, rows); err != nil {
			return err
		}
		ours += time.Since(began)
		began = time.Now()
		if err := storeTheirs(db, stmts, rows); err != nil {
			return err
		}
		theirs += time.Since(began)
	}
	l.ratio(fmt.Sprintf("%s rows, 5,000 in a transaction", thousands(l.events)), ours, theirs, "(C)", 0)
	if err := l.recordWrites(h, db, stmts, sessions, start); err != nil {
		return err
	}
	return l.recordQueries(ctx, h, db, sessions)
}

func (l *lab) openRecorded() (*history.History, error) {
	return history.Open(context.Background(), l.path("recorded"), history.WithEngine(engine.WithLockWait(time.Minute)))
}

// recordWrites compares transactions as an agent makes them.
func (l *lab) recordWrites(h *history.History, db *sql.DB, stmts map[history.Entity]*sql.Stmt, sessions int, start time.Time) error {
	next := 0
	// What is written is made beforehand: to make it is not a part of either side.
	samples := make([][]history.Row, 64)
	for i := range samples {
		samples[i] = sessionRows(rand.N(sessions), start)
	}
	for _, w := range []struct {
		what string
		rows func(all []history.Row) []history.Row
	}{
		{"one message", func(all []history.Row) []history.Row {
			m := *all[2].(*history.MessageRow)
			m.ID = fmt.Sprintf("new_%d", next)
			return []history.Row{&m}
		}},
		{"the start of a run, with its session", func(all []history.Row) []history.Row {
			s, r := *all[0].(*history.SessionRow), *all[1].(*history.RunRow)
			r.ID, r.Status, s.LastRunAt = fmt.Sprintf("run_new_%d", next), "running", time.Now()
			return []history.Row{&r, &s}
		}},
		{"a step, a call of a tool and two messages", func(all []history.Row) []history.Row {
			s, t, a, b := *all[6].(*history.StepRow), *all[7].(*history.ToolCallRow), *all[2].(*history.MessageRow), *all[3].(*history.MessageRow)
			s.ID, s.Seq, t.ID, a.ID, b.ID = fmt.Sprintf("s_%d", next), int64(1000+next), fmt.Sprintf("t_%d", next), fmt.Sprintf("a_%d", next), fmt.Sprintf("b_%d", next)
			t.StepID = s.ID
			return []history.Row{&s, &t, &a, &b}
		}},
	} {
		var rows []history.Row
		m, err := alternate(2*l.rounds,
			func() error { next++; rows = w.rows(samples[next%len(samples)]); return storeOurs(h, rows) },
			func() error { return storeTheirs(db, stmts, rows) })
		if err != nil {
			return err
		}
		l.paired("recording "+w.what, m[0], m[1], "(C, kept open)", 0.5)
		m, err = alternate(l.rounds,
			func() error {
				next++
				rows = w.rows(samples[next%len(samples)])
				h, err := l.openRecorded()
				if err == nil {
					err = errors.Join(storeOurs(h, rows), h.Close())
				}
				return err
			},
			func() error {
				db, err := openSQLite("sqlite3", l.path("recorded.db"))
				if err != nil {
					return err
				}
				stmts, err := prepareTheirs(db)
				if err == nil {
					err = storeTheirs(db, stmts, rows)
				}
				return errors.Join(err, db.Close())
			})
		if err != nil {
			return err
		}
		l.paired("the same, each opened for it", m[0], m[1], "(C)", 0.5)
	}
	return nil
}

// recordQueries compares what the indexes are for.
func (l *lab) recordQueries(ctx context.Context, h *history.History, db *sql.DB, sessions int) error {
	n := 0
	session := func() string { return fmt.Sprintf("session_%08d", n) }
	run := func() string { return fmt.Sprintf("run_%08d_05", n) }
	subject := func() string { return fmt.Sprintf("user:%d", n%997) }
	tool := func() string { return fmt.Sprintf("tool%d", n%50) }
	for _, q := range []struct {
		what  string
		ours  func(h *history.History) (int, error)
		where string
		of    history.Entity
		args  func() []any
	}{
		{"20 newest runs of a subject", func(h *history.History) (int, error) {
			return count(h.Runs(ctx, history.Query{Subject: subject(), Limit: 20}))
		},
			"initiator_ref = ? ORDER BY created_at DESC LIMIT 20", history.RunEntity, func() []any { return []any{subject()} }},
		{"20 newest failed runs", func(h *history.History) (int, error) {
			return count(h.Runs(ctx, history.Query{Status: "failed", Limit: 20}))
		},
			"status = ? ORDER BY heartbeat_at DESC LIMIT 20", history.RunEntity, func() []any { return []any{"failed"} }},
		{"all runs of a session", func(h *history.History) (int, error) { return count(h.Runs(ctx, history.Query{Session: session()})) },
			"session_id = ? ORDER BY created_at DESC", history.RunEntity, func() []any { return []any{session()} }},
		{"all messages of a session", func(h *history.History) (int, error) {
			return count(h.Messages(ctx, history.Query{Session: session()}))
		},
			"session_id = ? ORDER BY created_at", history.Message, func() []any { return []any{session()} }},
		{"20 newest sessions of a subject", func(h *history.History) (int, error) {
			return count(h.Sessions(ctx, history.Query{Subject: subject(), Limit: 20}))
		},
			"subject_ref = ? ORDER BY created_at DESC LIMIT 20", history.Session, func() []any { return []any{subject()} }},
		{"all steps of a run", func(h *history.History) (int, error) { return count(h.Steps(ctx, run())) },
			"run_id = ? ORDER BY seq", history.RunStep, func() []any { return []any{run()} }},
		{"20 newest calls of a tool", func(h *history.History) (int, error) {
			return count(h.ToolCalls(ctx, history.Query{Source: "native", Tool: tool(), Limit: 20}))
		}, "source_type = 'native' AND tool_name = ? ORDER BY started_at DESC LIMIT 20", history.ToolCall, func() []any { return []any{tool()} }},
		{"one run by its id", func(h *history.History) (int, error) { return 1, h.Get(ctx, new(history.RunRow), run()) },
			"id = ?", history.RunEntity, func() []any { return []any{run()} }},
	} {
		stmt, err := db.Prepare("SELECT " + historyColumns[q.of] + " FROM " + string(q.of) + " WHERE " + q.where)
		if err != nil {
			return err
		}
		var found, other int
		m, err := alternate(3*l.rounds,
			func() (err error) { n = rand.N(sessions); found, err = q.ours(h); return err },
			func() (err error) { other, err = countTheirs(stmt, q.args()); return err },
			func() error {
				if found != other || found == 0 {
					return fmt.Errorf("%s: %d rows, and %d in SQLite", q.what, found, other)
				}
				return nil
			})
		if err = errors.Join(err, stmt.Close()); err != nil {
			return err
		}
		l.paired("looking up "+q.what, m[0], m[1], "(C, kept open)", 1)
		m, err = alternate(l.rounds,
			func() error {
				n = rand.N(sessions)
				h, err := l.openRecorded()
				if err == nil {
					found, err = q.ours(h)
					err = errors.Join(err, h.Close())
				}
				return err
			},
			func() error {
				db, err := openSQLite("sqlite3", l.path("recorded.db"))
				if err != nil {
					return err
				}
				stmt, err := db.Prepare("SELECT " + historyColumns[q.of] + " FROM " + string(q.of) + " WHERE " + q.where)
				if err == nil {
					other, err = countTheirs(stmt, q.args())
				}
				return errors.Join(err, db.Close())
			})
		if err != nil {
			return err
		}
		l.paired("the same, each opened for it", m[0], m[1], "(C)", 1)
	}
	return nil
}

func count[T any](seq func(func(T, error) bool)) (n int, err error) {
	for _, err := range seq {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

func countTheirs(stmt *sql.Stmt, args []any) (n int, err error) {
	rows, err := stmt.Query(args...)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return 0, err
	}
	values, to := make([]sql.NullString, len(names)), make([]any, len(names))
	for i := range values {
		to[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(to...); err != nil {
			return n, err
		}
		n++
	}
	return n, rows.Err()
}
