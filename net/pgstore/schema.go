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

// ErrMayNot says that the role may not make the schema.
var ErrMayNot = errors.New("the role may not create the schema")

// in is Schema for a schema of any name.
func in(schema string) string {
	s := strings.Replace(Schema, "CREATE SCHEMA thread;", "CREATE SCHEMA "+quoted(schema)+";", 1)
	return strings.Replace(s, "search_path = thread;", "search_path = "+quoted(schema)+";", 1)
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
		if _, err := c.Exec(ctx, in(a.Schema)).ReadAll(); codeOf(err) == "42501" {
			return fmt.Errorf("%w %q: %w", ErrMayNot, a.Schema, err)
		} else if err != nil {
			return failure(ctx, err)
		}
	}
	r, err = pipeline(ctx, c, nil,
		sql("SELECT set_config('search_path', $1, true)", text(a.searchPath())),
		sql("SELECT version::bigint FROM format"),
		sql("INSERT INTO threads (thread, floor) VALUES ($1, $2) ON CONFLICT DO NOTHING", text(a.Thread), int8(floor)))
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

// codeOf is the code of an error of the server, "" for any other.
func codeOf(err error) string {
	if p := (*pgconn.PgError)(nil); errors.As(err, &p) {
		return p.Code
	}
	return ""
}
