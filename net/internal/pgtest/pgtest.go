// Package pgtest gives tests the PostgreSQL server that they need.
package pgtest

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Where the server is, when THREAD_POSTGRES does not say so: unset, and it may be
// missing, or 1, and it must be there. Any other value is its URL, or words like these.
const server = "host=127.0.0.1 port=5432 user=postgres dbname=postgres sslmode=disable connect_timeout=5"

// Schema names a schema for a test, which is not there yet and is dropped at its end.
// It returns the URL of what is in it, up to the name of the thread.
func Schema(t *testing.T) string {
	t.Helper()
	where := os.Getenv("THREAD_POSTGRES")
	must := where != ""
	if where == "" || where == "1" {
		where = server
	}
	config, err := pgconn.ParseConfig(where)
	if err != nil {
		t.Fatalf("THREAD_POSTGRES: %v", err)
	}
	ctx := context.Background()
	conn, err := pgconn.ConnectConfig(ctx, config)
	if err != nil && must {
		t.Fatalf("THREAD_POSTGRES is set, and PostgreSQL does not answer: %v", err)
	}
	if err != nil {
		t.Skipf("PostgreSQL does not answer, and THREAD_POSTGRES does not demand it: %v", err)
	}
	t.Setenv("PGPASSWORD", config.Password)
	schema := fmt.Sprintf("thread_test_%d_%d", os.Getpid(), time.Now().UnixNano())
	t.Cleanup(func() {
		if _, err := conn.Exec(ctx, "DROP SCHEMA IF EXISTS "+schema+" CASCADE").ReadAll(); err != nil {
			t.Error(err)
		}
		_ = conn.Close(ctx)
	})
	q := url.Values{"host": {config.Host}, "port": {fmt.Sprint(config.Port)}, "schema": {schema}, "connect_timeout": {"60"}} // a busy machine is not a failure
	if config.TLSConfig == nil {
		q.Set("sslmode", "disable")
	}
	return "postgres://" + url.User(config.User).String() + "@/" + url.PathEscape(cmp.Or(config.Database, config.User)) + "?" + q.Encode() + "&thread="
}
