//go:build unix

package verb

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"thread/internal/cli"
	"thread/internal/verb/core"
	"thread/internal/verb/take"
	"thread/internal/verb/take/taketest"
	"thread/net/internal/pgtest"
	"thread/net/servers"
)

func program() *cli.Program {
	servers.Use()
	return cli.NewProgram("thread-net", core.Verbs, Verbs)
}

func TestMain(m *testing.M) { taketest.Main(m, program()) }

func run(args ...string) (code int, stdout, stderr string) { return taketest.Run(program(), args...) }

// app is the database of an application, in a separate schema.
type app struct {
	t      *testing.T
	conn   *pgconn.PgConn
	schema string
	url    string
	name   string // of the takers' connections
}

const outboxSQL = `CREATE TABLE event_outbox (id bigserial PRIMARY KEY, event_id text UNIQUE, event_type text NOT NULL, thread_id bigint NOT NULL, comment_id bigint,
  target_user_id bigint, target_user_type text, actor_user_id bigint, payload jsonb, status text NOT NULL DEFAULT 'pending', retry_count integer NOT NULL DEFAULT 0,
  available_at timestamptz NOT NULL DEFAULT now(), error text, created_at timestamptz NOT NULL DEFAULT now(), dedupe_key text)`

func newApp(t *testing.T, statements ...string) *app {
	t.Helper()
	u, err := url.Parse(pgtest.Schema(t))
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	a := &app{t: t, schema: q.Get("schema")}
	a.name = "taker_" + strings.TrimPrefix(a.schema, "thread_test_")
	q.Del("schema")
	q.Del("thread")
	q.Set("application_name", a.name)
	u.RawQuery = q.Encode()
	a.url = u.String()
	q.Set("application_name", "app")
	u.RawQuery = q.Encode()
	if a.conn, err = pgconn.Connect(context.Background(), u.String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.conn.Close(context.Background()) })
	a.do("CREATE SCHEMA "+a.schema+"; SET search_path = "+a.schema, strings.Join(statements, ";\n"))
	return a
}

func (a *app) do(statements ...string) {
	a.t.Helper()
	for _, s := range statements {
		a.ask(s)
	}
}

// ask returns the first column of the last statement's rows.
func (a *app) ask(sql string) (list []string) {
	a.t.Helper()
	results, err := a.conn.Exec(context.Background(), sql).ReadAll()
	if err != nil {
		a.t.Fatalf("%s: %v", sql, err)
	}
	for _, row := range results[len(results)-1].Rows {
		if len(row) > 0 {
			list = append(list, string(row[0]))
		}
	}
	return list
}

func (a *app) statuses(*testing.T) []string {
	return a.ask(`SELECT status FROM event_outbox ORDER BY id`)
}

// settle waits until the server has ended the sessions of takers that were killed. What
// they did has no effect on others from then on.
func (a *app) settle(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		if n := a.ask(`SELECT count(*) FROM pg_stat_activity WHERE application_name = '` + a.name + `'`); n[0] == "0" {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the server keeps the session of a dead process")
		}
		a.ask("SELECT pg_sleep(0.01)")
	}
}

func (a *app) args(more ...string) []string {
	return append([]string{"--from", a.url, "--table", a.schema + ".event_outbox"}, more...)
}

func newRows(t *testing.T, rows int) *app {
	return newApp(t, outboxSQL, fmt.Sprintf(`INSERT INTO event_outbox (event_id, event_type, thread_id) SELECT 'e' || i, 'thread.created', i FROM generate_series(0, %d) i`, rows-1))
}

func (a *app) database() taketest.Database {
	return taketest.Database{Args: a.args(), Statuses: a.statuses, Settle: a.settle}
}

// again makes the rows pending in a table that is used for another turn.
func (a *app) again() { a.do(`UPDATE event_outbox SET status = 'pending'`) }

// O-02.
func TestKilledTake(t *testing.T) {
	var a *app
	taketest.Killed(t, program(), func(_ *testing.T, rows int) taketest.Database {
		if a == nil {
			a = newRows(t, rows)
		}
		a.again()
		return a.database()
	})
}

// O-02: the same when it is the server's side that dies.
func TestTakeCutOff(t *testing.T) {
	const rows = 6
	t.Cleanup(func() { take.Reached = func(string) {} })
	a := newRows(t, rows)
	for n, last := 1, false; !last; n++ {
		a.again()
		th := taketest.NewThread(t)
		args := append([]string{"outbox", "take", "--thread", th.Dir(), "--batch", "2"}, a.args()...)
		i, at := 0, ""
		take.Reached = func(place string) {
			if i++; i == n {
				at = place
				if got := a.ask(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '` + a.name + `'`); !slices.Equal(got, []string{"t"}) {
					t.Errorf("ended %v", got)
				}
				a.settle(t)
			}
		}
		code, out, errs := run(args...)
		last = at == ""
		if want := map[bool]int{true: 0, false: 1}[last]; code != want || code == 1 && (!strings.Contains(errs, "retry; what was taken is not taken again") || strings.Count(errs, "\n") != 1) {
			t.Errorf("cut off at %s (%d): %d, %s%s", at, n, code, out, errs)
		}
		taketest.Finished(t, program(), th, a.database(), args, fmt.Sprintf("cut off at %s (%d)", at, n), rows)
	}
}

// O-07: of two that take at once each gets other rows.
func TestTwoTakers(t *testing.T) {
	const rows = 120
	a := newRows(t, rows)
	th := taketest.NewThread(t)
	args := append([]string{"outbox", "take", "--thread", th.Dir(), "--batch", "10"}, a.args()...)
	again := append(slices.Clone(args), "--json")
	first := taketest.Command(2, args...) // has stored its rows, and holds them
	out, err := first.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	reached := make([]byte, len("reached stored"))
	if _, err := out.Read(reached); err != nil || string(reached) != "reached stored" {
		t.Fatalf("%q, %v", reached, err)
	}
	code, stdout, stderr := run(again...)
	if code != 0 || stdout != fmt.Sprintf(`{"taken":%d,"duplicates":0,"refused":0}`+"\n", rows-10) {
		t.Errorf("%d: %s%s", code, stdout, stderr)
	}
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait()
	a.settle(t)
	if code, stdout, stderr = run(again...); code != 0 || stdout != `{"taken":0,"duplicates":10,"refused":0}`+"\n" {
		t.Errorf("%d: %s%s", code, stdout, stderr)
	}
	taketest.Finished(t, program(), th, a.database(), args, "two at once", rows)
}

// O-02: values come as they are, whatever types the columns have, and a row that is not a
// message holds up nothing.
func TestTakeTypes(t *testing.T) {
	a := newApp(t, `CREATE TYPE state AS ENUM ('pending', 'processed', 'failed')`, `CREATE DOMAIN number AS bigint`,
		`CREATE TABLE event_outbox ("ID" integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, event_id uuid, event_type varchar(40), thread_id numeric, comment_id number,
		 target_user_id smallint, target_user_type text, actor_user_id text, payload json, status state DEFAULT 'pending', available_at timestamp, error varchar(20),
		 created_at timestamptz, photo bytea)`,
		`SET TimeZone = 'Asia/Kolkata'`,
		`INSERT INTO event_outbox (event_id, event_type, thread_id, comment_id, target_user_id, target_user_type, actor_user_id, payload, created_at) VALUES
		 ('00000000-0000-0000-0000-000000000001', 'comment.replied', 123456789012345678901234567890, 9007199254740993, 5, 'agent', '12', '{"content_preview":"नमस्ते","big":12345678901234567890,"depth":2}', '2026-02-26 18:00:15.25+05:30'),
		 ('00000000-0000-0000-0000-000000000002', 'thread.created', 7, null, null, null, null, '[1, 2]', null)`,
		`INSERT INTO event_outbox (event_id, event_type, thread_id, available_at) VALUES
		 ('00000000-0000-0000-0000-000000000003', 'thread.created', 7, '2100-01-01 00:00'),
		 ('00000000-0000-0000-0000-000000000004', 'thread.created', 7, 'infinity'),
		 ('00000000-0000-0000-0000-000000000005', 'thread.created', 7.5, null),
		 ('00000000-0000-0000-0000-000000000006', 'it''s none', 7, null), (null, 'thread.created', 7, null)`,
		`INSERT INTO event_outbox (event_id, event_type, thread_id, payload) VALUES ('00000000-0000-0000-0000-000000000008', 'thread.created', 7, '{"a":"\u0000"}'),
		 ('00000000-0000-0000-0000-000000000009', 'comment.replied', 7, '{"depth":4}')`)
	th := taketest.NewThread(t)
	args := append([]string{"outbox", "take", "--thread", th.Dir(), "--mark-refused"}, a.args()...)
	code, out, errs := run(args...)
	if code != 0 || out != "Took 5 messages; 0 were duplicates, 4 were refused\n" || !strings.Contains(errs, "the row 7 is not a message: the row has no event_id") {
		t.Fatalf("%d: %s%s", code, out, errs)
	}
	if got, want := strings.Join(a.ask(`SELECT status FROM event_outbox ORDER BY "ID"`), " "), "processed processed processed failed processed failed failed processed failed"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := a.ask(`SELECT error FROM event_outbox WHERE "ID" = 6`)[0]; got != `event_type "it's non` {
		t.Errorf("got %s", got)
	}
	list := taketest.Records(t, th)
	for i, wants := range map[int][]string{
		0: {`"thread_id":123456789012345678901234567890`, `"comment_id":9007199254740993`, `"target_user_id":5`, `"actor_user_id":"12"`, `"big":12345678901234567890`, "नमस्ते", `"depth":2`, `"occurred_at":"2026-02-26T12:30:15.250Z"`},
		1: {`"payload":"[1, 2]"`},
		3: {`"thread_id":"7.5"`},
	} {
		for _, want := range wants {
			if !strings.Contains(string(list[i].Payload), want) {
				t.Errorf("no %s in %s", want, list[i].Payload)
			}
		}
	}
	if list[2].AvailableAt != "2100-01-01T00:00:00.000Z" {
		t.Errorf("got %s", list[2].AvailableAt)
	}

	// Rows without an event_id, when their source has a name; and those that were taken before.
	a.do(`UPDATE event_outbox SET status = 'pending' WHERE "ID" IN (1, 2, 7)`)
	if code, out, errs = run(append(args, "--source-name", "forum", "--json")...); code != 0 || out != `{"taken":1,"duplicates":2,"refused":0}`+"\n" {
		t.Fatalf("%d: %s%s", code, out, errs)
	}
	if got := taketest.EventIDs(t, th); got[5] != "forum:7" {
		t.Errorf("got %v", got)
	}
}

// A partitioned table without a primary key, of whose rows one is held by the application.
func TestTakePartitions(t *testing.T) {
	a := newApp(t, `CREATE TABLE event_outbox (event_id text, event_type text, thread_id bigint, status text, created_at timestamp) PARTITION BY LIST (status)`,
		`CREATE TABLE open PARTITION OF event_outbox FOR VALUES IN ('pending')`, `CREATE TABLE done PARTITION OF event_outbox DEFAULT`,
		`INSERT INTO event_outbox SELECT 'e' || i, 'thread.created', i, 'pending', '2026-01-01'::timestamp + i * interval '1 s' FROM generate_series(0, 4) i`,
		`INSERT INTO event_outbox VALUES ('e5', 'reply', 1, 'pending', '2027-01-01')`)
	a.do(`BEGIN`, `SELECT FROM event_outbox WHERE event_id = 'e2' FOR UPDATE`)
	th := taketest.NewThread(t)
	args := append([]string{"outbox", "take", "--thread", th.Dir(), "--mark-refused", "--batch", "2"}, a.args()...)
	if code, out, errs := run(args...); code != 0 || out != "Took 4 messages; 0 were duplicates, 1 were refused\n" || !strings.Contains(errs, "the row without a key is not a message") {
		t.Errorf("%d: %s%s", code, out, errs)
	}
	a.do(`UPDATE event_outbox SET status = 'cancelled' WHERE event_id = 'e2'`, `COMMIT`)
	if code, out, errs := run(args...); code != 0 || !strings.HasPrefix(out, "Took 0 ") {
		t.Errorf("%d: %s%s", code, out, errs)
	}
	if got := taketest.EventIDs(t, th); !slices.Equal(got, []string{"e0", "e1", "e3", "e4"}) {
		t.Errorf("got %v", got)
	}
	if got := strings.Join(a.ask(`SELECT status FROM event_outbox ORDER BY event_id`), " "); got != "processed processed cancelled processed processed failed" {
		t.Errorf("got %s", got)
	}
}

// O-02: rows that are not messages, and rows that the database refuses to mark, stay as they are;
// they undo no other row and hold up no batch, whatever rows are ordered by.
func TestTakeLeavesRefused(t *testing.T) {
	columns := "event_id text, event_type text, thread_id bigint, status text DEFAULT 'pending'"
	for _, order := range []string{"id bigserial PRIMARY KEY", "id numeric PRIMARY KEY DEFAULT random()", "created_at timestamptz DEFAULT now()",
		"created_at timestamptz DEFAULT CASE WHEN random() < 0.5 THEN now() END", "created_at text", "other int"} {
		for _, body := range []string{"RAISE 'locked by the application'", "RETURN NULL", "NEW.status := 'pending'; RETURN NEW"} {
			a := newApp(t, "CREATE TABLE event_outbox ("+columns+", "+order+")",
				`CREATE FUNCTION locked() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.thread_id % 3 = 0 THEN `+body+`; END IF; RETURN NEW; END $$`,
				`CREATE TRIGGER locked BEFORE UPDATE ON event_outbox FOR EACH ROW EXECUTE FUNCTION locked()`,
				`INSERT INTO event_outbox (event_id, event_type, thread_id) SELECT 'e' || i, CASE WHEN i < 4 THEN 'reply' ELSE 'thread.created' END, i FROM generate_series(1, 9) i`)
			th := taketest.NewThread(t)
			args := append([]string{"outbox", "take", "--thread", th.Dir(), "--batch", "5"}, a.args()...)
			for i, batch := range []string{"5", "1"} {
				if args[5] = batch; i == 1 { // behind five that stay
					a.do(`INSERT INTO event_outbox (event_id, event_type, thread_id) VALUES ('f', 'thread.created', 10)`)
				}
				code, out, errs := run(args...)
				if code != 1 || !strings.HasPrefix(out, []string{"Took 6", "Took 1"}[i]+" messages") || !strings.Contains(errs, "Error: rows that stay pending: 5; ") {
					t.Errorf("%s, %s: %d: %s%s", order, body, code, out, errs)
				}
				want := "pending pending pending processed processed pending processed processed pending" + []string{"", " processed"}[i]
				if got := strings.Join(a.ask(`SELECT status FROM event_outbox ORDER BY event_id`), " "); got != want {
					t.Errorf("%s, %s: got %s", order, body, got)
				}
			}
			if got := len(taketest.EventIDs(t, th)); got != 7 {
				t.Errorf("%d events", got)
			}
		}
	}
}

// What cannot be taken is refused, and changes nothing.
func TestTakeRefuses(t *testing.T) {
	a := newRows(t, 1)
	role := "taker" + a.schema[len("thread_test_"):]
	a.do(`CREATE VIEW v AS SELECT * FROM event_outbox`, `CREATE TABLE other (x int)`, `CREATE TABLE odd (event_type text, "Status" text)`,
		`CREATE TABLE checked (LIKE event_outbox INCLUDING ALL, CHECK (status = 'pending'))`, `INSERT INTO checked SELECT * FROM event_outbox`,
		`CREATE TABLE kept (LIKE event_outbox INCLUDING ALL)`, `INSERT INTO kept SELECT * FROM event_outbox`,
		`CREATE FUNCTION drop() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`,
		`CREATE TRIGGER k BEFORE UPDATE ON kept FOR EACH ROW EXECUTE FUNCTION drop()`,
		`CREATE ROLE `+role+` LOGIN PASSWORD 'only-here'`)
	t.Cleanup(func() { a.do(`DROP OWNED BY `+role, `DROP ROLE `+role) })
	u, err := url.Parse(a.url)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	u.User = url.User(role)
	stranger := u.String()
	q.Set("host", "127.0.0.1")
	q.Set("port", "1")
	u.RawQuery = q.Encode()
	nowhere := u.String()
	th := taketest.NewThread(t)
	refused := func(code int, want string, args ...string) {
		t.Helper()
		got, out, errs := run(append([]string{"outbox", "take", "--thread", th.Dir()}, args...)...)
		if got != code || out != "" || !strings.HasPrefix(errs, "Error: ") || !strings.Contains(errs, want) || strings.Count(errs, "\n") != 1 || strings.Contains(errs, "s3cret") {
			t.Errorf("%q: %d, %s%s", args, got, out, errs)
		}
	}
	refused(2, "is neither sqlite:FILE nor postgres://", "--from", "mysql:app")
	refused(1, "app.db", "--from", "sqlite:app.db")
	refused(2, "is not the URL of a database", "--from", "postgres://%zz")
	refused(2, "password", "--from", "postgres://app:s3cret@127.0.0.1/app")
	refused(2, "password", "--from", "postgres://app@127.0.0.1/app?password=s3cret")
	refused(1, "connection refused", "--from", nowhere)
	refused(1, "has no table nothing", "--from", a.url, "--table", "nothing")
	refused(1, "no such outbox table", "--from", a.url, "--table", `"`)
	refused(1, "has no table", "--from", a.url, "--table", a.schema+".v")
	refused(1, "has no column event_type", "--from", a.url, "--table", a.schema+".other")
	refused(1, "no such outbox table", "--from", a.url, "--table", a.schema+".odd")
	refused(1, "violates check constraint", "--from", a.url, "--table", a.schema+".checked")
	refused(1, "a trigger of the table leaves the row pending", "--from", a.url, "--table", a.schema+".kept", "--batch", "1")
	refused(1, "there is no thread at ", append(a.args(), "--thread", a.url+"&thread=x")...)

	t.Setenv("PGPASSWORD", "only-here")
	from := append([]string{"--from", stranger}, a.args()[2:]...)
	refused(1, "permission denied for schema", from...)
	a.do(`GRANT USAGE ON SCHEMA ` + a.schema + ` TO ` + role)
	refused(1, "it may not", from...)
	a.do(`GRANT SELECT ON event_outbox TO ` + role)
	refused(1, "it may not UPDATE the column status", from...)
	a.do(`GRANT UPDATE (status) ON event_outbox TO ` + role)
	refused(1, "it may not UPDATE the column error", from...)
	if got := a.statuses(t); got[0] != "pending" || slices.Contains(taketest.EventIDs(t, th), "e0") && len(taketest.EventIDs(t, th)) != 1 {
		t.Errorf("got %v, %v", got, taketest.EventIDs(t, th))
	}
	a.do(`GRANT UPDATE (error) ON event_outbox TO ` + role)
	if code, out, errs := run(append([]string{"outbox", "take", "--thread", th.Dir()}, from...)...); code != 0 || !strings.HasPrefix(out, "Took ") {
		t.Errorf("%d: %s%s", code, out, errs)
	}
	if got := a.statuses(t); got[0] != "processed" {
		t.Errorf("got %v", got)
	}
}
