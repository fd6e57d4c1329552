// Package pgtable is the outbox table of an application in PostgreSQL.
package pgtable

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"thread/internal/apptable"
	"thread/net/internal/pgerror"
)

// ErrRights is returned when the role may not read or mark the rows. It comes before
// anything is taken.
var ErrRights = errors.New("the role lacks a right")

// ErrRefused is returned for what else PostgreSQL says no to.
var ErrRefused = errors.New("PostgreSQL refuses it")

const (
	// timeout bounds a question to the server, so that one that went away without a word
	// is noticed.
	timeout = 30 * time.Second

	// begin starts the transaction in which rows are read and marked. Others wait for its
	// rows: the server ends it when this process is stopped in the middle.
	begin = `BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL lock_timeout = '4s'; SET LOCAL idle_in_transaction_session_timeout = '30s'`
)

// Table implements apptable.Table. Pending locks its rows and Mark marks them in the same
// transaction, so that of several that take at once each gets other rows, and the
// application does not change one meanwhile.
type Table struct {
	config  *pgconn.Config
	given   string         // the table, as it was named
	members []string       // that are read, where there are such columns
	conn    *pgconn.PgConn // nil before the first use and after it broke

	name    string // quoted, with its schema
	columns []column
	key     *column // a primary key of one column, nil for another one
	order   string  // SQL
	problem string  // the type of the column error, "" when there is none of text
}

// place is where a row is while it is locked.
type place struct{ table, row string }

// Open opens the table that an application has in a database: a name as in SQL, perhaps
// with a schema. Columns whose lower-case names are in members are read; those in need
// must be there.
//
// It returns apptable.ErrNoTable for a table that is not there, lacks a column or is a
// view, ErrRights, and apptable.ErrBusy when the server does not answer.
func Open(ctx context.Context, config *pgconn.Config, name string, members []string, need ...string) (*Table, error) {
	t := &Table{config: config.Copy(), given: name, members: append(slices.Clone(members), need...)}
	t.config.RuntimeParams["client_encoding"] = "UTF8"
	if err := t.connect(ctx); err != nil {
		return nil, err
	}
	for _, n := range need {
		if t.column(n) == nil {
			return nil, errors.Join(fmt.Errorf("%w: the table %s has no column %s", apptable.ErrNoTable, name, n), t.Close())
		}
	}
	return t, nil
}

// connect looks at the table, too: it may have changed since.
func (t *Table) connect(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if t.conn, err = pgconn.ConnectConfig(ctx, t.config); err != nil {
		t.conn = nil
		return t.failure(ctx, err)
	}
	if err = t.look(ctx); err != nil {
		return errors.Join(t.failure(ctx, err), t.Close())
	}
	return nil
}

// query does one statement. Arguments are texts.
func (t *Table) query(ctx context.Context, sql string, formats []int16, args ...string) ([][][]byte, int64, error) {
	values := make([][]byte, len(args))
	for i, a := range args {
		values[i] = []byte(a)
	}
	r := t.conn.ExecParams(ctx, sql, values, nil, nil, formats).Read()
	return r.Rows, r.CommandTag.RowsAffected(), r.Err
}

// Pending implements apptable.Table. Rows that another transaction has locked are left
// for another time.
func (t *Table) Pending(ctx context.Context, limit int) (list []apptable.Row, err error) {
	if t.conn == nil {
		if err := t.connect(ctx); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := t.exec(ctx, "ROLLBACK"); err != nil { // of what was not marked
		return nil, err
	}
	if err := t.exec(ctx, begin); err != nil {
		return nil, err
	}
	query, formats := "SELECT t.tableoid::pg_catalog.text, t.ctid::pg_catalog.text", []int16{0, 0}
	for _, c := range t.columns {
		query, formats = query+", t."+quoted(c.name), append(formats, c.format())
	}
	rows, _, err := t.query(ctx, query+" FROM "+t.name+" t WHERE t.status = 'pending' ORDER BY "+t.order+" LIMIT "+strconv.Itoa(limit)+" FOR UPDATE OF t SKIP LOCKED", formats)
	if err != nil {
		return nil, t.failure(ctx, err)
	}
	for _, values := range rows {
		row := apptable.Row{Place: place{string(values[0]), string(values[1])}, Values: map[string]any{}}
		for i, c := range t.columns {
			row.Values[strings.ToLower(c.name)] = c.value(values[2+i])
			if t.key != nil && c == *t.key {
				row.Name = fmt.Sprint(c.value(values[2+i]))
			}
		}
		list = append(list, row)
	}
	if len(list) == 0 {
		return nil, t.exec(ctx, "ROLLBACK")
	}
	return list, nil
}

// Mark implements apptable.Table.
func (t *Table) Mark(ctx context.Context, marks []apptable.Mark) (n int64, err error) {
	if t.conn == nil {
		return 0, fmt.Errorf("%w: the connection was lost", apptable.ErrBusy)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	type group struct{ status, problem, table string }
	groups := map[group][]string{}
	for _, m := range marks {
		at, problem := m.Row.Place.(place), m.Error
		if t.problem == "" {
			problem = ""
		}
		g := group{m.Status, problem, at.table}
		groups[g] = append(groups[g], `"`+at.row+`"`)
	}
	for g, rows := range groups {
		set, args := quotedText(g.status), []string{g.table, "{" + strings.Join(rows, ",") + "}"}
		if g.problem != "" { // a text that is too long for its column is cut
			set, args = set+", error = CAST($3::pg_catalog.text AS "+t.problem+")", append(args, g.problem)
		}
		_, changed, err := t.query(ctx, "UPDATE "+t.name+" t SET status = "+set+" WHERE t.tableoid = $1::pg_catalog.oid AND t.ctid = ANY ($2::pg_catalog.tid[])", nil, args...)
		if err != nil {
			return 0, t.failure(ctx, err)
		}
		n += changed
	}
	return n, t.exec(ctx, "COMMIT")
}

func (t *Table) exec(ctx context.Context, sql string) error {
	if _, err := t.conn.Exec(ctx, sql).ReadAll(); err != nil {
		return t.failure(ctx, err)
	}
	return nil
}

// Close implements apptable.Table.
func (t *Table) Close() error {
	if t.conn == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := t.conn.Close(ctx)
	t.conn = nil
	return err
}

// failure tells errors apart. A connection that broke is made anew by the next Pending.
func (t *Table) failure(ctx context.Context, err error) error {
	if t.conn != nil && t.conn.IsClosed() {
		t.conn = nil
	}
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return context.Cause(ctx)
	}
	code := pgerror.Code(err)
	if code == "" {
		for _, known := range []error{apptable.ErrNoTable, apptable.ErrBusy, ErrRights, ErrRefused} {
			if errors.Is(err, known) {
				return err
			}
		}
		return fmt.Errorf("%w: PostgreSQL: %w", apptable.ErrBusy, err)
	}
	switch said := pgerror.Message(err); {
	case code == "42501": // insufficient_privilege
		return fmt.Errorf("%w: %s", ErrRights, said)
	case code == "42P01" || code == "3F000" || code == "42602" || code == "42703": // no such table, schema, name, column
		return fmt.Errorf("%w: %s", apptable.ErrNoTable, said)
	case pgerror.Passes(code):
		return fmt.Errorf("%w: PostgreSQL: %s", apptable.ErrBusy, said)
	}
	return fmt.Errorf("%w: %w", ErrRefused, err)
}

func quoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

func quotedText(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
