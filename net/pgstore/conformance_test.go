package pgstore_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"thread/internal/store"
	"thread/internal/store/storetest"
)

// Where the server is, when THREAD_POSTGRES does not say so: unset, and it may be
// missing, or 1, and it must be there. Any other value is its URL, or words like these.
const server = "host=127.0.0.1 port=5432 user=postgres dbname=postgres sslmode=disable connect_timeout=5"

// newSchema makes a schema for one test, which is dropped at its end, and returns what
// connections to it are made with.
func newSchema(t *testing.T) *pgxpool.Config {
	t.Helper()
	where := os.Getenv("THREAD_POSTGRES")
	must := where != ""
	if where == "" || where == "1" {
		where = server
	}
	config, err := pgxpool.ParseConfig(where)
	if err != nil {
		t.Fatalf("THREAD_POSTGRES: %v", err)
	}
	ctx := context.Background()
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig.Copy())
	if err != nil && must {
		t.Fatalf("THREAD_POSTGRES is set, and PostgreSQL does not answer: %v", err)
	}
	if err != nil {
		t.Skipf("PostgreSQL does not answer, and THREAD_POSTGRES does not demand it: %v", err)
	}
	name := fmt.Sprintf("thread_test_%d_%d", os.Getpid(), time.Now().UnixNano())
	t.Cleanup(func() {
		if _, err := conn.Exec(ctx, "DROP SCHEMA IF EXISTS "+name+" CASCADE"); err != nil {
			t.Error(err)
		}
		_ = conn.Close(ctx)
	})
	config.ConnConfig.RuntimeParams["search_path"] = name
	for _, sql := range append([]string{"CREATE SCHEMA " + name, "SET search_path = " + name}, schema) {
		// Several statements at once are possible without arguments only.
		if _, err := conn.Exec(ctx, strings.TrimSpace(sql), pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
	return config
}

var threads atomic.Int64

// newThread makes a thread, and returns its name.
func newThread(t *testing.T, config *pgxpool.Config) string {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig.Copy())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	name := fmt.Sprint("thread ", threads.Add(1))
	if _, err := conn.Exec(ctx, "INSERT INTO threads (thread) VALUES ($1)", name); err != nil {
		t.Fatal(err)
	}
	return name
}

func opened(t *testing.T, config *pgxpool.Config, thread string, l store.Logic, change func(*pgxpool.Config)) *pgStore {
	s, err := open(config, thread, l, change)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// All threads of the battery are in one schema, and must not see each other.
func TestConformance(t *testing.T) {
	config := newSchema(t)
	storetest.Run(t, func(t *testing.T) func(l store.Logic) store.Store {
		thread := newThread(t, config)
		return func(l store.Logic) store.Store { return opened(t, config, thread, l, nil) }
	})
}
