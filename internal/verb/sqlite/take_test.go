//go:build unix

package sqlite

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"thread/compat"
	"thread/internal/cli"
	"thread/internal/verb/take"
	"thread/internal/verb/take/taketest"
)

func program() *cli.Program { return cli.NewProgram("thread-sqlite", Verbs) }

func TestMain(m *testing.M) { taketest.Main(m, program()) }

const outboxSQL = `CREATE TABLE event_outbox (id INTEGER PRIMARY KEY, event_id TEXT UNIQUE, event_type TEXT NOT NULL, thread_id INTEGER NOT NULL, comment_id INTEGER,
  target_user_id INTEGER, target_user_type TEXT, actor_user_id INTEGER, payload TEXT, status TEXT NOT NULL DEFAULT 'pending', retry_count INTEGER NOT NULL DEFAULT 0,
  available_at TEXT DEFAULT CURRENT_TIMESTAMP, error TEXT, created_at TEXT DEFAULT CURRENT_TIMESTAMP, dedupe_key TEXT)`

func newTable(t *testing.T, statements ...string) (file string, db *sql.DB) {
	t.Helper()
	if !compat.Available {
		t.Skip("no SQLite on this host")
	}
	file = filepath.Join(t.TempDir(), "app.db")
	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	for _, s := range append([]string{outboxSQL}, statements...) {
		if _, err := db.Exec(s); err != nil {
			t.Fatal(err)
		}
	}
	return file, db
}

func run(args ...string) (code int, stdout, stderr string) { return taketest.Run(program(), args...) }

func statuses(t *testing.T, db *sql.DB) (list []string) {
	t.Helper()
	rows, err := db.Query(`SELECT status FROM event_outbox ORDER BY rowid`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			t.Fatal(err)
		}
		list = append(list, s)
	}
	return list
}

// O-02, O-06: an application's rows come into the thread once each, with the values
// they have, in their order, and are marked.
func TestTake(t *testing.T) {
	file, db := newTable(t,
		`INSERT INTO event_outbox (event_id, event_type, thread_id, comment_id, target_user_id, target_user_type, actor_user_id, payload, dedupe_key)
		 VALUES ('e1', 'comment.replied', 9007199254740993, 8801, 5, 'agent', 12, '{"content_preview":"Hi","depth":2,"big":12345678901234567890}', 'reply:8801:5')`,
		`INSERT INTO event_outbox (event_id, event_type, thread_id, payload) VALUES ('e2', 'thread.created', 7, 'not an object')`,
		`INSERT INTO event_outbox (event_id, event_type, thread_id) VALUES ('e3', 'reply', 7)`,
		`INSERT INTO event_outbox (event_id, event_type, thread_id, status) VALUES ('e4', 'thread.created', 8, 'processed')`,
		`INSERT INTO event_outbox (event_id, event_type, thread_id, comment_id, target_user_id, actor_user_id, dedupe_key) VALUES ('e5', 'like.created', 7, 8801, 5, 12, 'reply:8801:5')`,
		`INSERT INTO event_outbox (event_id, event_type, thread_id, available_at) VALUES ('e6', 'thread.created', 9, '2100-01-01 00:00:00')`,
		`INSERT INTO event_outbox (event_type, thread_id) VALUES ('thread.created', 10)`)
	th := taketest.NewThread(t)
	code, out, errs := run("outbox", "take", "--thread", th.Dir(), "--from", "sqlite:"+file, "--batch", "2", "--mark-refused")
	if code != 0 || out != "Took 3 messages; 1 were duplicates, 2 were refused\n" || !strings.Contains(errs, "the row 7 is not a message: the row has no event_id") {
		t.Fatalf("%d: %s%s", code, out, errs)
	}
	if got, want := strings.Join(statuses(t, db), " "), "processed processed failed processed processed processed failed"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	var problem string
	if err := db.QueryRow(`SELECT error FROM event_outbox WHERE event_id = 'e3'`).Scan(&problem); err != nil || !strings.Contains(problem, `event_type "reply" is not one of`) {
		t.Errorf("got %s, %v", problem, err)
	}
	list := taketest.Records(t, th)
	if len(list) != 3 || list[0].EventID != "e1" || list[1].EventID != "e2" || list[2].EventID != "e6" {
		t.Fatalf("got %+v", list)
	}
	for _, want := range []string{`"thread_id":9007199254740993`, `"content_preview":"Hi"`, `"depth":2`, `"big":12345678901234567890`, `"dedupe_key":"reply:8801:5"`} {
		if !strings.Contains(string(list[0].Payload), want) {
			t.Errorf("no %s in %s", want, list[0].Payload)
		}
	}
	if !strings.Contains(string(list[1].Payload), `"payload":"not an object"`) || list[2].AvailableAt != "2100-01-01T00:00:00.000Z" {
		t.Errorf("got %s, %s", list[1].Payload, list[2].AvailableAt)
	}

	// Rows without an event_id, when their source has a name; and those that were taken before.
	if _, err := db.Exec(`UPDATE event_outbox SET status = 'pending' WHERE event_id IS NULL OR event_id IN ('e1', 'e2')`); err != nil {
		t.Fatal(err)
	}
	code, out, errs = run("outbox", "take", "--thread", th.Dir(), "--from", "sqlite:"+file, "--source-name", "forum", "--json")
	if code != 0 || out != `{"taken":1,"duplicates":2,"refused":0}`+"\n" {
		t.Fatalf("%d: %s%s", code, out, errs)
	}
	if list := taketest.Records(t, th); len(list) != 4 || list[3].EventID != "forum:7" {
		t.Errorf("got %+v", list)
	}
}

// O-02: rows that are not messages stay as they are, hold up no batch, and make the exit code 1.
func TestTakeLeavesRefused(t *testing.T) {
	file, db := newTable(t, `INSERT INTO event_outbox (event_id, event_type, thread_id) VALUES ('b1', 'reply', 1), ('b2', 'reply', 2), ('e1', 'thread.created', 3), ('b3', 'reply', 4), ('e2', 'thread.created', 5)`)
	th := taketest.NewThread(t)
	args := []string{"outbox", "take", "--thread", th.Dir(), "--from", "sqlite:" + file, "--batch", "1"}
	for _, want := range []string{"Took 2 messages; 0 were duplicates, 3 were refused\n", "Took 0 messages; 0 were duplicates, 3 were refused\n"} {
		code, out, errs := run(args...)
		if code != 1 || out != want || !strings.Contains(errs, "Error: rows that stay pending: 3;") {
			t.Errorf("%d: %s%s", code, out, errs)
		}
		if got := strings.Join(statuses(t, db), " "); got != "pending pending processed pending processed" {
			t.Errorf("got %s", got)
		}
	}
	if code, out, errs := run(append(args, "--mark-refused")...); code != 0 || strings.Join(statuses(t, db), " ") != "failed failed processed failed processed" {
		t.Errorf("%d: %s%s %v", code, out, errs, statuses(t, db))
	}
}

// O-02: a row that the database refuses to mark undoes no other and holds up none; a table that
// refuses each row is an error before the first one is stored.
func TestTakeRowsThatCannotBeMarked(t *testing.T) {
	insert := `INSERT INTO event_outbox (event_id, event_type, thread_id) VALUES ('e1', 'thread.created', 1), ('e2', 'thread.created', 2), ('e3', 'thread.created', 3), ('e4', 'thread.created', 4)`
	for _, trigger := range []string{
		`BEFORE UPDATE ON event_outbox WHEN %s BEGIN SELECT RAISE(ABORT, 'locked by the application'); END`,
		`BEFORE UPDATE ON event_outbox WHEN %s BEGIN SELECT RAISE(FAIL, 'locked by the application'); END`,
		`BEFORE UPDATE ON event_outbox WHEN %s BEGIN SELECT RAISE(ROLLBACK, 'locked by the application'); END`,
		`BEFORE UPDATE ON event_outbox WHEN %s BEGIN SELECT RAISE(IGNORE); END`,
		`AFTER UPDATE ON event_outbox WHEN %s BEGIN UPDATE event_outbox SET status = 'pending' WHERE rowid = new.rowid; END`,
	} {
		file, db := newTable(t, insert, "CREATE TRIGGER some "+fmt.Sprintf(trigger, "new.status = 'processed' AND new.thread_id IN (1, 3)"))
		th := taketest.NewThread(t)
		args := []string{"outbox", "take", "--thread", th.Dir(), "--from", "sqlite:" + file, "--batch", "2"}
		code, out, errs := run(args...)
		if code != 1 || out != "Took 4 messages; 0 were duplicates, 0 were refused\n" || !strings.Contains(errs, "Error: rows that stay pending: 2;") || !strings.Contains(errs, "Warning: the row 3 stays pending: ") {
			t.Errorf("%s: %d: %s%s", trigger, code, out, errs)
		}
		if got := strings.Join(statuses(t, db), " "); got != "pending processed pending processed" {
			t.Errorf("%s: got %s", trigger, got)
		}
		if _, err := db.Exec(`INSERT INTO event_outbox (event_id, event_type, thread_id) VALUES ('f', 'thread.created', 10)`); err != nil {
			t.Fatal(err)
		}
		if code, out, errs = run(args...); code != 1 || !strings.HasPrefix(out, "Took 1 messages; 0") || statuses(t, db)[4] != "processed" { // behind two that stay
			t.Errorf("%s: %d: %s%s", trigger, code, out, errs)
		}
		file, db = newTable(t, insert, "CREATE TRIGGER all_rows "+fmt.Sprintf(trigger, "new.status = 'processed'"))
		th = taketest.NewThread(t)
		args[3], args[5] = th.Dir(), "sqlite:"+file
		code, out, errs = run(args...)
		if code != 1 || out != "" || !strings.Contains(errs, "Error: the database refuses to mark the rows processed: ") || len(taketest.Records(t, th)) != 0 {
			t.Errorf("%s: %d: %s%s", trigger, code, out, errs)
		}
		if got := strings.Join(statuses(t, db), " "); got != "pending pending pending pending" {
			t.Errorf("%s: got %s", trigger, got)
		}
	}
	// failed is tried only if it is going to be written
	file, _ := newTable(t, insert, `CREATE TRIGGER no BEFORE UPDATE ON event_outbox WHEN new.status = 'failed' BEGIN SELECT RAISE(ABORT, 'no failures'); END`)
	th := taketest.NewThread(t)
	args := []string{"outbox", "take", "--thread", th.Dir(), "--from", "sqlite:" + file}
	if code, _, errs := run(append(args, "--mark-refused")...); code != 1 || !strings.Contains(errs, "refuses to mark the rows failed: ") || len(taketest.Records(t, th)) != 0 {
		t.Errorf("%d: %s", code, errs)
	}
	if code, _, errs := run(args...); code != 0 || len(taketest.Records(t, th)) != 4 {
		t.Errorf("%d: %s", code, errs)
	}
	// and so is the key
	file, _ = newTable(t, `CREATE TABLE bare (event_type, thread_id, status)`, `INSERT INTO bare VALUES ('thread.created', 1, 'pending')`)
	if code, out, errs := run("outbox", "take", "--thread", th.Dir(), "--from", "sqlite:"+file, "--table", "bare"); code != 1 || out != "" || !strings.Contains(errs, "has no column event_id - give --source-name") {
		t.Errorf("%d: %s%s", code, out, errs)
	}
}

// Rows that another taker marks first are not a fault of a trigger.
func TestTakeBehindAnother(t *testing.T) {
	t.Cleanup(func() { take.Reached = func(string) {} })
	for _, at := range []string{"read", "stored"} {
		file, db := newTable(t, `INSERT INTO event_outbox (event_id, event_type, thread_id) VALUES ('e1', 'thread.created', 1)`)
		th := taketest.NewThread(t)
		take.Reached = func(place string) {
			if place == at {
				if _, err := db.Exec(`UPDATE event_outbox SET status = 'processed'`); err != nil {
					t.Error(err)
				}
			}
		}
		if code, out, errs := run("outbox", "take", "--thread", th.Dir(), "--from", "sqlite:"+file, "--batch", "1"); code != 0 || errs != "" || len(taketest.Records(t, th)) != 1 {
			t.Errorf("%s: %d: %s%s", at, code, out, errs)
		}
	}
}

// What cannot be taken is refused, and changes nothing.
func TestTakeRefuses(t *testing.T) {
	file, db := newTable(t, `CREATE VIEW v AS SELECT * FROM event_outbox`, `CREATE TABLE other (x)`,
		`CREATE TABLE bare (event_type TEXT PRIMARY KEY, status TEXT) WITHOUT ROWID`,
		`INSERT INTO event_outbox (event_id, event_type, thread_id) VALUES ('e', 'thread.created', 1)`)
	th := taketest.NewThread(t)
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		code int
		want string
		args []string
	}{
		{2, "is neither sqlite:FILE nor postgres://", []string{"--from", "postgresql:", "--follow"}},
		{2, "is neither sqlite:FILE nor postgres://", []string{"--from", "app.db"}},
		{2, "is neither sqlite:FILE nor postgres://", []string{"--from", "sqlite:"}},
		{1, "no such file", []string{"--from", "sqlite:" + text + ".none"}},
		{1, "is not a SQLite database", []string{"--from", "sqlite:" + text}},
		{1, "has no table", []string{"--from", "sqlite:" + file, "--table", "nothing"}},
		{1, "has no table", []string{"--from", "sqlite:" + file, "--table", "v"}},
		{1, "has no column event_type", []string{"--from", "sqlite:" + file, "--table", "other"}},
		{1, "has no rowid", []string{"--from", "sqlite:" + file, "--table", "bare"}},
		{2, "--batch", []string{"--from", "sqlite:" + file, "--batch", "0"}},
	} {
		code, out, errs := run(append([]string{"outbox", "take", "--thread", th.Dir()}, c.args...)...)
		if code != c.code || out != "" || !strings.HasPrefix(errs, "Error: ") || !strings.Contains(errs, c.want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%q: %d, %s%s", c.args, code, out, errs)
		}
	}
	if got := statuses(t, db); got[0] != "pending" || len(taketest.Records(t, th)) != 0 {
		t.Errorf("got %v", got)
	}
}

// O-02.
func TestKilledTake(t *testing.T) {
	taketest.Killed(t, program(), func(t *testing.T, rows int) taketest.Database {
		var insert []string
		for i := range rows {
			insert = append(insert, fmt.Sprintf(`INSERT INTO event_outbox (event_id, event_type, thread_id) VALUES ('e%d', 'thread.created', %d)`, i, i))
		}
		file, db := newTable(t, insert...)
		return taketest.Database{Args: []string{"--from", "sqlite:" + file}, Statuses: func(t *testing.T) []string { return statuses(t, db) }}
	})
}
