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
	begin = `BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET CONSTRAINTS ALL IMMEDIATE; SET LOCAL lock_timeout = '4s'; SET LOCAL idle_in_transaction_session_timeout = '30s'`
)

// Table implements apptable.Table. Pending locks its rows and Mark marks them in the same
// transaction, so several takers at once get different rows, and the
// application does not change one meanwhile.
type Table struct {
	config  *pgconn.Config
	given   string         // the table, as it was named
	members []string       // that are read, where there are columns
	conn    *pgconn.PgConn // nil before the first use and after it broke

	name    string // quoted, with its schema
	columns []column
	key     *column // a primary key of one column, nil for another one
	by      string  // SQL for what rows are ordered by
	byType  string  // the type of by
	order   string  // SQL: by, and the place of rows where by is not unique
	problem string  // the type of the column error, "" when there is none of text
	after   *after  // the last row that Pending returned
}

// after is what the order of rows has of one: by nil where it has no such value.
type after struct {
	by         []byte
	row, table string
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
func (t *Table) query(ctx context.Context, sql string, formats []int16, args ...string) ([][][]byte, error) {
	values := make([][]byte, len(args))
	for i, a := range args {
		values[i] = []byte(a)
	}
	r := t.conn.ExecParams(ctx, sql, values, nil, nil, formats).Read()
	return r.Rows, r.Err
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
	query, formats := "SELECT t.tableoid::pg_catalog.text, t.ctid::pg_catalog.text, "+t.by+"::pg_catalog.text", []int16{0, 0, 0}
	for _, c := range t.columns {
		query, formats = query+", t."+quoted(c.name), append(formats, c.format())
	}
	behind, args := t.behind()
	rows, err := t.query(ctx, query+" FROM "+t.name+" t WHERE t.status = 'pending'"+behind+" ORDER BY "+t.order+" LIMIT "+strconv.Itoa(limit)+" FOR UPDATE OF t SKIP LOCKED", formats, args...)
	if err != nil {
		return nil, t.failure(ctx, err)
	}
	for _, values := range rows {
		row := apptable.Row{Place: place{string(values[0]), string(values[1])}, Values: map[string]any{}}
		for i, c := range t.columns {
			row.Values[strings.ToLower(c.name)] = c.value(values[3+i])
			if t.key != nil && c == *t.key {
				row.Name = fmt.Sprint(c.value(values[3+i]))
			}
		}
		list = append(list, row)
		t.after = &after{values[2], string(values[1]), string(values[0])}
	}
	if len(list) == 0 {
		return nil, t.exec(ctx, "ROLLBACK")
	}
	return list, nil
}

// Rewind implements apptable.Table.
func (t *Table) Rewind() { t.after = nil }

// behind is the condition for rows behind the last one.
func (t *Table) behind() (sql string, args []string) {
	if t.after == nil {
		return "", nil
	}
	const place = "(t.ctid, t.tableoid) > ($1::pg_catalog.tid, $2::pg_catalog.oid)"
	last := func(n string) string { return "CAST($" + n + "::pg_catalog.text AS " + t.byType + ")" }
	by, args := string(t.after.by), []string{t.after.row, t.after.table}
	switch {
	case t.order == t.by:
		return " AND " + t.by + " > " + last("1"), []string{by}
	case t.after.by == nil: // null comes last
		return " AND " + t.by + " IS NULL AND " + place, args
	}
	return " AND (" + t.by + " > " + last("3") + " OR " + t.by + " = " + last("3") + " AND " + place + " OR " + t.by + " IS NULL)", append(args, by)
}

// Mark implements apptable.Table.
func (t *Table) Mark(ctx context.Context, marks []apptable.Mark, trial bool) ([]error, error) {
	if t.conn == nil {
		return nil, fmt.Errorf("%w: the connection was lost", apptable.ErrBusy)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := t.exec(ctx, "SAVEPOINT trial"); err != nil {
		return nil, err
	}
	type group struct{ status, problem, table string }
	groups := map[group][]int{}
	for i, m := range marks {
		g := group{m.Status, m.Error, m.Row.Place.(place).table}
		if t.problem == "" {
			g.problem = ""
		}
		groups[g] = append(groups[g], i)
	}
	refused := make([]error, len(marks))
	for _, rows := range groups {
		if err := t.mark(ctx, marks, rows, refused); err != nil {
			return nil, err
		}
	}
	if trial {
		return refused, t.exec(ctx, "ROLLBACK TO trial")
	}
	return refused, t.exec(ctx, "COMMIT")
}

// mark marks rows that get the same status in one statement. If PostgreSQL refuses it, each
// row is marked by itself.
func (t *Table) mark(ctx context.Context, marks []apptable.Mark, rows []int, refused []error) error {
	if err := t.exec(ctx, "SAVEPOINT mark"); err != nil {
		return err
	}
	err := t.update(ctx, marks, rows)
	if err == nil {
		return t.exec(ctx, "RELEASE mark")
	}
	if code := pgerror.Code(err); !errors.Is(err, apptable.ErrPending) && (code == "" || pgerror.Passes(code)) {
		return t.failure(ctx, err)
	}
	if err := t.exec(ctx, "ROLLBACK TO mark; RELEASE mark"); err != nil {
		return err
	}
	if len(rows) == 1 {
		refused[rows[0]] = t.failure(ctx, err)
		return nil
	}
	for i := range rows {
		if err := t.mark(ctx, marks, rows[i:i+1], refused); err != nil {
			return err
		}
	}
	return nil
}

func (t *Table) update(ctx context.Context, marks []apptable.Mark, rows []int) error {
	first, list := marks[rows[0]], make([]string, len(rows))
	for i, n := range rows {
		list[i] = `"` + marks[n].Row.Place.(place).row + `"`
	}
	set, args := quotedText(first.Status), []string{first.Row.Place.(place).table, "{" + strings.Join(list, ",") + "}"}
	if first.Error != "" && t.problem != "" { // a text that is too long for its column is cut
		set, args = set+", error = CAST($3::pg_catalog.text AS "+t.problem+")", append(args, first.Error)
	}
	changed, err := t.query(ctx, "UPDATE "+t.name+" t SET status = "+set+" WHERE t.tableoid = $1::pg_catalog.oid AND t.ctid = ANY ($2::pg_catalog.tid[]) RETURNING t.status = 'pending'", nil, args...)
	if err != nil {
		return err
	}
	still := func(row [][]byte) bool { return string(row[0]) == "t" }
	if len(changed) < len(rows) || slices.ContainsFunc(changed, still) {
		return apptable.ErrPending
	}
	return nil
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

// failure tells errors apart. A connection that broke is made again by the next Pending.
func (t *Table) failure(ctx context.Context, err error) error {
	if t.conn != nil && t.conn.IsClosed() {
		t.conn = nil
	}
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return context.Cause(ctx)
	}
	code := pgerror.Code(err)
	if code == "" {
		for _, known := range []error{apptable.ErrNoTable, apptable.ErrBusy, apptable.ErrPending, ErrRights, ErrRefused} {
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
