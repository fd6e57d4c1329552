// Package mirrortest has what the tests of mirrors of a history share, whichever
// database they write. It is for tests.
package mirrortest

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"pgregory.net/rapid"

	"thread/engine"
	"thread/history"
	"thread/internal/historymirror"
)

// Must fails the test for an error.
func Must(t rapid.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// NewHistory makes a thread in dir and opens its history.
func NewHistory(t rapid.TB, dir string) *history.History {
	t.Helper()
	if _, err := engine.Init(dir); err != nil {
		t.Fatal(err)
	}
	h, err := history.Open(context.Background(), dir)
	Must(t, err)
	return h
}

// Row is a row of a mirror: what its columns have, of which heartbeat_at is left out.
type Row struct {
	Table  string
	Values []any
}

// Lines returns rows as texts, in an order that is always the same.
func Lines(t rapid.TB, rows []Row) []string {
	t.Helper()
	lines := make([]string, len(rows))
	for i, r := range rows {
		b, err := json.Marshal(r.Values)
		Must(t, err)
		lines[i] = r.Table + " " + string(b)
	}
	slices.Sort(lines)
	return lines
}

// Truth returns the rows of the history that has says belong into a mirror with these
// tables.
func Truth(t rapid.TB, h *history.History, tables []historymirror.Table, has func(workspace string) bool) (rows []Row) {
	t.Helper()
	ctx := context.Background()
	w, err := h.Workspace(ctx)
	Must(t, err)
	add := func(r history.Row, workspace string, err error) {
		t.Helper()
		Must(t, err)
		b, err := history.AppendJSON(nil, r)
		Must(t, err)
		if workspace == "" {
			workspace = w.ID
		}
		table := historymirror.TableOf(tables, r.Entity())
		if table == nil || !has(workspace) {
			return
		}
		values, err := table.Values(b, workspace)
		Must(t, err)
		rows = append(rows, Row{table.Name, values})
	}
	for w, err := range h.Workspaces(ctx, history.WorkspaceQuery{}) {
		add(&w, w.ID, err)
	}
	for s, err := range h.Sessions(ctx, history.Query{}) {
		add(&s, s.WorkspaceID, err)
		for m, err := range h.Messages(ctx, history.Query{Session: s.ID}) {
			add(&m, s.WorkspaceID, err)
		}
	}
	for r, err := range h.Runs(ctx, history.Query{}) {
		r.HeartbeatAt = time.Time{}
		add(&r, r.WorkspaceID, err)
		for x, err := range h.Steps(ctx, r.ID) {
			add(&x, r.WorkspaceID, err)
		}
		for x, err := range h.ToolCalls(ctx, history.Query{Run: r.ID}) {
			add(&x, r.WorkspaceID, err)
		}
		for x, err := range h.HookRuns(ctx, r.ID) {
			add(&x, r.WorkspaceID, err)
		}
		for x, err := range h.ActionRuns(ctx, r.ID) {
			add(&x, r.WorkspaceID, err)
		}
		for x, err := range h.Artifacts(ctx, r.ID) {
			add(&x, r.WorkspaceID, err)
		}
	}
	return rows
}

// Same fails unless the mirror, got, has the lines of the history, and says where it
// has not.
func Same(t rapid.TB, want, got []string) {
	t.Helper()
	if slices.Equal(want, got) {
		return
	}
	for _, l := range want {
		if !slices.Contains(got, l) {
			t.Errorf("is not mirrored: %s", l)
		}
	}
	for _, l := range got {
		if !slices.Contains(want, l) {
			t.Errorf("is only in the mirror: %s", l)
		}
	}
	t.Fatalf("%d rows are mirrored as %d", len(want), len(got))
}

// Fill writes something of every entity: a session with two messages, and a run of it
// with a step and all else that a run has.
func Fill(t rapid.TB, h *history.History, session, workspace string) {
	t.Helper()
	ctx := context.Background()
	_, err := h.StartSession(ctx, history.SessionRow{ID: session, WorkspaceID: workspace, SubjectRef: "user:1", AgentName: "coder", AuthContext: json.RawMessage(`{"scope":"all"}`)})
	Must(t, err)
	r, err := h.StartRun(ctx, history.RunRow{SessionID: session, TriggerType: "message", TriggerRef: "7"})
	Must(t, err)
	for _, content := range []string{`"hello\u0000 world"`, `[{"type":"tool-call","toolCallId":"c","toolName":"shell","input":{"command":"ls  -l"}}]`} {
		_, err = r.Message(ctx, history.MessageRow{Role: "user", Content: json.RawMessage(content)})
		Must(t, err)
	}
	_, err = r.Step(ctx, history.ModelCall{Request: json.RawMessage(`{"model":"m", "messages":[]}`), Response: json.RawMessage(`{"text":"hi"}`)}.Row())
	Must(t, err)
	_, err = r.ToolCall(ctx, history.ToolCallRow{SourceType: "native", ToolName: "shell", DurationMS: 12})
	Must(t, err)
	_, err = r.HookRun(ctx, history.HookRunRow{HookName: "redact", Patch: json.RawMessage(`{"a":1}`)})
	Must(t, err)
	_, err = r.ActionRun(ctx, history.ActionRunRow{ActionName: "deploy"})
	Must(t, err)
	_, err = r.Artifact(ctx, history.ArtifactRow{Type: "file", Path: "a b/ü.md"})
	Must(t, err)
	Must(t, r.Switch(ctx, "reviewer"))
	Must(t, r.End(ctx, history.End{Status: history.Completed}))
}

// expected fails for an error that no write of Writes may end with.
func expected(t rapid.TB, err error) {
	t.Helper()
	for _, of := range []error{nil, history.ErrEnded, history.ErrState, history.ErrNotFound, history.ErrActive, history.ErrExists, history.ErrNoneReady, history.ErrRecovered} {
		if errors.Is(err, of) {
			return
		}
	}
	t.Fatal(err)
}
