package pgmirror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"pgregory.net/rapid"

	"thread/history"
	"thread/internal/historymirror"
	"thread/internal/historymirror/mirrortest"
	"thread/net/internal/pgtest"
	"thread/net/pgstore"
)

var must = mirrortest.Must

// database is where a test has its mirrors: in a schema, and in others whose names begin
// with that.
type database struct {
	config *pgconn.Config // of the mirrors
	conn   *pgconn.PgConn
	schema string
	url    string
}

func newDatabase(t *testing.T) *database {
	t.Helper()
	u, err := url.Parse(pgtest.Schema(t))
	must(t, err)
	q := u.Query()
	q.Del("thread")
	q.Set("application_name", q.Get("schema"))
	u.RawQuery = q.Encode()
	d := &database{url: u.String()}
	d.config, d.schema, err = pgstore.ParseSchema(d.url, DefaultSchema)
	must(t, err)
	own := d.config.Copy()
	own.RuntimeParams["application_name"] = "test"
	d.conn, err = pgconn.ConnectConfig(context.Background(), own)
	must(t, err)
	t.Cleanup(func() {
		d.clear(t)
		_ = d.conn.Close(context.Background())
	})
	return d
}

// clear drops all that the test has made.
func (d *database) clear(t rapid.TB) {
	t.Helper()
	for _, row := range d.ask(t, `SELECT nspname FROM pg_namespace WHERE starts_with(nspname, '`+d.schema+`')`) {
		d.ask(t, `SET client_min_messages = error; DROP SCHEMA IF EXISTS `+row[0]+` CASCADE`)
	}
}

// ask returns the rows of the last statement.
func (d *database) ask(t rapid.TB, sql string) (rows [][]string) {
	t.Helper()
	results, err := d.conn.Exec(context.Background(), sql).ReadAll()
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	for _, row := range results[len(results)-1].Rows {
		var list []string
		for _, v := range row {
			list = append(list, string(v))
		}
		rows = append(rows, list)
	}
	return rows
}

// in is ask in the schema.
func (d *database) in(t rapid.TB, sql string) [][]string {
	t.Helper()
	return d.ask(t, "SET search_path = "+d.schema+"; "+sql)
}

// has reports whether there is a mirror.
func (d *database) has(t rapid.TB) bool {
	return len(d.ask(t, `SELECT FROM pg_tables WHERE schemaname = '`+d.schema+`' AND tablename = 'thread_mirror'`)) > 0
}

// settle waits until the server has ended the sessions that were cut off.
func (d *database) settle(t rapid.TB, open int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		if n := d.ask(t, `SELECT count(*) FROM pg_stat_activity WHERE application_name = '`+d.schema+`'`)[0][0]; n == strconv.Itoa(open) {
			return
		} else if time.Now().After(end) {
			t.Fatalf("%s sessions, want %d", n, open)
		}
		d.ask(t, "SELECT pg_sleep(0.01)")
	}
}

func (d *database) open(t rapid.TB, h *history.History, workspaces ...string) *Mirror {
	t.Helper()
	m, err := Open(context.Background(), h, d.config, d.schema, workspaces)
	must(t, err)
	return m
}

// sync opens the mirror, syncs once and closes it.
func (d *database) sync(t rapid.TB, h *history.History, workspaces ...string) (rebuilt string) {
	t.Helper()
	m := d.open(t, h, workspaces...)
	rebuilt = m.Rebuilt
	_, err := m.Sync(context.Background())
	must(t, errors.Join(err, m.Close()))
	return rebuilt
}

// mirrored returns the rows of the mirror.
func (d *database) mirrored(t rapid.TB) []string {
	t.Helper()
	var list []mirrortest.Row
	for _, table := range mirrored {
		if table.Entity == historymirror.HistoryEvents.Entity {
			continue // it has no rows of the history
		}
		var names []string
		columns := table.Columns()
		for _, c := range columns {
			if name := c.Name; c.Kind == historymirror.Time {
				names = append(names, `to_char(`+name+` AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`)
			} else {
				names = append(names, name)
			}
		}
		d.ask(t, "SET search_path = "+d.schema)
		r := d.conn.ExecParams(context.Background(), "SELECT "+strings.Join(names, ", ")+" FROM "+table.Name, nil, nil, nil, nil).Read()
		must(t, r.Err)
		for _, row := range r.Rows {
			values := make([]any, len(columns))
			for i, c := range columns {
				if c.Name == "heartbeat_at" || row[i] == nil {
					continue
				}
				if values[i] = string(row[i]); c.Kind == historymirror.Number {
					values[i] = json.Number(row[i])
				}
			}
			list = append(list, mirrortest.Row{Table: table.Name, Values: values})
		}
	}
	return mirrortest.Lines(t, list)
}

// truth returns the rows of the history that has says belong into the mirror.
func truth(t rapid.TB, h *history.History, has func(workspace string) bool) []string {
	t.Helper()
	rows := mirrortest.Truth(t, h, mirrored, has)
	for _, r := range rows {
		for i, v := range r.Values {
			if text, ok := v.(string); ok {
				r.Values[i] = fit(historymirror.Text, text)
			}
		}
	}
	return mirrortest.Lines(t, rows)
}

func anyWorkspace(string) bool { return true }

// sameAsTruth fails unless the mirror has the rows of the history, and says so.
func (d *database) sameAsTruth(t rapid.TB, h *history.History, has func(workspace string) bool) {
	t.Helper()
	mirrortest.Same(t, truth(t, h, has), d.mirrored(t))
	head, err := h.Head(context.Background())
	must(t, err)
	for _, s := range d.in(t, `SELECT workspace_id, last_event_id, status, error_message IS NULL, last_synced_at BETWEEN now() - interval '1 h' AND now() + interval '1 h' FROM mirror_state`) {
		if want := fmt.Sprint(head, " idle t t"); strings.Join(s[1:], " ") != want || !has(s[0]) {
			t.Errorf("mirror_state: %v, want %s", s, want)
		}
	}
}

// cut ends a connection as the death of its process does.
func cut(m *Mirror) {
	_ = m.conn.Conn().Close()
	m.conn = nil
}

// TestMirrorEqualsTruth is H-17 and H-08: after any interleaving of writes with mirrors,
// and after any end of one, wherever that came, the next sync makes the schema equal the
// history. Ends are those between two transactions and in the middle of one; also, the
// schema is dropped, tables of it are dropped or changed, its state is set back, several
// write it at once, connections are cut, and the log is pruned beyond it. More with
// -rapid.checks 1000.
func TestMirrorEqualsTruth(t *testing.T) {
	ctx := context.Background()
	d := newDatabase(t)
	base := t.TempDir()
	quickly(t, 2) // each makes the schema a dozen times
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp(base, "")
		must(t, err)
		defer os.RemoveAll(dir)
		d.clear(t)
		h := mirrortest.NewHistory(t, dir+"/inbox")
		defer h.Close()
		open := func(t *rapid.T) *Mirror {
			m := d.open(t, h)
			m.m.Page = rapid.IntRange(1, 6).Draw(t, "page")
			return m
		}
		stays := open(t) // one that is there all the time
		defer stays.Close()
		still := func() int {
			if stays.conn == nil {
				return 0
			}
			return 1
		}
		actions, has := mirrortest.Writes(h)
		maps.Copy(actions, mirrortest.Two(func(t *rapid.T) (mirrortest.Mirror, *historymirror.Mirror) { m := open(t); return m, m.m }))
		maps.Copy(actions, map[string]func(*rapid.T){
			"sync":             func(t *rapid.T) { d.sync(t, h) },
			"sync of the same": func(t *rapid.T) { _, err := stays.Sync(ctx); must(t, err) },
			"killed between two transactions": func(t *rapid.T) {
				m := open(t)
				for range rapid.IntRange(0, 3).Draw(t, "pages") {
					must(t, mirrortest.OnePage(m.m, m.m.Write))
				}
				cut(m)
			},
			"killed in a transaction": func(t *rapid.T) {
				m := open(t)
				must(t, mirrortest.OnePage(m.m, func(ctx context.Context, b *historymirror.Batch) error {
					statements, err := m.m.Statements(b)
					must(t, err)
					err = m.transact(ctx, func(ctx context.Context) error {
						if _, err := m.batch(ctx, statements[:rapid.IntRange(0, len(statements)).Draw(t, "statements")]...); err != nil {
							return err
						}
						_ = m.conn.Conn().Close()
						return io.ErrUnexpectedEOF
					})
					if !errors.Is(err, io.ErrUnexpectedEOF) || m.conn != nil {
						t.Errorf("cut off: %v", err)
					}
					return nil
				}))
				must(t, m.Close())
				d.settle(t, still())
			},
			"connection ended": func(t *rapid.T) {
				d.ask(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '`+d.schema+`'`)
				d.settle(t, 0)
				_, err := stays.Sync(ctx)
				must(t, err)
			},
			"removed": func(t *rapid.T) {
				d.ask(t, `SET client_min_messages = error; DROP SCHEMA IF EXISTS `+d.schema+` CASCADE`)
				if rapid.Bool().Draw(t, "empty") {
					d.ask(t, "CREATE SCHEMA "+d.schema)
				}
			},
			"damaged": func(t *rapid.T) {
				if !d.has(t) {
					t.Skip("there is none")
				}
				d.in(t, "SET client_min_messages = error; "+rapid.SampledFrom([]string{
					"DROP TABLE IF EXISTS runs CASCADE", "DROP TABLE IF EXISTS sessions CASCADE", "ALTER TABLE IF EXISTS run_steps RENAME output TO o",
					"ALTER TABLE messages DROP CONSTRAINT IF EXISTS messages_pkey", "DROP TABLE mirror_state", "DELETE FROM thread_mirror",
					"INSERT INTO thread_mirror SELECT * FROM thread_mirror",
				}).Draw(t, "damage"))
			},
			"set back": func(t *rapid.T) {
				m := open(t)
				d.in(t, fmt.Sprint("UPDATE mirror_state SET last_event_id = greatest(0, last_event_id - ", rapid.IntRange(0, 20).Draw(t, "by"), ")"))
				must(t, m.Close())
			},
			"state lost": func(t *rapid.T) {
				m := open(t)
				d.in(t, "DELETE FROM mirror_state")
				must(t, m.Close())
			},
		})
		damage := actions["damaged"]
		actions["damaged"] = func(t *rapid.T) { damage(t); d.sync(t, h) }
		actions["damaged while it is open"] = func(t *rapid.T) {
			_, err := stays.Sync(ctx)
			must(t, err)
			damage(t)
			_, err = h.SetWorkspace(ctx, "", func(*history.WorkspaceRow) {})
			must(t, err)
			_, err = stays.Sync(ctx)
			must(t, err)
			d.sync(t, h) // it need not have met the damage, but the process that opens it looks
		}
		t.Repeat(actions)
		d.sync(t, h)
		d.sameAsTruth(t, h, func(id string) bool { return has(t, id) })
	})
}
