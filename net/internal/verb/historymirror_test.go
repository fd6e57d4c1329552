//go:build unix

package verb

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"thread/history"
	"thread/internal/historymirror/mirrortest"
)

// mirrorOf makes a thread with a history, and says how it is mirrored into the schema of a.
func mirrorOf(t *testing.T, a *app) (h *history.History, args []string, to func(change func(u *url.URL, q url.Values)) string) {
	t.Helper()
	h = mirrortest.NewHistory(t, filepath.Join(t.TempDir(), "inbox"))
	t.Cleanup(func() { h.Close() })
	mirrortest.Fill(t, h, "one", "")
	to = func(change func(u *url.URL, q url.Values)) string {
		u, err := url.Parse(a.url)
		if err != nil {
			t.Fatal(err)
		}
		q := u.Query()
		q.Set("schema", a.schema)
		change(u, q)
		u.RawQuery = q.Encode()
		return u.String()
	}
	own := to(func(*url.URL, url.Values) {})
	return h, []string{"history", "mirror", "--thread", filepath.Dir(h.Dir()), "--to", own}, to
}

// mirrors runs the verb, which must succeed.
func mirrors(t *testing.T, want string, args ...string) (stderr string) {
	t.Helper()
	code, out, errs := run(args...)
	if code != 0 || !strings.HasPrefix(out, want) {
		t.Errorf("%q: %d, %s%s", args, code, out, errs)
	}
	return errs
}

// H-17: what cannot be mirrored is refused in one line, and changes nothing.
func TestHistoryMirrorRefuses(t *testing.T) {
	a := newApp(t, "CREATE TABLE mine (x int)", "INSERT INTO mine VALUES (7)")
	h, args, to := mirrorOf(t, a)
	with := func(args []string, to string) []string { return append(args[:len(args)-1:len(args)-1], to) }
	refused := func(code int, want string, args ...string) {
		t.Helper()
		got, out, errs := run(args...)
		if got != code || out != "" || !strings.HasPrefix(errs, "Error: ") || !strings.Contains(errs, want) || strings.Count(errs, "\n") != 1 || strings.Contains(errs, "s3cret") {
			t.Errorf("%q: %d, %s%s", args, got, out, errs)
		}
	}
	refusedURL := func(code int, want string, change func(u *url.URL, q url.Values)) {
		t.Helper()
		refused(code, want, with(args, to(change))...)
	}
	refused(2, "--to is empty", with(args, "")...)
	refused(2, "is not the URL of a schema", with(args, "postgres://%zz")...)
	refused(2, "password", with(args, "postgres://app:s3cret@127.0.0.1/app")...)
	refusedURL(2, "password", func(_ *url.URL, q url.Values) { q.Set("password", "s3cret") })
	refusedURL(2, "at most 63 bytes", func(_ *url.URL, q url.Values) { q.Set("schema", strings.Repeat("x", 64)) })
	refusedURL(2, "without a thread", func(_ *url.URL, q url.Values) { q.Set("thread", "inbox") })
	refusedURL(1, "connection refused", func(_ *url.URL, q url.Values) { q.Set("host", "127.0.0.1"); q.Set("port", "1") })
	refused(2, "--workspace is empty", append(args, "--workspace", "")...)

	// Another process's tables.
	refused(1, "has other tables - name another schema", args...)
	if got := a.ask("SELECT x FROM mine"); len(got) != 1 || got[0] != "7" {
		t.Errorf("got %v", got)
	}
	a.do("DROP TABLE mine")
	mirrors(t, "Mirrored ", args...)

	// The mirror of another history, also of one with the same path.
	_, other, _ := mirrorOf(t, a)
	rows := a.ask("SELECT md5(string_agg(r::text, '' ORDER BY id)) FROM runs r UNION ALL SELECT md5(string_agg(m::text, '')) FROM thread_mirror m")
	refused(1, "not a mirror of this history: it is of the history of ", other...)
	dir := filepath.Dir(h.Dir())
	for _, err := range []error{os.Rename(dir, dir+".first"), os.Rename(other[3], dir)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	refused(1, "not a mirror of this history: it is of the history of ", args...)
	if got := a.ask("SELECT md5(string_agg(r::text, '' ORDER BY id)) FROM runs r UNION ALL SELECT md5(string_agg(m::text, '')) FROM thread_mirror m"); fmt.Sprint(got) != fmt.Sprint(rows) {
		t.Error("the mirror of another history was changed")
	}
	for _, err := range []error{os.Rename(dir, other[3]), os.Rename(dir+".first", dir)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	mirrors(t, "Mirrored 0 ", args...)

	// A later version.
	a.do("UPDATE thread_mirror SET version = 2")
	refused(1, "the mirror has another version: 2, and this program knows version 1 - ", args...)
	a.do("UPDATE thread_mirror SET version = 1")

	// A full disk passes; what a trigger refuses stands in mirror_state until it is better.
	a.do(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION USING ERRCODE = TG_ARGV[0], MESSAGE = ''no''; END'`,
		`CREATE TRIGGER r BEFORE INSERT ON runs FOR EACH ROW EXECUTE FUNCTION refuse('53100')`)
	mirrortest.Fill(t, h, "two", "")
	refused(1, "the mirror cannot be written now: PostgreSQL: ERROR: no (SQLSTATE 53100) - retry", args...)
	a.do(`DROP TRIGGER r ON runs`, `CREATE TRIGGER r BEFORE INSERT ON runs FOR EACH ROW EXECUTE FUNCTION refuse('P0001')`)
	refused(1, "PostgreSQL refuses it: ERROR: no", args...)
	if got := a.ask("SELECT status || ' ' || error_message || ' ' || last_event_id FROM mirror_state"); len(got) != 1 || !strings.HasPrefix(got[0], "error PostgreSQL refuses it: ") {
		t.Errorf("mirror_state: %v", got)
	}
	a.do(`DROP TRIGGER r ON runs`)
	mirrors(t, "Mirrored ", args...)
	if got := a.ask("SELECT status FROM mirror_state WHERE error_message IS NULL"); len(got) != 1 || got[0] != "idle" {
		t.Errorf("mirror_state: %v", got)
	}

	// Another mirror that holds the lock.
	a.do("BEGIN", "SELECT FROM thread_mirror FOR UPDATE")
	refused(1, "the mirror cannot be written now: ", args...)
	a.do("ROLLBACK")

	// What is damaged gets another name.
	a.do("ALTER TABLE messages DROP COLUMN content CASCADE")
	errs := mirrors(t, "Mirrored ", args...)
	if want := "was started over: the table messages has no column content"; !strings.Contains(errs, want) || !strings.Contains(errs, a.schema+"_damaged\n") {
		t.Errorf("got %s", errs)
	}
	// One of them is kept, and a schema that is not a mirror stays.
	for range 2 {
		a.do("ALTER TABLE messages DROP COLUMN content CASCADE")
		mirrors(t, "Mirrored ", args...)
	}
	a.do("ALTER SCHEMA "+a.schema+"_damaged RENAME TO "+a.schema+"_away", "CREATE SCHEMA "+a.schema+"_damaged", "CREATE TABLE "+a.schema+"_damaged.mine (x int)")
	for range 2 {
		a.do("ALTER TABLE messages DROP COLUMN content CASCADE")
		mirrors(t, "Mirrored ", args...)
	}
	if got := a.ask("SELECT nspname FROM pg_namespace WHERE nspname LIKE '" + a.schema + "\\_%' ORDER BY 1"); fmt.Sprint(got) != fmt.Sprintf("[%[1]s_away %[1]s_damaged %[1]s_damaged_2]", a.schema) {
		t.Errorf("the schemas are %v", got)
	}
	for _, aside := range []string{"_away", "_damaged", "_damaged_2"} {
		a.do("DROP SCHEMA " + a.schema + aside + " CASCADE")
	}
}

// H-17: a role without rights is refused, and one whose schema was made for it needs no
// others.
func TestHistoryMirrorRights(t *testing.T) {
	a := newApp(t)
	_, args, to := mirrorOf(t, a)
	role := "mirror" + a.schema[len("thread_test_"):]
	a.do(`CREATE ROLE ` + role + ` LOGIN PASSWORD 'only-here'`)
	t.Cleanup(func() { a.do(`DROP OWNED BY `+role+` CASCADE`, `DROP ROLE `+role) })
	t.Setenv("PGPASSWORD", "only-here")
	mine := func(schema string) []string {
		return append(args[:len(args)-1:len(args)-1], to(func(u *url.URL, q url.Values) { u.User = url.User(role); q.Set("schema", schema) }))
	}
	refused := func(want string, args ...string) {
		t.Helper()
		code, out, errs := run(args...)
		if code != 1 || out != "" || !strings.HasPrefix(errs, "Error: the role lacks a right: ") || !strings.Contains(errs, want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%d, %s%s", code, out, errs)
		}
	}
	refused("it cannot make the schema "+a.schema+"x: permission denied", mine(a.schema+"x")...)
	refused("USAGE of the schema "+a.schema, mine(a.schema)...)
	a.do("GRANT USAGE ON SCHEMA " + a.schema + " TO " + role)
	refused("it cannot make the schema "+a.schema+": permission denied", mine(a.schema)...)
	mirrors(t, "Mirrored ", args...) // by another one
	refused("permission denied", mine(a.schema)...)
	a.do("GRANT SELECT ON ALL TABLES IN SCHEMA " + a.schema + " TO " + role)
	refused("permission denied", mine(a.schema)...)
	a.do("CREATE SCHEMA " + a.schema + "x AUTHORIZATION " + role)
	mirrors(t, "Mirrored ", mine(a.schema+"x")...)
	mirrors(t, "Mirrored 0 ", mine(a.schema+"x")...)
}

// H-14 and H-17: the answers of an audit can be had by SQL.
func TestHistoryMirrorAudit(t *testing.T) {
	a := newApp(t)
	h, args, _ := mirrorOf(t, a)
	ctx := context.Background()
	for i, status := range []string{history.Failed, history.TimedOut, history.Cancelled, history.Completed} {
		_, err := h.StartSession(ctx, history.SessionRow{ID: fmt.Sprint("S", i), SubjectRef: fmt.Sprint("user:", i), AgentName: "coder"})
		mirrortest.Must(t, err)
		r, err := h.StartRun(ctx, history.RunRow{SessionID: fmt.Sprint("S", i), TriggerType: "message", TriggerRef: fmt.Sprint(i)})
		mirrortest.Must(t, err)
		_, err = r.ToolCall(ctx, history.ToolCallRow{SourceType: "skill", ToolName: fmt.Sprint("tool", i)})
		mirrortest.Must(t, err)
		mirrortest.Must(t, r.End(ctx, history.End{Status: status, ErrorCode: "exit", ErrorMessage: "it failed"}))
	}
	mirrors(t, "Mirrored ", args...)
	for question, q := range map[string]struct {
		sql  string
		line func(r *history.Record) string
	}{
		"triggers": {`SELECT concat_ws(' ', workspace_id, session_id, initiator_ref, trigger_type, trigger_ref, id) FROM runs ORDER BY created_at DESC, id`,
			func(r *history.Record) string {
				return strings.Join([]string{r.WorkspaceID, r.SessionID, r.SubjectRef, r.TriggerType, r.TriggerRef, r.RunID}, " ")
			}},
		"failures": {`SELECT concat_ws(' ', r.id, r.status, to_char(ended_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS'), error_code, error_message, effective_agent_name)
FROM runs r WHERE status IN ('failed', 'cancelled', 'timed_out') ORDER BY created_at DESC`,
			func(r *history.Record) string {
				return strings.Join([]string{r.RunID, r.Status, r.At.UTC().Format("2006-01-02T15:04:05.000"), r.ErrorCode, r.ErrorMessage, r.EffectiveAgentName}, " ")
			}},
		"tools": {`SELECT concat_ws(' ', c.id, c.run_id, c.source_type, c.tool_name, s.subject_ref) FROM tool_call c JOIN run r ON r.id = c.run_id JOIN session s ON s.id = r.session_id
ORDER BY c.started_at DESC`,
			func(r *history.Record) string {
				return strings.Join([]string{r.ToolCallID, r.RunID, r.SourceType, r.ToolName, r.SubjectRef}, " ")
			}},
	} {
		want := map[string]bool{}
		for r, err := range h.Audit(ctx, question, time.Time{}) {
			mirrortest.Must(t, err)
			want[q.line(&r)] = true
		}
		got := a.ask(q.sql)
		if len(want) < 3 || len(got) != len(want) {
			t.Errorf("%s: %d answers, want %d", question, len(got), len(want))
		}
		for _, line := range got {
			if !want[line] {
				t.Errorf("%s: only in the tables: %s", question, line)
			}
		}
	}
}
