package pgmirror

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"thread/internal/historymirror"
	"thread/net/internal/pgerror"
)

// version is the version of the tables.
const version = 1

// own are the tables for the state of the mirror; see package historymirror.
var own = []string{`CREATE TABLE mirror_state (
  workspace_id   text PRIMARY KEY,
  last_event_id  bigint NOT NULL,
  last_synced_at timestamptz NOT NULL,
  status         text NOT NULL,
  error_message  text
)`, `CREATE TABLE thread_mirror (
  thread        text NOT NULL,
  workspace_id  text NOT NULL,
  workspaces    text NOT NULL,
  last_event_id bigint NOT NULL,
  witness       text NOT NULL,
  states        bigint NOT NULL,
  version       bigint NOT NULL
)`}

// The columns of those.
var (
	thisColumns  = []string{"thread", "workspace_id", "workspaces", "last_event_id", "witness", "states", "version"}
	stateColumns = []string{"workspace_id", "last_event_id", "last_synced_at", "status", "error_message"}
)

// open looks at the schema, and makes it where it is missing. wrong says what is known to
// be wrong with it, "" for nothing. One process does so at a time.
func (m *Mirror) open(ctx context.Context, wrong string) (err error) {
	defer func() {
		if err != nil {
			_ = m.Close() // the next one looks again
		}
	}()
	w, err := m.h.Workspace(ctx)
	if err != nil {
		return err
	}
	return m.transact(ctx, func(ctx context.Context) error {
		if _, err := m.ask(ctx, `SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtext('thread history mirror'), pg_catalog.hashtext(?))`, m.schema); err != nil {
			return err
		}
		found, err := m.ask(ctx, `SELECT pg_catalog.current_setting('server_encoding'),
  (SELECT pg_catalog.has_schema_privilege(oid, 'USAGE')::text FROM pg_catalog.pg_namespace WHERE nspname = ?)`, m.schema)
		if err != nil {
			return err
		}
		encoding, may := found[0][0], found[0][1]
		switch {
		case encoding != "UTF8":
			return fmt.Errorf("%w: the encoding of the database is %s, and not UTF8", ErrRefused, encoding)
		case may == "":
			return m.create(ctx, w.ID, true)
		case may == "false": // the path of names would pass over it
			return fmt.Errorf("%w: USAGE of the schema %s", ErrRights, m.schema)
		}
		columns, err := m.columns(ctx)
		switch {
		case err != nil:
			return err
		case len(columns) == 0:
			return m.create(ctx, w.ID, false)
		}
		if _, ok := columns["thread_mirror"]; !ok {
			return fmt.Errorf("%w: the schema %s has other tables", historymirror.ErrNotMirror, m.schema)
		}
		why, err := m.check(ctx, w.ID, columns)
		if err != nil {
			return err
		}
		if why == "" {
			why = wrong
		}
		if why == "" {
			return nil
		}
		if err := m.setAside(ctx); err != nil {
			return fmt.Errorf("%s: %w", why, err)
		}
		m.Rebuilt = why
		return m.create(ctx, w.ID, true)
	})
}

// columns returns the columns of all that has columns in the schema, by its name. An id
// that is not a key is left out.
func (m *Mirror) columns(ctx context.Context) (map[string][]string, error) {
	rows, err := m.ask(ctx, `SELECT c.relname::text, a.attname::text, (a.attname <> 'id' OR EXISTS (SELECT FROM pg_catalog.pg_index i
  WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum))::text
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE n.nspname = ? AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') ORDER BY 1, a.attnum`, m.schema)
	if err != nil {
		return nil, err
	}
	columns := map[string][]string{}
	for _, row := range rows {
		list := columns[row[0]]
		if row[2] == "true" {
			list = append(list, row[1])
		}
		columns[row[0]] = list
	}
	return columns, nil
}

// check returns what is wrong with the tables, "" for nothing, and an error for those that
// are not this mirror's.
func (m *Mirror) check(ctx context.Context, workspace string, columns map[string][]string) (wrong string, err error) {
	if name := missing(columns["thread_mirror"], thisColumns); name != "" {
		return "", fmt.Errorf("%w: the table thread_mirror of the schema %s has no column %s", historymirror.ErrNotMirror, m.schema, name)
	}
	rows, err := m.ask(ctx, `SELECT thread, workspace_id, version::text FROM thread_mirror`)
	if err != nil {
		return "", err
	}
	for _, row := range rows {
		s := historymirror.State{Thread: row[0], Own: row[1]}
		if err := s.Belongs(workspace); err != nil {
			return "", err
		}
		if row[2] != strconv.Itoa(version) {
			return "", fmt.Errorf("%w: %s, and this program knows version %d", ErrVersion, row[2], version)
		}
	}
	if len(rows) != 1 {
		return errState.Error(), nil
	}
	if name := missing(columns["mirror_state"], stateColumns); name != "" {
		return "the table mirror_state has no column " + name, nil
	}
	for i := range mirrored {
		t := &mirrored[i]
		for _, c := range t.Columns() {
			if !slices.Contains(columns[t.Name], c.Name) {
				return fmt.Sprintf("the table %s has no column %s, or it is not a key", t.Name, c.Name), nil
			}
		}
	}
	return "", nil
}

func missing(columns, wanted []string) string {
	for _, name := range wanted {
		if !slices.Contains(columns, name) {
			return name
		}
	}
	return ""
}

// create makes the tables, and the schema if that is missing.
func (m *Mirror) create(ctx context.Context, workspace string, schema bool) error {
	var list []historymirror.Statement
	if schema {
		list = append(list, historymirror.Statement{SQL: "CREATE SCHEMA " + quoted(m.schema)})
	}
	for _, statement := range append(append(historymirror.SQL(mirrored, types), historymirror.SessionEventsSQL), own...) {
		list = append(list, historymirror.Statement{SQL: statement})
	}
	list = append(list, historymirror.Statement{SQL: `INSERT INTO thread_mirror VALUES (?, ?, '', 0, '', 0, ?)`,
		Args: []any{fit(historymirror.Text, m.m.Dir()), workspace, int64(version)}})
	if _, err := m.batch(ctx, list...); pgerror.Code(err) == "42501" {
		return fmt.Errorf("%w: it cannot make the schema %s: %s", ErrRights, m.schema, pgerror.Message(err))
	} else if err != nil {
		return err
	}
	Reached("made")
	return nil
}

// setAside gives the schema another name. An earlier copy that was set aside is dropped, and
// a schema of that name that is not a mirror stays.
func (m *Mirror) setAside(ctx context.Context) error {
	base := m.schema
	for len(base) > maxName-len("_damaged_9999") {
		base = strings.ToValidUTF8(base[:len(base)-1], "")
	}
	var list []historymirror.Statement
	for n := 1; ; n++ {
		m.Aside = base + "_damaged"
		if n > 1 {
			m.Aside += "_" + strconv.Itoa(n)
		}
		taken, err := m.ask(ctx, `SELECT (to_regclass(quote_ident(nspname) || '.thread_mirror') IS NOT NULL)::text FROM pg_catalog.pg_namespace WHERE nspname = ?`, m.Aside)
		if err != nil {
			return err
		}
		if len(taken) == 0 {
			break
		}
		if taken[0][0] == "true" {
			list = append(list, historymirror.Statement{SQL: "DROP SCHEMA " + quoted(m.Aside) + " CASCADE"})
			break
		}
	}
	_, err := m.batch(ctx, append(list, historymirror.Statement{SQL: "ALTER SCHEMA " + quoted(m.schema) + " RENAME TO " + quoted(m.Aside)})...)
	return err
}

// maxName is where PostgreSQL cuts off names.
const maxName = 63

// ask returns the rows of one question, whose columns are texts.
func (m *Mirror) ask(ctx context.Context, sql string, args ...any) ([][]string, error) {
	r, err := m.batch(ctx, historymirror.Statement{SQL: sql, Args: args})
	if err != nil {
		return nil, err
	}
	rows := make([][]string, len(r[0].Rows))
	for i, row := range r[0].Rows {
		for _, v := range row {
			rows[i] = append(rows[i], string(v))
		}
	}
	return rows, nil
}
