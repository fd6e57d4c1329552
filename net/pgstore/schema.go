package pgstore

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"thread/internal/store"
)

// Schema is the file that makes the schema "thread".
//
//go:embed schema.sql
var Schema string

// version is the schema's when it is made. Where a thread has gaps it is versionGaps: the
// tables are the same, and programs that do not know of gaps refuse it.
const (
	version     = 1
	versionGaps = 2
)

// ErrMayNot says that the role may not make the schema, ErrNoUse that it may not use the
// one that is there, and ErrOtherSchema that what is there is not the one of threads.
var (
	ErrMayNot      = errors.New("the role may not create the schema")
	ErrNoUse       = errors.New("the role may not use the schema")
	ErrOtherSchema = errors.New("the tables of threads are not in the schema")
)

// whyNoTables says why a statement found no tables, where that is known. The search path
// passes over a schema that the role may not use.
func (a *Address) whyNoTables(ctx context.Context, c *pgconn.PgConn, found error) error {
	r, err := pipeline(ctx, c, nil, sql("ROLLBACK"),
		sql("SELECT has_schema_privilege(oid, 'USAGE')::int::bigint FROM pg_namespace WHERE nspname = $1", text(a.Schema)))
	switch {
	case err != nil || len(r[1].rows) == 0:
		return found
	case number(r[1].rows[0][0]) == 0:
		return fmt.Errorf("%w %q", ErrNoUse, a.Schema)
	}
	return fmt.Errorf("%w %q", ErrOtherSchema, a.Schema)
}

// SchemaFor is Schema for a schema of any name, with what these roles need to use it.
func SchemaFor(schema string, roles ...string) string {
	s := strings.Replace(Schema, "CREATE SCHEMA thread;", "CREATE SCHEMA "+quoted(schema)+";", 1)
	s = strings.Replace(s, "search_path = thread;", "search_path = "+quoted(schema)+";", 1)
	for _, role := range roles {
		s += "\nGRANT USAGE ON SCHEMA " + quoted(schema) + " TO " + quoted(role) +
			";\nGRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA " + quoted(schema) + " TO " + quoted(role) + ";\n"
	}
	return s
}

// Init makes a thread, and the schema where it is missing. It returns store.ErrExists
// for a thread that is there, store.ErrNewerFormat, and ErrMayNot.
func Init(ctx context.Context, a *Address) error {
	return insertThread(ctx, a, 0)
}

func insertThread(ctx context.Context, a *Address, floor int64) error {
	err := insertOnce(ctx, a, floor)
	if code := codeOf(err); code == "42P06" || code == "42P07" || code == "23505" { // another process was faster
		err = insertOnce(ctx, a, floor)
	}
	return err
}

func insertOnce(ctx context.Context, a *Address, floor int64) error {
	c, err := connect(ctx, a.config)
	if err != nil {
		return failure(ctx, err)
	}
	defer hangUp(c)
	r, err := pipeline(ctx, c, nil, sql(beginWrite), sql("SELECT 1 FROM pg_namespace WHERE nspname = $1", text(a.Schema)))
	if err != nil {
		return failure(ctx, err)
	}
	if len(r[1].rows) == 0 {
		if _, err := c.Exec(ctx, SchemaFor(a.Schema)).ReadAll(); codeOf(err) == "42501" {
			return fmt.Errorf("%w %q: %w", ErrMayNot, a.Schema, err)
		} else if err != nil {
			return failure(ctx, err)
		}
	}
	r, err = pipeline(ctx, c, nil,
		sql("SELECT set_config('search_path', $1, true)", text(a.searchPath())),
		sql("SELECT version::bigint FROM format"),
		sql("INSERT INTO threads (thread, floor) VALUES ($1, $2) ON CONFLICT DO NOTHING", text(a.Thread), int8(floor)))
	if codeOf(err) == "42P01" {
		return a.whyNoTables(ctx, c, failure(ctx, err))
	}
	if err != nil {
		return failure(ctx, err)
	}
	if err := checkVersion(r[1]); err != nil {
		return err
	}
	if r[2].tag != "INSERT 0 1" {
		return fmt.Errorf("%w: %s", store.ErrExists, a.Thread)
	}
	return commit(ctx, c, nil)
}

func checkVersion(r rowset) error {
	if len(r.rows) != 1 {
		return fmt.Errorf("%w: the schema has no version", store.ErrCorrupt)
	}
	if v := number(r.rows[0][0]); v < version || v > versionGaps {
		return fmt.Errorf("%w: the schema has version %d, and this program knows up to version %d", store.ErrNewerFormat, v, versionGaps)
	}
	return nil
}
