//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	"thread/engine"
	"thread/event"
)

// workerVerb makes this program one of the processes that it measures.
const workerVerb = "worker"

var ctx = context.Background()

func work(what string, args []string) error {
	switch what {
	case "ingest":
		return ingestSQLite(args[0], args[1])
	case "nap":
		return nap()
	case "nap-sqlite":
		n, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		workers, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		return napQueue(args[0], n, workers)
	case "scan":
		return scan(args[0])
	case "push-thread", "push-sqlite":
		n, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		return pushes(what, args[0], n)
	}
	return fmt.Errorf("unknown worker")
}

// ingestSQLite stores the lines of stdin, 1000 in a transaction. They are parsed
// as thread does it, so that parsers are not compared.
func ingestSQLite(driver, path string) error {
	db, err := openSQLite(driver, path)
	if err != nil {
		return err
	}
	defer db.Close()
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	for more := true; more; {
		tx, err := db.Begin()
		if err != nil {
			return err
		}
		stmt, err := tx.Prepare(insert)
		if err != nil {
			return err
		}
		for range 1000 {
			line, err := in.ReadSlice('\n')
			if more = err == nil; !more {
				break
			}
			d, err := event.ParseDraft(line)
			if err != nil {
				return err
			}
			if _, err := stmt.Exec(d.Source, d.Type, d.Subtype, d.Content); err != nil {
				return err
			}
		}
		if err := stmt.Close(); err != nil {
			return err
		}
		if err := tx.Commit(); err != nil {
			return err
		}
	}
	return db.Close()
}

// scan reads all events again and again, until it is killed.
func scan(dir string) error {
	t, err := engine.Open(dir)
	if err != nil {
		return err
	}
	for first := true; ; {
		for _, err := range t.Events(ctx, engine.Query{}) {
			if err != nil {
				return err
			}
			if first {
				os.Stdout.WriteString("ready\n")
				first = false
			}
		}
	}
}

// outcome is what a pushing process reports.
type outcome struct {
	Took   []time.Duration // of each push, from call to return
	All    time.Duration   `json:"-"`
	Failed int             // how many of them ended in an error
	Error  string          // the first
}

// pushes makes n durable pushes, one after the other, once stdin says so.
func pushes(what, path string, n int) error {
	var push func() error
	if what == "push-thread" {
		t, err := engine.Open(path)
		if err != nil {
			return err
		}
		push = func() error {
			_, err := t.Push(ctx, event.Draft{Source: "self", Type: "message", Content: payload})
			return err
		}
	} else {
		db, err := openSQLite("sqlite3", path)
		if err != nil {
			return err
		}
		defer db.Close()
		stmt, err := db.Prepare(insert)
		if err != nil {
			return err
		}
		push = func() error {
			_, err := stmt.Exec("self", "message", nil, payload)
			return err
		}
	}
	os.Stdout.WriteString("ready\n")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	var o outcome
	for range n {
		start := time.Now()
		err := push()
		o.Took = append(o.Took, time.Since(start))
		if err != nil {
			if o.Failed++; o.Failed == 1 {
				o.Error = err.Error()
			}
		}
	}
	return json.NewEncoder(os.Stdout).Encode(o)
}
