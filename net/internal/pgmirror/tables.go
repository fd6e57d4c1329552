package pgmirror

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"thread/internal/historymirror"
)

// mirrored are the tables.
var mirrored = append(historymirror.Tables[:len(historymirror.Tables):len(historymirror.Tables)], historymirror.Workspaces, historymirror.HistoryEvents)

// types are the types of the columns. JSON keeps numbers, spaces and the order of members as
// they are, and has \u0000 in texts: jsonb keeps none of that, and refuses the last.
var types = map[historymirror.Kind]string{historymirror.Text: "text", historymirror.Time: "timestamptz", historymirror.JSON: "json", historymirror.Number: "bigint"}

// fit returns the text that a column can hold: PostgreSQL has no NUL, and none of the
// years that have no four digits here.
func fit(kind historymirror.Kind, s string) string {
	if kind != historymirror.Time {
		return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "\uFFFD"), "\uFFFD")
	}
	t, err := time.Parse(time.RFC3339, s)
	switch {
	case err == nil && t.Year() == 0:
		return "0001" + s[4:] + " BC"
	case err == nil:
		return s
	case strings.HasPrefix(s, "-"):
		return "-infinity"
	}
	return "infinity"
}

// tables implement historymirror.Database.
type tables struct{ *Mirror }

// State implements historymirror.Database.
func (d tables) State(ctx context.Context) (s historymirror.State, err error) {
	err = d.transact(ctx, func(ctx context.Context) error {
		s, err = d.state(ctx)
		return err
	})
	return s, err
}

// state reads the state in a transaction.
func (m *Mirror) state(ctx context.Context) (s historymirror.State, err error) {
	r, err := m.batch(ctx, historymirror.Statement{SQL: historymirror.StateSQL})
	if err != nil {
		return s, err
	}
	if len(r[0].Rows) != 1 {
		return s, errState
	}
	row := r[0].Rows[0]
	text := func(i int) string { return string(row[i]) }
	number := func(i int) (n int64) {
		if err == nil && row[i] != nil {
			n, err = strconv.ParseInt(text(i), 10, 64)
		}
		return n
	}
	found := historymirror.StateRow{Thread: text(0), Own: text(1), Workspaces: text(2), Last: number(3), Witness: text(4), States: number(5), Count: number(6)}
	if row[7] != nil {
		least := number(7)
		found.Least = &least
	}
	if row[8] != nil {
		status := text(8)
		found.Status = &status
	}
	return found.State(), err
}

// Write implements historymirror.Database. The lock of the row keeps others out, and what
// is read of the state after it is what they have committed.
func (d tables) Write(ctx context.Context, look func(historymirror.State) error, statements []historymirror.Statement) error {
	Reached("read")
	err := d.transact(ctx, func(ctx context.Context) error {
		if _, err := d.batch(ctx, historymirror.Statement{SQL: `SELECT FROM thread_mirror FOR UPDATE`}); err != nil {
			return err
		}
		s, err := d.state(ctx)
		if err != nil {
			return err
		}
		if err = look(s); err != nil {
			return err
		}
		Reached("locked")
		if _, err := d.batch(ctx, statements...); err != nil {
			return err
		}
		Reached("written")
		return nil
	})
	if err != nil {
		return err
	}
	Reached("stored")
	return nil
}

// transact does what fn does in one transaction, in which names are the names of the schema.
// Others wait for its lock: the server ends it when this process is stopped in the middle.
// The path does not end in pg_temp: tables would be made there for a role that may not use
// the schema.
func (m *Mirror) transact(ctx context.Context, fn func(context.Context) error) (err error) {
	if m.conn == nil {
		return fmt.Errorf("%w: the connection was lost", ErrBusy)
	}
	defer func() {
		if err != nil {
			err = failure(ctx, err)
			m.rollback(ctx)
		}
	}()
	limited, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	begin := `BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '4s'; SET LOCAL idle_in_transaction_session_timeout = '30s';
SET LOCAL search_path = ` + quoted(m.schema)
	if err := m.exec(limited, begin); err != nil {
		return err
	}
	if err := fn(limited); err != nil {
		return err
	}
	return m.exec(limited, "COMMIT")
}

// rollback leaves the connection as one that can be used, or none.
func (m *Mirror) rollback(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	if m.conn.IsClosed() || m.exec(ctx, "ROLLBACK") != nil {
		_ = m.Close() // what went wrong is known
	}
}

func (m *Mirror) exec(ctx context.Context, sql string) error {
	_, err := m.conn.Exec(ctx, sql).ReadAll()
	return err
}

// batch sends all statements at once and returns what each returned, as text. Those behind
// an error were not done.
func (m *Mirror) batch(ctx context.Context, list ...historymirror.Statement) ([]*pgconn.Result, error) {
	b := &pgconn.Batch{}
	numbered := map[string]string{}
	for _, s := range list {
		if numbered[s.SQL] == "" {
			numbered[s.SQL] = number(s.SQL)
		}
		values := make([][]byte, len(s.Args))
		for i, a := range s.Args {
			switch v := a.(type) {
			case string:
				values[i] = append([]byte{}, v...)
			case int64:
				values[i] = strconv.AppendInt(nil, v, 10)
			}
		}
		b.ExecParams(numbered[s.SQL], values, nil, nil, nil)
	}
	return m.conn.ExecBatch(ctx, b).ReadAll()
}

// number gives the arguments of a statement the names that PostgreSQL has for them.
func number(sql string) string {
	var b strings.Builder
	for i, part := range strings.Split(sql, "?") {
		if i > 0 {
			b.WriteString("$" + strconv.Itoa(i))
		}
		b.WriteString(part)
	}
	return b.String()
}

func quoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
