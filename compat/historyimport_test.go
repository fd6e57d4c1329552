//go:build (linux && (386 || amd64 || arm || arm64 || loong64 || ppc64le || riscv64 || s390x)) || (darwin && (amd64 || arm64)) || (freebsd && (amd64 || arm64)) || (netbsd && amd64) || (openbsd && (amd64 || arm64))

package compat

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"thread/history"
)

// sqliteFile makes a SQLite file with those statements.
func sqliteFile(t *testing.T, statements ...string) string {
	t.Helper()
	path := t.TempDir() + "/history.db"
	db, err := sql.Open("sqlite", "file:"+path)
	must(t, err)
	defer db.Close()
	for _, s := range statements {
		mustExec(t, db, s)
	}
	return path
}

// legacy is a history.db with a column for each field, in the wording of OpenHarness.
var legacy = []string{
	`create table sessions (id text primary key, workspace_id text not null, subject_ref text not null, agent_name text, active_agent_name text not null,
  title text, status text not null, last_run_at text, created_at text not null, updated_at text not null)`,
	`create table messages (id text primary key, session_id text not null, run_id text, role text not null, content text not null, tool_name text,
  tool_call_id text, metadata text, created_at text not null)`,
	`create table runs (id text primary key, workspace_id text not null, session_id text, initiator_ref text, trigger_type text not null, trigger_ref text,
  agent_name text, effective_agent_name text not null, switch_count integer, status text not null, cancel_requested_at text, started_at text, ended_at text,
  error_code text, error_message text, metadata text, created_at text not null)`,
	`create table mirror_state (workspace_id text primary key, last_event_id integer not null, last_synced_at text not null, status text not null, error_message text)`,
	`insert into sessions values ('s', 'ws_old', 'dev:test', 'assistant', 'planner', 'old', 'active', null, '2026-01-01T00:00:00.000Z', '2026-01-01T00:00:05.000Z')`,
	`insert into runs values ('r', 'ws_old', 's', 'dev:test', 'user_message', null, 'assistant', 'assistant', null, 'completed', null,
  '2026-01-01T00:00:01.000Z', '2026-01-01T00:00:02.000Z', null, null, '{"source": "old"}', '2026-01-01 00:00:01')`,
	`insert into messages values ('m1', 's', 'r', 'user', '"packed text"', null, null, null, '2026-01-01T00:00:01.000Z')`,
	`insert into messages values ('m2', 's', 'r', 'assistant', 'plain text, and a "quote"', null, null, null, '2026-01-01T00:00:02.000Z')`,
	`insert into messages values ('m3', 's', 'r', 'assistant', '[{"type":"text", "text":"parts"}]', null, null, null, '2026-01-01T00:00:03.000Z')`,
	`insert into messages values ('m4', 's', 'r', 'tool', '/tmp', 'shell', 'call_1', null, '2026-01-01T00:00:04.000Z')`,
	`insert into messages values ('m5', 's', 'r', 'user', '42', null, null, '{"a":1}', '2026-01-01T00:00:05.000Z')`,
}

// TestImportLegacyHistory is H-15: a history.db with a column for each field is taken
// over under the id of this workspace, with contents as the AI SDK has them, and a second
// import changes nothing.
func TestImportLegacyHistory(t *testing.T) {
	ctx := context.Background()
	h := newHistory(t, t.TempDir()+"/inbox")
	path := sqliteFile(t, legacy...)
	r, err := ImportHistory(ctx, h, path, HistoryImportOptions{})
	if err != nil || r.Imported != 7 || r.Already != 0 || r.FaultCount != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	var s history.SessionRow
	must(t, h.Get(ctx, &s, "s"))
	if s.WorkspaceID != "" || s.Title != "old" || s.ActiveAgentName != "planner" || s.SubjectRef != "dev:test" || s.UpdatedAt.Second() != 5 {
		t.Errorf("session %+v", s)
	}
	var run history.RunRow
	must(t, h.Get(ctx, &run, "r"))
	if run.WorkspaceID != "" || run.TriggerType != "message" || run.Status != "completed" || run.CreatedAt.Second() != 1 || string(run.Metadata) != `{"source": "old"}` {
		t.Errorf("run %+v", run)
	}
	var got []string
	for m, err := range h.Messages(ctx, history.Query{Session: "s"}) {
		must(t, err)
		got = append(got, m.ID+" "+string(m.Content))
	}
	want := []string{`m1 "packed text"`, `m2 "plain text, and a \"quote\""`, `m3 [{"type":"text", "text":"parts"}]`,
		`m4 [{"output":{"type":"text","value":"/tmp"},"toolCallId":"call_1","toolName":"shell","type":"tool-result"}]`, `m5 "42"`}
	if !slices.Equal(got, want) {
		t.Errorf("messages %q", got)
	}
	head, err := h.Head(ctx)
	must(t, err)
	r, err = ImportHistory(ctx, h, path, HistoryImportOptions{})
	if again, herr := h.Head(ctx); err != nil || herr != nil || r.Imported != 0 || r.Already != 7 || again != head {
		t.Errorf("again: %+v, %v, from %d to %d", r, err, head, again)
	}
}

// TestImportPayloadHistory: a history.db whose rows are JSON is taken over, a child run
// that stands before its parent, too.
func TestImportPayloadHistory(t *testing.T) {
	ctx := context.Background()
	h := newHistory(t, t.TempDir()+"/inbox")
	path := sqliteFile(t,
		`create table sessions (id text primary key, workspace_id text not null, created_at text not null, updated_at text not null, payload text not null)`,
		`create table runs (id text primary key, workspace_id text not null, session_id text, status text not null, heartbeat_at text, started_at text, created_at text not null, payload text not null)`,
		`create table messages (id text primary key, session_id text not null, run_id text, created_at text not null, payload text not null)`,
		`create table run_steps (id text primary key, run_id text not null, seq integer not null, payload text not null)`,
		`insert into sessions values ('s', 'w', '2026-01-01T00:00:00.000Z', '2026-01-01T00:00:00.000Z',
  '{"id":"s","workspaceId":"w","subjectRef":"dev","activeAgentName":"a","status":"active","createdAt":"2026-01-01T00:00:00.000Z","updatedAt":"2026-01-01T00:00:00.000Z"}')`,
		`insert into runs values ('child', 'w', 's', 'completed', null, null, '2026-01-01T00:00:01.000Z',
  '{"id":"child","workspaceId":"w","sessionId":"s","parentRunId":"r","triggerType":"system","effectiveAgentName":"b","status":"completed","createdAt":"2026-01-01T00:00:01.000Z"}')`,
		`insert into runs values ('r', 'w', 's', 'completed', null, null, '2026-01-01T00:00:02.000Z',
  '{"id":"r","workspaceId":"w","sessionId":"s","triggerType":"user_message","effectiveAgentName":"a","switchCount":2,"status":"completed","createdAt":"2026-01-01T00:00:02.000Z"}')`,
		`insert into messages values ('m', 's', 'r', '2026-01-01T00:00:03.000Z', '{"id":"m","sessionId":"s","runId":"r","role":"user","content":"hi","createdAt":"2026-01-01T00:00:03.000Z"}')`,
		`insert into run_steps values ('p', 'r', 1, '{"id":"p","runId":"r","seq":1,"stepType":"model_call","status":"completed","input":{"request":{"model":"m"}},"output":{"response":{"text":"t"}}}')`)
	r, err := ImportHistory(ctx, h, path, HistoryImportOptions{})
	if err != nil || r.Imported != 5 {
		t.Fatalf("%+v, %v", r, err)
	}
	var run history.RunRow
	must(t, h.Get(ctx, &run, "child"))
	var step history.StepRow
	must(t, h.Get(ctx, &step, "p"))
	var m history.MessageRow
	must(t, h.Get(ctx, &m, "m"))
	if run.ParentRunID != "r" || run.EffectiveAgentName != "b" || string(step.Input) != `{"request":{"model":"m"}}` || string(m.Content) != `"hi"` || m.RunID != "r" {
		t.Errorf("%+v, %+v, %+v", run, step, m)
	}
}

// TestImportBadHistory: what is not a history.db is refused, and one with rows that have no
// place imports nothing, or all but those.
func TestImportBadHistory(t *testing.T) {
	ctx := context.Background()
	h := newHistory(t, t.TempDir()+"/inbox")
	for _, path := range []string{sqliteFile(t, "create table events (id)"), h.Dir() + "/../events.db"} {
		if _, err := ImportHistory(ctx, h, path, HistoryImportOptions{}); !errors.Is(err, ErrNotHistory) {
			t.Errorf("%s: %v", path, err)
		}
	}
	path := sqliteFile(t, append(slices.Clone(legacy),
		`insert into runs select 'bad status', workspace_id, session_id, initiator_ref, trigger_type, trigger_ref, agent_name, effective_agent_name, switch_count, 'odd',
  null, null, null, null, null, null, created_at from runs`,
		`insert into messages values ('nowhere', 'none', null, 'user', 'x', null, null, null, '2026-01-01T00:00:01.000Z')`,
		`insert into messages values ('of a bad run', 's', 'bad status', 'user', 'x', null, null, null, '2026-01-01T00:00:01.000Z')`,
		`insert into messages values ('role', 's', 'r', 'nobody', 'x', null, null, null, '2026-01-01T00:00:01.000Z')`,
		`insert into messages values ('time', 's', 'r', 'user', 'x', null, null, null, 'yesterday')`)...)
	r, err := ImportHistory(ctx, h, path, HistoryImportOptions{})
	if head, herr := h.Head(ctx); !errors.Is(err, ErrBadRows) || r.FaultCount != 5 || head != 0 || herr != nil {
		t.Errorf("%+v, %v, head %d, %v", r, err, head, herr)
	}
	if !strings.Contains(fmt.Sprint(r.Faults), `table messages, row "nowhere": there is no session "none"`) {
		t.Errorf("faults: %v", r.Faults)
	}
	if r, err = ImportHistory(ctx, h, path, HistoryImportOptions{SkipBadRows: true}); err != nil || r.Imported != 7 || r.FaultCount != 5 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestImportInterrupted: an import that ends after a commit is taken up by the next one.
func TestImportInterrupted(t *testing.T) {
	h := newHistory(t, t.TempDir()+"/inbox")
	path := sqliteFile(t, append(slices.Clone(legacy), `with recursive n(i) as (select 1 union all select i+1 from n where i < 1200)
  insert into messages select 'x' || i, 's', null, 'user', 'text ' || i, null, null, null, '2026-01-02T00:00:00.000Z' from n`)...)
	for i := 0; ; i++ {
		ctx, cancel := context.WithCancel(context.Background())
		r, err := ImportHistory(ctx, h, path, HistoryImportOptions{Progress: func(done, _ int64) {
			if done > int64(i*importRows) {
				cancel()
			}
		}})
		cancel()
		if err == nil {
			if i == 0 || r.Imported+r.Already != 1207 {
				t.Errorf("round %d: %+v", i, r)
			}
			break
		}
		if !errors.Is(err, context.Canceled) || i > 5 {
			t.Fatalf("round %d: %v", i, err)
		}
	}
	n := 0
	for m, err := range h.Messages(context.Background(), history.Query{Session: "s"}) {
		must(t, err)
		if n++; n > 5 && string(m.Content) != fmt.Sprintf("\"text %d\"", n-5) {
			t.Fatalf("message %d is %s", n, m.Content)
		}
	}
	if n != 1205 {
		t.Errorf("%d messages", n)
	}
}

// TestHistoryRoundTrip: what a mirror holds is imported as it was.
func TestHistoryRoundTrip(t *testing.T) {
	dir := t.TempDir()
	h := newHistory(t, dir+"/one")
	fillHistory(t, h, "a", "")
	fillHistory(t, h, "b", "")
	mirrorHistory(t, h, dir+"/one.db", HistoryMirrorOptions{})
	c := newHistory(t, dir+"/two")
	r, err := ImportHistory(context.Background(), c, dir+"/one.db", HistoryImportOptions{})
	if err != nil || r.Imported != 18 {
		t.Fatalf("%+v, %v", r, err)
	}
	one, err := h.Workspace(context.Background())
	must(t, err)
	two, err := c.Workspace(context.Background())
	must(t, err)
	want := truth(t, h, anyWorkspace)
	for i := range want {
		want[i] = strings.ReplaceAll(want[i], one.ID, two.ID)
	}
	slices.Sort(want)
	if got := truth(t, c, anyWorkspace); !slices.Equal(got, want) {
		a, _ := json.MarshalIndent(got, "", " ")
		b, _ := json.MarshalIndent(want, "", " ")
		t.Errorf("%s\nwant %s", a, b)
	}
}
