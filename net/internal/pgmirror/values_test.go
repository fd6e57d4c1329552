package pgmirror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"thread/engine"
	"thread/history"
	"thread/internal/historymirror"
	"thread/internal/historymirror/mirrortest"
)

// TestMirror is H-17: the tables have every row, follow deletes, also those that were
// pruned away, and say how far they are.
func TestMirror(t *testing.T) {
	ctx := context.Background()
	d := newDatabase(t)
	h := mirrortest.NewHistory(t, t.TempDir()+"/in box")
	defer h.Close()
	d.sync(t, h)
	if got := d.mirrored(t); len(got) != 0 {
		t.Errorf("a thread without a history is mirrored as %v", got)
	}
	mirrortest.Fill(t, h, "one", "")
	mirrortest.Fill(t, h, "two", "")
	d.sync(t, h)
	d.sameAsTruth(t, h, anyWorkspace)
	if got := len(d.mirrored(t)); got != 19 {
		t.Errorf("%d rows, want 19", got)
	}
	must(t, h.DeleteSession(ctx, "one"))
	none := int64(0)
	_, _, err := h.Prune(ctx, engine.Retention{KeepLast: &none})
	must(t, err)
	d.sync(t, h)
	d.sameAsTruth(t, h, anyWorkspace)

	// Both names of a table, and the indexes of the design.
	for name, query := range map[string]string{
		"messages_session_id_created_at":              "SELECT * FROM message WHERE session_id = 's' ORDER BY created_at",
		"runs_status_heartbeat_at":                    "SELECT * FROM run WHERE status = 'running' AND heartbeat_at < now()",
		"tool_calls_source_type_tool_name_started_at": "SELECT * FROM tool_call WHERE source_type = 'a' AND tool_name = 'b' ORDER BY started_at DESC",
		"workspaces_external_ref":                     "SELECT * FROM workspace WHERE external_ref = 'x'",
	} {
		plan := d.in(t, "SET enable_seqscan = off; EXPLAIN "+query)
		if !strings.Contains(strings.Join(slices.Concat(plan...), "\n"), name) {
			t.Errorf("%s: %v", query, plan)
		}
	}
	if got := d.in(t, "SELECT input -> 'request' ->> 'model' FROM run_steps")[0][0]; got != "m" {
		t.Errorf("got %s", got)
	}
}

// TestHistoryEvents is H-17: the schema has the history events with their rows, also by
// session, deletions included, and none of a chat.
func TestHistoryEvents(t *testing.T) {
	ctx := context.Background()
	d := newDatabase(t)
	h := mirrortest.NewHistory(t, t.TempDir()+"/inbox")
	defer h.Close()
	_, err := h.SetWorkspace(ctx, "talk", func(w *history.WorkspaceRow) { w.Kind = "chat" })
	must(t, err)
	mirrortest.Fill(t, h, "S", "")
	mirrortest.Fill(t, h, "C", "talk")
	d.sync(t, h)
	must(t, h.DeleteSession(ctx, "S"))
	must(t, h.DeleteSession(ctx, "C"))
	for range 2 {
		d.sync(t, h)
	}
	w, err := h.Workspace(ctx)
	must(t, err)
	var want []string
	for c, err := range h.Changes(ctx, 0, "source <> 'session:C'") {
		must(t, err)
		if c.EntityID != "talk" {
			want = append(want, fmt.Sprint(c.ID, " ", c.Session, " ", c.Entity, " ", c.EntityID, " ", c.Op, " ", c.At))
		}
	}
	var got []string
	for _, row := range d.in(t, `SELECT id, coalesce(session_id, ''), entity_type, entity_id, op, to_char(occurred_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') FROM history_event WHERE workspace_id = '`+w.ID+`' ORDER BY id`) {
		got = append(got, strings.Join(row, " "))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if n := d.in(t, `SELECT count(*) FROM history_events WHERE session_id = 'C' OR workspace_id = 'talk'`)[0][0]; n != "0" {
		t.Errorf("%s events of a chat", n)
	}
	if got := d.in(t, `SELECT count(*), count(payload ->> 'id') FROM session_events WHERE session_id = 'S' AND op = 'delete'`)[0]; got[0] == "0" || got[1] != "0" {
		t.Errorf("deletions: %v", got)
	}
	if got := d.in(t, `SELECT payload ->> 'subject_ref' FROM session_events WHERE entity_type = 'session' AND op = 'upsert' LIMIT 1`)[0][0]; got != "user:1" {
		t.Errorf("got %q", got)
	}
}

// TestWorkspaces: rows of a chat workspace are in no mirror, the rows of several others in
// one, or each in its own.
func TestWorkspaces(t *testing.T) {
	ctx := context.Background()
	d := newDatabase(t)
	h := mirrortest.NewHistory(t, t.TempDir()+"/inbox")
	defer h.Close()
	set := func(id, kind string) {
		t.Helper()
		_, err := h.SetWorkspace(ctx, id, func(w *history.WorkspaceRow) { w.Kind = kind })
		must(t, err)
	}
	set("talk", "chat")
	set("shop", "project")
	for _, w := range []string{"", "talk", "shop", "unlisted"} {
		mirrortest.Fill(t, h, "of "+w, w)
	}
	w, err := h.Workspace(ctx)
	must(t, err)
	expect := func(want ...string) {
		t.Helper()
		d.sameAsTruth(t, h, func(id string) bool { return slices.Contains(want, id) })
		if got := d.in(t, "SELECT count(*) FROM mirror_state")[0][0]; got != string(rune('0'+len(want))) {
			t.Errorf("%s states, want %d", got, len(want))
		}
	}
	d.sync(t, h)
	expect(w.ID, "shop", "unlisted")
	set("talk", "project")
	set("shop", "chat")
	d.sync(t, h)
	expect(w.ID, "talk", "unlisted")
	set("shop", "project")
	d.sync(t, h, "shop")
	expect("shop")
}

// TestValues: whatever the history has comes as it is, except for NUL in a text that is not
// JSON, and years without four digits.
func TestValues(t *testing.T) {
	ctx := context.Background()
	d := newDatabase(t)
	h := mirrortest.NewHistory(t, t.TempDir()+"/inbox")
	defer h.Close()
	long := strings.Repeat("ü", history.MaxKeyBytes/2)
	deep := strings.Repeat("[", 9000) + strings.Repeat("]", 9000)
	at := time.Date(2026, 2, 26, 12, 30, 15, 250e6, time.FixedZone("", 19800))
	content := `[ {"type":"text",  "n":1.0, "m":1e400, "k":12345678901234567890, "k":2, "t":"\u0000\ud800\"नमस्ते\\"} ]`
	must(t, h.Update(ctx, func(tx *history.Tx) error {
		return errors.Join(
			tx.Put(&history.SessionRow{ID: long, SubjectRef: long, Title: "a\x00'\"\\$1?\n", Status: long, CreatedAt: at}),
			tx.Put(&history.SessionRow{ID: "old", CreatedAt: time.Date(0, 3, 1, 0, 0, 0, 0, time.UTC), UpdatedAt: time.Date(9999, 12, 31, 23, 59, 59, 999e6, time.UTC)}),
			tx.Put(&history.MessageRow{ID: "m", SessionID: long, Role: "user", Content: json.RawMessage(content), Metadata: json.RawMessage(deep)}),
			tx.Put(&history.MessageRow{ID: "large", SessionID: long, Role: "user", Content: json.RawMessage(`"` + strings.Repeat("x", 9<<20) + `"`)}),
			tx.Put(&history.RunRow{ID: "r\x00", SwitchCount: 1 << 62, ErrorMessage: "\x00", Status: history.Failed}),
			tx.Put(&history.ToolCallRow{RunID: "r\x00", SourceType: "native", ToolName: long}),
		)
	}))
	d.ask(t, "SET TimeZone = 'Asia/Kolkata'; SET DateStyle = 'German'")
	d.sync(t, h)
	got, want := d.mirrored(t), truth(t, h, anyWorkspace)
	for i := range want {
		if strings.Contains(want[i], `"old"`) { // to_char counts years before Christ from 1
			want[i] = strings.Replace(want[i], "0000-03-01", "0001-03-01", 1)
		}
	}
	slices.Sort(want)
	mirrortest.Same(t, want, got)
	if got := d.in(t, "SELECT content FROM messages WHERE id = 'm'")[0][0]; got != content {
		t.Errorf("got %s", got)
	}
	if got := d.in(t, "SELECT title FROM sessions WHERE subject_ref <> ''")[0][0]; got != "a\uFFFD'\"\\$1?\n" {
		t.Errorf("got %q", got)
	}
	for in, want := range map[string]string{
		"2026-01-02T03:04:05.678Z":  "2026-01-02T03:04:05.678Z",
		"0000-01-02T03:04:05.678Z":  "0001-01-02T03:04:05.678Z BC",
		"10000-01-01T00:00:00.000Z": "infinity",
		"-0001-12-31T00:00:00.000Z": "-infinity",
	} {
		if got := fit(historymirror.Time, in); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
		d.ask(t, "SELECT '"+want+"'::timestamptz")
	}
}
