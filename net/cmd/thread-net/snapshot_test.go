package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rogpeppe/go-internal/testscript"
)

// describe returns what the threads that stand for the dirs hold.
func describe(ts *testscript.TestScript, dirs []string) string {
	var b bytes.Buffer
	for _, dir := range dirs {
		ts.Check(describeThread(&b, threadURL(ts.Getenv(envURL), ts.MkAbs(dir))))
	}
	return b.String()
}

// describeThread writes all that a thread has in the tables.
func describeThread(b *bytes.Buffer, where string) error {
	c, name, err := plainConn(where)
	if err != nil {
		return err
	}
	defer c.Close(context.Background())
	for _, query := range []string{
		"SELECT 'thread', thread, floor FROM threads WHERE thread = $1",
		"SELECT 'event', * FROM events WHERE thread = $1 ORDER BY id",
		"SELECT 'series', * FROM series WHERE thread = $1 ORDER BY id",
		"SELECT 'record', * FROM records WHERE thread = $1 ORDER BY tab, key",
		"SELECT 'sequence', * FROM sequences WHERE thread = $1 ORDER BY tab",
	} {
		r := c.ExecParams(context.Background(), query, [][]byte{[]byte(name)}, nil, nil, nil).Read()
		if r.Err != nil {
			return r.Err
		}
		for _, row := range r.Rows {
			fmt.Fprintf(b, "%q\n", row)
		}
	}
	return nil
}

// plainConn connects as the URL of a thread says, and returns its name.
func plainConn(where string) (c *pgconn.PgConn, name string, err error) {
	address, name, schema := withoutThread(where)
	config, err := pgconn.ParseConfig(address)
	if err != nil {
		return nil, "", err
	}
	config.RuntimeParams["search_path"] = schema
	c, err = pgconn.ConnectConfig(context.Background(), config)
	return c, name, err
}

// awaitLines waits, for at most 20 s, until the file has that many lines, and returns how
// many it has.
func awaitLines(path string, want int) (n int) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); <-tick.C {
		data, _ := os.ReadFile(path) // it may not be there yet
		if n = bytes.Count(data, []byte("\n")); n >= want {
			break
		}
	}
	return n
}
