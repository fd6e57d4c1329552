// Package pgmirror is a copy of a history in a schema of PostgreSQL, in the tables of
// OpenHarness.
package pgmirror

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"thread/history"
	"thread/internal/historymirror"
	"thread/net/internal/pgerror"
)

// DefaultSchema is the schema of a URL that names none.
const DefaultSchema = "thread_history"

// Reached is called at the places where tests kill the process.
var Reached = func(place string) {}

// Mirror is an incremental copy of a history. Reading the copy is safe at any time;
// nothing else may write to it. Of several handles, on whichever hosts, the second finds
// what the first one has written.
type Mirror struct {
	// Rebuilt says why the copy was begun again by the last Open, Sync or round of Follow,
	// "" when it was not. Aside is the name that the old schema has now, "" when there was
	// none.
	Rebuilt, Aside string

	config *pgconn.Config
	schema string
	h      *history.History
	m      *historymirror.Mirror
	conn   *pgconn.PgConn // nil before the first use and after it broke
}

const (
	// timeout bounds a question to the server, so that one that went away without a word
	// is noticed.
	timeout = 30 * time.Second
	// writeTimeout bounds the statements of a batch: the first one may delete all rows.
	writeTimeout = 10 * time.Minute
)

// Open opens the copy of h in that schema, and makes the schema when it is missing. What is
// not as this package made it gets another name, the schema with _damaged behind it, and
// the copy is begun again.
//
// It returns historymirror.ErrNotMirror, and changes nothing, for a schema with other
// tables and for the mirror of another history; ErrVersion; ErrRights; ErrBusy when the
// server does not answer, and ErrRefused.
func Open(ctx context.Context, h *history.History, config *pgconn.Config, schema string, workspaces []string) (*Mirror, error) {
	m := &Mirror{config: config.Copy(), schema: schema, h: h}
	m.config.RuntimeParams["client_encoding"] = "UTF8"
	var err error
	if m.m, err = historymirror.New(h, tables{m}, mirrored, workspaces); err != nil {
		return nil, err
	}
	m.m.Fit, m.m.Strict = fit, true
	if err := m.connect(ctx); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func (m *Mirror) connect(ctx context.Context) (err error) {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if m.conn, err = pgconn.ConnectConfig(limited, m.config); err != nil {
		m.conn = nil
		return failure(ctx, err)
	}
	Reached("connected")
	return m.open(ctx, "")
}

// Sync copies what is new, as [historymirror.Mirror.Sync] does. What goes wrong it notes in
// mirror_state, where it can.
func (m *Mirror) Sync(ctx context.Context) (n int64, err error) {
	m.Rebuilt, m.Aside = "", ""
	if m.conn != nil {
		n, err = m.m.Sync(ctx)
		if err == nil || m.conn != nil && !odd(err) || ctx.Err() != nil {
			return n, m.noted(ctx, err)
		}
	}
	// The connection may have been cut while it was idle, and another process may have changed the
	// tables: look at them.
	if m.conn == nil {
		err = m.connect(ctx)
	} else {
		err = m.open(ctx, broken(err))
	}
	if err != nil {
		return n, m.noted(ctx, err)
	}
	var more int64
	more, err = m.m.Sync(ctx)
	n += more
	return n, m.noted(ctx, err)
}

// noted writes an error into mirror_state. One that passes is left out, as are those about
// another process's mirror.
func (m *Mirror) noted(ctx context.Context, err error) error {
	if err == nil || m.conn == nil || ctx.Err() != nil || errors.Is(err, historymirror.ErrNotMirror) || errors.Is(err, ErrBusy) || errors.Is(err, ErrVersion) {
		return err
	}
	_ = m.transact(ctx, func(ctx context.Context) error { // err is what went wrong
		_, err := m.batch(ctx, historymirror.Statement{SQL: `UPDATE mirror_state SET status = 'error', error_message = ?`, Args: []any{fit(historymirror.Text, err.Error())}})
		return err
	})
	return err
}

// Follow syncs again whenever the history changes, until ctx ends; it then returns nil.
// After each round it calls synced with how many history events that copied and what went
// wrong, and continues if synced returns nil.
func (m *Mirror) Follow(ctx context.Context, synced func(n int64, err error) error) error {
	return m.m.Follow(ctx, m.Sync, synced)
}

// Close closes the connection.
func (m *Mirror) Close() error {
	if m.conn == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := m.conn.Close(ctx)
	m.conn = nil
	return err
}

// odd reports whether an error says that the tables are not as they were made.
func odd(err error) bool {
	switch pgerror.Code(err) {
	case "42P01", "42703", "3F000", "42P10": // no such table, column, schema, no primary key
		return true
	}
	return errors.Is(err, errState) || broken(err) != ""
}

// broken returns what the server says of damage that it finds, "" for any other error.
func broken(err error) string {
	if code := pgerror.Code(err); strings.HasPrefix(code, "XX00") && code != "XX000" { // data_corrupted, index_corrupted
		return pgerror.Message(err)
	}
	return ""
}
