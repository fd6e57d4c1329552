//go:build (linux && (386 || amd64 || arm || arm64 || loong64 || ppc64le || riscv64 || s390x)) || (darwin && (amd64 || arm64)) || (freebsd && (amd64 || arm64)) || (netbsd && amd64) || (openbsd && (amd64 || arm64))

package compat

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"thread/engine"
	"thread/event"
)

// createSQLite makes a thread directory as the TypeScript tool does, and returns
// a connection to its database.
func createSQLite(t rapid.TB, dir string) *sql.DB {
	t.Helper()
	for _, d := range []string{dir, dir + "/run", dir + "/logs"} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	db, err := sql.Open("sqlite", "file:"+dir+"/events.db?_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_pragma=busy_timeout(4000)")
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	for _, o := range schema {
		mustExec(t, db, o.sql)
	}
	return db
}

func mustExec(t rapid.TB, db *sql.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.Exec(query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// content returns every row of every table, with storage classes and bytes.
func content(t rapid.TB, dir string) (rows []string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+dir+"/events.db?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, query := range []string{
		`SELECT type || name || tbl_name || sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY type = 'table' DESC, rowid`,
		`SELECT id || '|' || quote(created_at) || hex(created_at) || '|' || hex(source) || '|' || hex(type) || '|' || typeof(subtype) || hex(subtype) || '|' || typeof(content) || hex(content) FROM events ORDER BY id`,
		`SELECT rowid || '|' || hex(consumer_id) || '|' || hex(handler_cmd) || '|' || typeof(filter) || hex(filter) FROM subscriptions ORDER BY rowid`,
		`SELECT rowid || '|' || hex(consumer_id) || '|' || last_acked_id || '|' || hex(updated_at) FROM consumer_progress ORDER BY rowid`,
		`SELECT name || seq FROM sqlite_sequence`,
		`SELECT user_version FROM pragma_user_version`,
	} {
		rs, err := db.Query(query)
		if err != nil {
			t.Fatal(query, err)
		}
		for rs.Next() {
			var s string
			if err := rs.Scan(&s); err != nil {
				t.Fatal(err)
			}
			rows = append(rows, s)
		}
		if err := rs.Err(); err != nil {
			t.Fatal(err)
		}
		rs.Close()
	}
	return rows
}

func sameContent(t rapid.TB, a, b string) {
	t.Helper()
	x, y := content(t, a), content(t, b)
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			t.Fatalf("row %d: %s\nbecame %s", i, x[i], y[i])
		}
	}
	if len(x) != len(y) {
		t.Fatalf("%d rows became %d", len(x), len(y))
	}
}

// genText makes texts of the kinds that have gone wrong somewhere before.
var genText = rapid.OneOf(
	rapid.SampledFrom([]string{"", "a", "self", "\x00", "a\x00b", "\xff\xfe", "\xed\xa0\x80", "'", "\"", "100", "1e3", " 7", "2026-03-18T10:30:00.123Z", "2026-03-18 10:30:00", "日本", "\u2028", "x'41'"}),
	rapid.String(),
	rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 40), func(b []byte) string { return string(b) }),
)

func genOptional(t *rapid.T, label string) any {
	if rapid.Bool().Draw(t, label+" null") {
		return nil
	}
	return genText.Draw(t, label)
}

// quickly lets a test make that many checks where -rapid.checks is not given.
func quickly(t *testing.T, n int) {
	t.Helper()
	checks := flag.Lookup("rapid.checks")
	if checks.Value.String() == checks.DefValue {
		must(t, checks.Value.Set(strconv.Itoa(n)))
		t.Cleanup(func() { must(t, checks.Value.Set(checks.DefValue)) })
	}
}

// TestRoundTripSQLite: SQLite → ours → SQLite changes nothing.
func TestRoundTripSQLite(t *testing.T) {
	quickly(t, 40)
	root := t.TempDir()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		base := filepath.Join(root, fmt.Sprint(n))
		defer os.RemoveAll(base)
		db := createSQLite(rt, base+"/a")
		defer db.Close()
		if rapid.Bool().Draw(rt, "own schema") {
			mustExec(rt, db, `CREATE INDEX mine ON events(subtype) WHERE subtype IS NOT NULL`)
			mustExec(rt, db, `CREATE VIEW recent AS SELECT * FROM events ORDER BY id DESC LIMIT 3`)
			mustExec(rt, db, `CREATE TRIGGER watch AFTER INSERT ON events BEGIN UPDATE consumer_progress SET updated_at = 'x' WHERE 0; END`)
			mustExec(rt, db, `PRAGMA user_version = 7`)
		}
		id := int64(0)
		mustExec(rt, db, "BEGIN")
		for range rapid.IntRange(0, 30).Draw(rt, "events") {
			id += rapid.Int64Range(1, 5).Draw(rt, "gap")
			if rapid.IntRange(0, 20).Draw(rt, "far") == 0 {
				id += rapid.Int64Range(0, 1<<50).Draw(rt, "jump")
			}
			mustExec(rt, db, `INSERT INTO events VALUES (?,?,?,?,?,?)`, id, genText.Draw(rt, "at"), genText.Draw(rt, "source"), genText.Draw(rt, "type"), genOptional(rt, "subtype"), genText.Draw(rt, "content"))
		}
		if id > 0 {
			mustExec(rt, db, `UPDATE sqlite_sequence SET seq = seq + ?`, rapid.Int64Range(0, 9).Draw(rt, "counter"))
			if rapid.Bool().Draw(rt, "delete") {
				mustExec(rt, db, `DELETE FROM events WHERE id % 3 = 0`)
			}
		}
		for range rapid.IntRange(0, 6).Draw(rt, "subscriptions") {
			mustExec(rt, db, `INSERT OR IGNORE INTO subscriptions VALUES (?,?,?)`, "c"+genText.Draw(rt, "consumer"), genText.Draw(rt, "handler"), genOptional(rt, "filter"))
		}
		mustExec(rt, db, `DELETE FROM subscriptions WHERE rowid = 2`)
		for range rapid.IntRange(0, 6).Draw(rt, "progress") {
			mustExec(rt, db, `INSERT OR REPLACE INTO consumer_progress VALUES (?,?,?)`, "c"+genText.Draw(rt, "consumer"), rapid.Int64().Draw(rt, "acked"), genText.Draw(rt, "updated"))
		}
		mustExec(rt, db, "COMMIT")
		// The WAL is not checkpointed: the connection stays open.
		ctx := context.Background()
		r, err := Import(ctx, base+"/a", ImportOptions{To: base + "/b"})
		if err != nil {
			rt.Fatal(err, r.Faults)
		}
		th, err := engine.Open(base + "/b")
		if err != nil {
			rt.Fatal(err)
		}
		if _, err := Export(ctx, th, base+"/c", nil); err != nil {
			rt.Fatal(err)
		}
		sameContent(rt, base+"/a", base+"/c")
		if n%8 == 1 {
			sameDump(rt, base+"/a", base+"/c")
		}
		// What comes next has the id that SQLite would have given.
		e, err := th.Push(ctx, event.Draft{Source: "s", Type: "t", Content: "next"})
		if err != nil {
			rt.Fatal(err)
		}
		next := insertID(rt, base+"/c")
		if e.ID != next {
			rt.Fatalf("push gave id %d, SQLite gives %d", e.ID, next)
		}
	})
}

func insertID(t rapid.TB, dir string) (id int64) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+dir+"/events.db")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRow(`INSERT INTO events (source, type, content) VALUES ('s', 't', 'next') RETURNING id`).Scan(&id); err != nil {
		t.Fatal(err)
	}
	return id
}
