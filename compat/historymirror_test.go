//go:build (linux && (386 || amd64 || arm || arm64 || loong64 || ppc64le || riscv64 || s390x)) || (darwin && (amd64 || arm64)) || (freebsd && (amd64 || arm64)) || (netbsd && amd64) || (openbsd && (amd64 || arm64))

package compat

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"thread/engine"
	"thread/history"
	"thread/internal/historymirror"
	"thread/internal/historymirror/mirrortest"
	"thread/internal/target"
)

func openHistory(t rapid.TB, dir string) *history.History {
	t.Helper()
	h, err := history.Open(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func must(t rapid.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// mirrorHistory opens the mirror, syncs once and closes it.
func mirrorHistory(t rapid.TB, h *history.History, path string, o HistoryMirrorOptions) *HistoryMirror {
	t.Helper()
	m, err := OpenHistoryMirror(context.Background(), h, path, o)
	must(t, err)
	m.m.Page = 7
	_, err = m.Sync(context.Background())
	must(t, errors.Join(err, m.Close()))
	return m
}

// newHistory makes a thread in dir and opens its history.
func newHistory(t rapid.TB, dir string) *history.History {
	t.Helper()
	return mirrortest.NewHistory(t, dir)
}

func fillHistory(t rapid.TB, h *history.History, session, workspace string) {
	t.Helper()
	mirrortest.Fill(t, h, session, workspace)
}

// truth returns the rows of the history that has says belong into a mirror.
func truth(t rapid.TB, h *history.History, has func(workspace string) bool) []string {
	t.Helper()
	return mirrortest.Lines(t, mirrortest.Truth(t, h, historymirror.Tables, has))
}

// mirrored returns the rows of a mirror in the same form.
func mirrored(t rapid.TB, path string) []string {
	t.Helper()
	var list []mirrortest.Row
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro")
	must(t, err)
	defer db.Close()
	for _, table := range historymirror.Tables {
		var names []string
		for _, c := range table.Columns() {
			names = append(names, c.Name)
		}
		rows, err := db.Query("SELECT " + strings.Join(names, ", ") + " FROM " + table.Name)
		must(t, err)
		for rows.Next() {
			values := make([]any, len(names))
			into := make([]any, len(names))
			for i := range values {
				into[i] = &values[i]
			}
			must(t, rows.Scan(into...))
			if i := slices.Index(names, "heartbeat_at"); i >= 0 {
				values[i] = nil
			}
			list = append(list, mirrortest.Row{Table: table.Name, Values: values})
		}
		must(t, errors.Join(rows.Err(), rows.Close()))
	}
	return mirrortest.Lines(t, list)
}

func anyWorkspace(string) bool { return true }

// sameAsTruth fails unless the mirror has the rows of the history, and says so.
func sameAsTruth(t rapid.TB, h *history.History, path string, has func(workspace string) bool) {
	t.Helper()
	mirrortest.Same(t, truth(t, h, has), mirrored(t, path))
	head, err := h.Head(context.Background())
	must(t, err)
	for id, s := range states(t, path) {
		if s.last != head || s.status != "idle" || s.message != "" || len(s.at) != 24 {
			t.Errorf("mirror_state of %s: %+v, the head is %d", id, s, head)
		}
		if !has(id) {
			t.Errorf("mirror_state has the workspace %s", id)
		}
	}
}

type stateRow struct {
	last                int64
	at, status, message string
}

func states(t rapid.TB, path string) map[string]stateRow {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro")
	must(t, err)
	defer db.Close()
	rows, err := db.Query("SELECT workspace_id, last_event_id, last_synced_at, status, coalesce(error_message, '') FROM mirror_state")
	must(t, err)
	defer rows.Close()
	m := map[string]stateRow{}
	for rows.Next() {
		var id string
		var s stateRow
		must(t, rows.Scan(&id, &s.last, &s.at, &s.status, &s.message))
		m[id] = s
	}
	must(t, rows.Err())
	return m
}

// TestHistoryMirror is H-07: the tables of OpenHarness have every row, follow deletes,
// and mirror_state says how far they are; a missing mirror is made again.
func TestHistoryMirror(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	h := newHistory(t, dir+"/in box")
	path := dir + "/history.db"
	mirrorHistory(t, h, path, HistoryMirrorOptions{})
	if got := mirrored(t, path); len(got) != 0 || len(states(t, path)) != 0 {
		t.Errorf("a thread without a history is mirrored as %v", got)
	}
	fillHistory(t, h, "one", "")
	fillHistory(t, h, "two", "")
	if m := mirrorHistory(t, h, path, HistoryMirrorOptions{}); m.Rebuilt != "" {
		t.Errorf("rebuilt: %s", m.Rebuilt)
	}
	sameAsTruth(t, h, path, anyWorkspace)
	if got := len(mirrored(t, path)); got != 18 {
		t.Errorf("%d rows, want 18", got)
	}
	must(t, h.DeleteSession(ctx, "one"))
	mirrorHistory(t, h, path, HistoryMirrorOptions{})
	sameAsTruth(t, h, path, anyWorkspace)
	must(t, os.Remove(path))
	mirrorHistory(t, h, path, HistoryMirrorOptions{})
	sameAsTruth(t, h, path, anyWorkspace)
}

// TestHistoryMirrorQueries is H-12: the queries of the design's indexes are answered from
// the mirror alone, by its columns, under both names of a table, and by its indexes.
func TestHistoryMirrorQueries(t *testing.T) {
	dir := t.TempDir()
	h := newHistory(t, dir+"/inbox")
	fillHistory(t, h, "one", "")
	path := dir + "/history.db"
	mirrorHistory(t, h, path, HistoryMirrorOptions{})
	must(t, os.RemoveAll(dir+"/inbox")) // the mirror stands alone
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro")
	must(t, err)
	defer db.Close()
	for query, want := range map[string]string{
		"SELECT id FROM sessions WHERE workspace_id = (SELECT workspace_id FROM mirror_state) ORDER BY created_at DESC":    "one",
		"SELECT active_agent_name FROM session WHERE subject_ref = 'user:1' ORDER BY created_at DESC":                      "reviewer",
		"SELECT id FROM sessions WHERE status = 'active' ORDER BY updated_at DESC":                                         "one",
		"SELECT json_extract(content, '$[0].input.command') FROM messages WHERE session_id = 'one' AND content LIKE '[%'":  "ls  -l",
		"SELECT count(*) FROM message WHERE run_id = (SELECT id FROM runs) ORDER BY created_at":                            "2",
		"SELECT status || switch_count FROM runs WHERE session_id = 'one' ORDER BY created_at DESC":                        "completed1",
		"SELECT trigger_type || trigger_ref FROM run WHERE initiator_ref = 'user:1'":                                       "message7",
		"SELECT input FROM run_steps WHERE run_id = (SELECT id FROM runs) ORDER BY seq":                                    `{"request":{"model":"m", "messages":[]}}`,
		"SELECT duration_ms FROM tool_calls WHERE source_type = 'native' AND tool_name = 'shell' ORDER BY started_at DESC": "12",
		"SELECT patch FROM hook_runs WHERE run_id = (SELECT id FROM runs)":                                                 `{"a":1}`,
		"SELECT action_name FROM action_run":                                                                               "deploy",
		"SELECT path FROM artifacts":                                                                                       "a b/ü.md",
		"SELECT status FROM mirror_state":                                                                                  "idle",
	} {
		var got string
		if err := db.QueryRow(query).Scan(&got); err != nil || got != want {
			t.Errorf("%s: %q, %v", query, got, err)
		}
	}
	for _, query := range []string{
		"SELECT * FROM sessions WHERE workspace_id = 'w' ORDER BY created_at DESC",
		"SELECT * FROM messages WHERE session_id = 's' ORDER BY created_at",
		"SELECT * FROM runs WHERE status = 'running' AND heartbeat_at < 'x'",
		"SELECT * FROM run_steps WHERE run_id = 'r' ORDER BY seq",
		"SELECT * FROM tool_calls WHERE source_type = 'a' AND tool_name = 'b' ORDER BY started_at DESC",
	} {
		var id, parent, unused int
		var plan string
		if err := db.QueryRow("EXPLAIN QUERY PLAN "+query).Scan(&id, &parent, &unused, &plan); err != nil || !strings.Contains(plan, "USING INDEX") {
			t.Errorf("%s: %s, %v", query, plan, err)
		}
	}
}

// TestHistoryMirrorWorkspaces is H-07 and H-19: rows of a chat workspace are in no
// mirror, several others in one, each with its state, or each in its own.
func TestHistoryMirrorWorkspaces(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	h := newHistory(t, dir+"/inbox")
	path := dir + "/history.db"
	set := func(id, kind string) {
		t.Helper()
		_, err := h.SetWorkspace(ctx, id, func(w *history.WorkspaceRow) { w.Kind = kind })
		must(t, err)
	}
	set("talk", "chat")
	set("shop", "project")
	for _, w := range []string{"", "talk", "shop", "unlisted"} {
		fillHistory(t, h, "of "+w, w)
	}
	w, err := h.Workspace(ctx)
	must(t, err)
	expect := func(want ...string) {
		t.Helper()
		sameAsTruth(t, h, path, func(id string) bool { return slices.Contains(want, id) })
		if got := len(states(t, path)); got != len(want) {
			t.Errorf("%d states, want %d", got, len(want))
		}
	}
	mirrorHistory(t, h, path, HistoryMirrorOptions{})
	expect(w.ID, "shop", "unlisted")
	set("talk", "project")
	set("shop", "chat")
	mirrorHistory(t, h, path, HistoryMirrorOptions{})
	expect(w.ID, "talk", "unlisted")
	set("shop", "project")
	mirrorHistory(t, h, path, HistoryMirrorOptions{Workspaces: []string{"shop"}})
	expect("shop")
}

// TestHistoryMirrorRefuses: what is not a mirror of this history stays as it is, and what is
// damaged is set aside.
func TestHistoryMirrorRefuses(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	h := newHistory(t, dir+"/inbox")
	fillHistory(t, h, "one", "")
	other := newHistory(t, dir+"/other")
	fillHistory(t, other, "one", "")
	mirrorHistory(t, other, dir+"/other.db", HistoryMirrorOptions{})
	th, err := engine.Open(dir + "/inbox")
	must(t, err)
	syncOnce(t, th, dir+"/thread.db")
	app, err := sql.Open("sqlite", "file:"+dir+"/app.db")
	must(t, err)
	mustExec(t, app, "CREATE TABLE runs (id)")
	must(t, app.Close())
	must(t, os.WriteFile(dir+"/notes.txt", []byte("mine"), 0o600))
	must(t, os.Mkdir(dir+"/directory.db", 0o700))
	for _, name := range []string{"other.db", "thread.db", "app.db", "notes.txt", "directory.db"} {
		if _, err := OpenHistoryMirror(ctx, h, dir+"/"+name, HistoryMirrorOptions{}); !errors.Is(err, ErrNotMirror) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"events.db", "history/history.db", "history/events.db"} {
		if _, err := OpenHistoryMirror(ctx, h, dir+"/inbox/"+name, HistoryMirrorOptions{}); !errors.Is(err, target.ErrInThread) {
			t.Errorf("%s: %v", name, err)
		}
	}
	names, err := filepath.Glob(dir + "/*.damaged*")
	if err != nil || len(names) > 0 {
		t.Errorf("set aside: %v, %v", names, err)
	}

	// What is left of a mirror: nothing, garbage, a torn file, a WAL alone.
	for name, spoil := range map[string]func(path string) error{
		"empty":   func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"garbage": func(path string) error { return os.WriteFile(path, []byte(strings.Repeat("x", 9000)), 0o600) },
		"torn":    func(path string) error { return os.Truncate(path, 5000) },
		"overwritten": func(path string) error {
			b, err := os.ReadFile(path)
			for i := 4096; i < len(b); i += 3 {
				b[i] ^= 0x5a
			}
			return errors.Join(err, os.WriteFile(path, b, 0o600))
		},
		"cut by a byte": func(path string) error {
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			return os.Truncate(path, info.Size()-1)
		},
		"wal alone": func(path string) error {
			return errors.Join(os.Rename(path, path+"-wal"))
		},
		"no state": func(path string) error { return execIn(path, "DELETE FROM thread_mirror") },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "history.db")
			mirrorHistory(t, h, path, HistoryMirrorOptions{})
			must(t, spoil(path))
			m := mirrorHistory(t, h, path, HistoryMirrorOptions{})
			sameAsTruth(t, h, path, anyWorkspace)
			if m.Rebuilt == "" || m.Aside == "" {
				t.Errorf("rebuilt: %q, aside: %q", m.Rebuilt, m.Aside)
			}
		})
	}
}

func execIn(path, query string, args ...any) error {
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		return err
	}
	_, err = db.Exec(query, args...)
	return errors.Join(err, db.Close())
}

// TestHistoryMirrorCopied is H-15: the mirror that was copied with its directory becomes
// the copy's workspace, under its new workspace id.
func TestHistoryMirrorCopied(t *testing.T) {
	dir := t.TempDir()
	h := newHistory(t, dir+"/inbox")
	fillHistory(t, h, "one", "")
	mirrorHistory(t, h, dir+"/history.db", HistoryMirrorOptions{Default: true})
	must(t, os.CopyFS(dir+"/copy", os.DirFS(dir+"/inbox")))
	must(t, copyFile(dir+"/copy.db", dir+"/history.db"))
	c := openHistory(t, dir+"/copy")
	if _, err := OpenHistoryMirror(context.Background(), c, dir+"/copy.db", HistoryMirrorOptions{}); !errors.Is(err, ErrNotMirror) {
		t.Errorf("another's mirror: %v", err)
	}
	mirrorHistory(t, c, dir+"/copy.db", HistoryMirrorOptions{Default: true})
	w, err := c.Workspace(context.Background())
	must(t, err)
	sameAsTruth(t, c, dir+"/copy.db", func(id string) bool { return id == w.ID })
	sameAsTruth(t, h, dir+"/history.db", func(id string) bool { return id != w.ID })
}

// TestHistoryMirrorError is H-12: what goes wrong stands in mirror_state, keeps no process
// from writing, and the mirror catches up afterwards.
func TestHistoryMirrorError(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	h := newHistory(t, dir+"/inbox")
	fillHistory(t, h, "one", "")
	path := dir + "/history.db"
	m, err := OpenHistoryMirror(ctx, h, path, HistoryMirrorOptions{})
	must(t, err)
	defer m.Close()
	_, err = m.Sync(ctx)
	must(t, err)
	// Another process keeps the mirror locked: the history continues.
	lock, err := sql.Open("sqlite", "file:"+path)
	must(t, err)
	lock.SetMaxOpenConns(1)
	mustExec(t, lock, "BEGIN IMMEDIATE")
	must(t, m.exec(ctx, "PRAGMA busy_timeout = 1"))
	fillHistory(t, h, "two", "")
	if _, err := m.Sync(ctx); !errors.Is(err, ErrInUse) {
		t.Errorf("a locked mirror: %v", err)
	}
	mustExec(t, lock, "ROLLBACK")
	must(t, lock.Close())
	// The history cannot be read.
	db := h.Dir() + "/events.db"
	must(t, os.Rename(db, db+".away"))
	if _, err := m.Sync(ctx); err == nil {
		t.Error("a history that is not there was read")
	}
	for _, s := range states(t, path) {
		if s.status != "error" || s.message == "" {
			t.Errorf("mirror_state: %+v", s)
		}
	}
	must(t, os.Rename(db+".away", db))
	_, err = m.Sync(ctx)
	must(t, err)
	sameAsTruth(t, h, path, anyWorkspace)
}

// TestHistoryMirrorFollow: what is written is in the mirror soon after, also of a history
// that was not there yet.
func TestHistoryMirrorFollow(t *testing.T) {
	dir := t.TempDir()
	h := newHistory(t, dir+"/inbox")
	path := dir + "/history.db"
	m, err := OpenHistoryMirror(t.Context(), h, path, HistoryMirrorOptions{})
	must(t, err)
	defer m.Close()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	began := false
	err = m.Follow(ctx, func(int64, error) error {
		if !began {
			began = true
			go fillHistory(t, h, "one", "")
		}
		if slices.Equal(truth(t, h, anyWorkspace), mirrored(t, path)) && len(mirrored(t, path)) == 9 {
			stop()
		}
		return nil
	})
	if err != nil || len(mirrored(t, path)) != 9 {
		t.Errorf("%d rows, %v", len(mirrored(t, path)), err)
	}
}
