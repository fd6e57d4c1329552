package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// table is a table of jobs in plain SQL. A row is available, running and completed, and
// an index has those that wait; a trigger gives notice of new ones.
type table struct {
	conn, other *pgconn.PgConn
	url, schema string
}

func newTable(ctx context.Context, url, schema string) (*table, error) {
	h := &table{url: url + "search_path=" + schema, schema: schema}
	for _, c := range []**pgconn.PgConn{&h.conn, &h.other} {
		var err error
		if *c, err = pgconn.Connect(ctx, h.url); err != nil {
			return nil, err
		}
	}
	return h, h.exec(ctx, `
		CREATE SCHEMA `+schema+`;
		CREATE TABLE jobs (
			id bigserial PRIMARY KEY, state text NOT NULL DEFAULT 'available', kind text NOT NULL, args text NOT NULL,
			attempt smallint NOT NULL DEFAULT 0, max_attempts smallint NOT NULL DEFAULT 3,
			created_at timestamptz NOT NULL DEFAULT now(), scheduled_at timestamptz NOT NULL DEFAULT now(),
			attempted_at timestamptz, finalized_at timestamptz);
		CREATE INDEX waiting ON jobs (state, scheduled_at, id);
		CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_notify('jobs', ''); RETURN NULL; END $$;
		CREATE TRIGGER tell AFTER INSERT ON jobs FOR EACH STATEMENT EXECUTE FUNCTION tell()`)
}

func (h *table) exec(ctx context.Context, sql string) error {
	_, err := h.conn.Exec(ctx, sql).ReadAll()
	return err
}

// do runs one statement, in a separate transaction.
func (h *table) do(ctx context.Context, sql string, args ...string) ([][][]byte, error) {
	return do(ctx, h.conn, sql, args...)
}

func do(ctx context.Context, c *pgconn.PgConn, sql string, args ...string) ([][][]byte, error) {
	values := make([][]byte, len(args))
	for i, a := range args {
		values[i] = []byte(a)
	}
	r := c.ExecParams(ctx, sql, values, nil, nil, nil).Read()
	return r.Rows, r.Err
}

func (h *table) push(ctx context.Context) error { return pushJob(ctx, h.conn) }

func pushJob(ctx context.Context, c *pgconn.PgConn) error {
	_, err := do(ctx, c, "INSERT INTO jobs (kind, args) VALUES ('order', $1)", content)
	return err
}

func (h *table) another(ctx context.Context) (push func(ctx context.Context) error, end func(), err error) {
	c, err := pgconn.Connect(ctx, h.url)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context) error { return pushJob(ctx, c) }, func() { _ = c.Close(ctx) }, nil
}

func (h *table) pushBatch(ctx context.Context, n int) error {
	_, err := h.do(ctx, "INSERT INTO jobs (kind, args) SELECT 'order', unnest($1::text[])",
		"{"+strings.TrimSuffix(strings.Repeat(strconv.Quote(content)+",", n), ",")+"}")
	return err
}

func (h *table) pop(ctx context.Context, n int) (int, error) {
	rows, err := h.do(ctx, `UPDATE jobs SET state = 'running', attempt = attempt + 1, attempted_at = now() WHERE id IN (
		SELECT id FROM jobs WHERE state = 'available' AND scheduled_at <= now() ORDER BY scheduled_at, id LIMIT $1::bigint FOR UPDATE SKIP LOCKED)
		RETURNING id, kind, args, attempt`, strconv.Itoa(n))
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	ids := make([]string, len(rows))
	for i, r := range rows {
		ids[i] = string(r[0])
	}
	_, err = h.do(ctx, "UPDATE jobs SET state = 'completed', finalized_at = now() WHERE id = ANY ($1::bigint[])", "{"+strings.Join(ids, ",")+"}")
	return len(rows), err
}

func (h *table) work(ctx context.Context) (bool, error) {
	n, err := h.pop(ctx, 1)
	return n > 0, err
}

func (h *table) waiting(ctx context.Context) (bool, error) {
	rows, err := h.do(ctx, "SELECT 1 FROM jobs WHERE state = 'available' AND scheduled_at <= now() LIMIT 1")
	return len(rows) > 0, err
}

func (h *table) wake(ctx context.Context) (time.Duration, error) {
	if _, err := h.other.Exec(ctx, "LISTEN jobs").ReadAll(); err != nil {
		return 0, err
	}
	return wakeOf(ctx, func(ctx context.Context, ready, got func()) error {
		ready()
		if err := h.other.WaitForNotification(ctx); err != nil {
			return err
		}
		r := h.other.ExecParams(ctx, "SELECT id, kind, args FROM jobs WHERE state = 'available' AND scheduled_at <= now() LIMIT 1", nil, nil, nil, nil).Read()
		if r.Err == nil && len(r.Rows) == 0 {
			return fmt.Errorf("a notice, and nothing there")
		}
		got()
		return r.Err
	}, h.push)
}

// drop drops its schema and another one.
func (h *table) drop(ctx context.Context, schema string) error {
	err := h.exec(ctx, "DROP SCHEMA IF EXISTS "+h.schema+", "+schema+" CASCADE")
	_ = h.other.Close(ctx)
	_ = h.conn.Close(ctx)
	return err
}

func (h *table) close() error { return nil }
