//go:build linux

package main

import (
	"bufio"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The work of one event, and how many keys events have.
const (
	napTime = 5 * time.Millisecond
	napKeys = 100
)

// nap is a worker of thread consume --worker that takes napTime for an event.
func nap() error {
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return nil
		}
		id, _, _ := strings.Cut(strings.TrimPrefix(line, `{"id":`), ",")
		time.Sleep(napTime)
		fmt.Printf("{\"id\":%s,\"ok\":true}\n", id)
	}
}

// sideBySide compares 10,000 events over 100 keys that take 5 ms of work each, those of
// a key in order: sixteen workers beside one, and beside a queue in SQLite that takes
// the oldest event of a key as goqite does.
func (l *lab) sideBySide() error {
	const all, few = 10_000, 500
	one, err := l.napThread(few, 1)
	if err != nil {
		return err
	}
	many, err := l.napThread(all, 16)
	if err != nil {
		return err
	}
	sqlite, err := l.napSQLite(all, 16)
	if err != nil {
		return err
	}
	rate := func(n int, took time.Duration) float64 { return float64(n) / took.Seconds() }
	l.add(row{what: "10,000 events over 100 keys, 5 ms of work each, 16 workers beside one", ours: show(many), theirs: fmt.Sprintf("%.0f/s with one", rate(few, one)),
		figure: rate(all, many) / rate(few, one), asked: 14, atLeast: true})
	l.ratio("the same beside a queue in SQLite (C), 16 workers", many, sqlite, "(C)", 1)
	return nil
}

func (l *lab) napThread(n, workers int) (time.Duration, error) {
	dir := l.path("nap" + strconv.Itoa(workers))
	defer os.RemoveAll(dir)
	lines := l.path("nap.ndjson")
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "{\"source\":\"s%d\",\"type\":\"t\",\"content\":\"x\"}\n", i%napKeys)
	}
	if err := os.WriteFile(lines, []byte(text.String()), 0o600); err != nil {
		return 0, err
	}
	for _, c := range []struct {
		in   string
		args []string
	}{
		{"", []string{"init", dir}}, {lines, []string{"push", "--thread", dir, "--batch", "--quiet"}},
		{"", []string{"subscribe", "--thread", dir, "--consumer", "c", "--handler", "true"}},
	} {
		if err := runQuietly(c.in, append([]string{l.thread}, c.args...)...); err != nil {
			return 0, err
		}
	}
	start := time.Now()
	err := runQuietly("", l.thread, "consume", "--thread", dir, "--consumer", "c", "--parallel", strconv.Itoa(workers), "--key", "source", "--worker",
		"--", l.self, workerVerb, "nap")
	return time.Since(start), err
}

// runQuietly is run without handlers that start by themselves.
func runQuietly(stdin string, args ...string) error {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "THREAD_DISPATCH=none")
	if stdin != "" {
		f, err := os.Open(stdin)
		if err != nil {
			return err
		}
		defer f.Close()
		cmd.Stdin = f
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", args, err, out)
	}
	return nil
}

func (l *lab) napSQLite(n, workers int) (time.Duration, error) {
	db, err := openSQLite("sqlite3", l.path("nap.sqlite"))
	if err != nil {
		return 0, err
	}
	defer db.Close()
	tx, err := db.Begin()
	if err != nil {
		return 0, err
	}
	defer tx.Rollback()
	for _, s := range []string{"CREATE TABLE q (id INTEGER PRIMARY KEY, key TEXT NOT NULL, body TEXT NOT NULL, until INTEGER NOT NULL DEFAULT 0, received INTEGER NOT NULL DEFAULT 0)",
		"CREATE INDEX q_key ON q (key, id)"} {
		if _, err := tx.Exec(s); err != nil {
			return 0, err
		}
	}
	for i := range n {
		if _, err := tx.Exec("INSERT INTO q (key, body) VALUES (?, 'x')", fmt.Sprintf("s%d", i%napKeys)); err != nil {
			return 0, err
		}
	}
	if err := tx.Commit(); err != nil {
		return 0, err
	}
	const receive = `UPDATE q SET until = ?1 + 30000, received = received + 1 WHERE id = (
		SELECT id FROM q WHERE until <= ?1 AND NOT EXISTS (SELECT 1 FROM q r WHERE r.key = q.key AND r.id < q.id) ORDER BY id LIMIT 1) RETURNING id`
	start := time.Now()
	var group sync.WaitGroup
	failed := make(chan error, workers)
	for range workers {
		group.Go(func() {
			for {
				var id, left int64
				err := db.QueryRow(receive, time.Now().UnixMilli()).Scan(&id)
				if errors.Is(err, sql.ErrNoRows) {
					if err = db.QueryRow("SELECT count(*) FROM q").Scan(&left); err == nil && left > 0 {
						time.Sleep(time.Millisecond)
						continue
					}
				} else if err == nil {
					time.Sleep(napTime)
					if _, err = db.Exec("DELETE FROM q WHERE id = ?", id); err == nil {
						continue
					}
				}
				failed <- err
				return
			}
		})
	}
	group.Wait()
	took := time.Since(start)
	for range workers {
		if err := <-failed; err != nil {
			return 0, err
		}
	}
	return took, nil
}
