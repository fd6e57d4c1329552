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

// sideBySide compares 10,000 events over 100 keys that take 5 ms of work each,
// in order within a key: sixteen workers next to one, and next to a queue in SQLite that takes
// the oldest event of a key as goqite does. Then the same with 5 ms added to every sync,
// of both, as on an SD card.
func (l *lab) sideBySide() error {
	for _, slow := range []bool{false, true} {
		all, few, theirs, what := 10_000, 500, 10_000, ""
		if slow {
			if _, err := exec.LookPath("strace"); err != nil {
				fmt.Fprintln(os.Stderr, "  left out with slow syncs:", err)
				return nil
			}
			theirs, what = 1_000, ", each sync 5 ms slower"
		}
		one, err := l.napThread(few, 1, slow)
		if err != nil {
			return err
		}
		many, err := l.napThread(all, 16, slow)
		if err != nil {
			return err
		}
		sqlite, err := l.napSQLite(theirs, 16, slow)
		if err != nil {
			return err
		}
		rate := func(n int, took time.Duration) float64 { return float64(n) / took.Seconds() }
		l.add(row{what: "10,000 events over 100 keys, 5 ms of work each, 16 workers next to one" + what, ours: fmt.Sprintf("%.0f/s", rate(all, many)), theirs: fmt.Sprintf("%.0f/s with one", rate(few, one)),
			figure: rate(all, many) / rate(few, one), asked: 14, atLeast: true})
		l.add(row{what: "the same next to a queue in SQLite, 16 workers" + what, ours: fmt.Sprintf("%.0f/s", rate(all, many)), theirs: fmt.Sprintf("%.0f/s (C)", rate(theirs, sqlite)),
			figure: rate(all, many) / rate(theirs, sqlite), asked: 1, atLeast: true})
	}
	return nil
}

// slowly returns args so that each sync of what they start takes slowSync longer. Only
// syncs are stopped at, so that nothing else takes longer.
func slowly(slow bool, args ...string) []string {
	if !slow {
		return args
	}
	return append([]string{"strace", "-f", "-qq", "--seccomp-bpf", "-o", os.DevNull, "-e", "trace=fsync,fdatasync",
		"-e", fmt.Sprintf("inject=fsync,fdatasync:delay_enter=%d", slowSync.Microseconds())}, args...)
}

const slowSync = 5 * time.Millisecond

// quietSignals keeps the runtime of Go, which both sides have, from sending itself
// signals: strace stops at each.
const quietSignals = "GODEBUG=asyncpreemptoff=1"

func (l *lab) napThread(n, workers int, slow bool) (time.Duration, error) {
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
	err := runQuietly("", slowly(slow, l.thread, "consume", "--thread", dir, "--consumer", "c", "--parallel", strconv.Itoa(workers), "--key", "source", "--worker",
		"--", l.self, workerVerb, "nap")...)
	return time.Since(start), err
}

// runQuietly is run without handlers that start by themselves.
func runQuietly(stdin string, args ...string) error {
	return runWith(append(os.Environ(), "THREAD_DISPATCH=none", quietSignals), stdin, args...)
}

// napSQLite has another process work through a queue in SQLite, and returns how long it
// says that took.
func (l *lab) napSQLite(n, workers int, slow bool) (time.Duration, error) {
	path := l.path("nap.sqlite")
	defer removeSQLite(path)
	args := slowly(slow, l.self, workerVerb, "nap-sqlite", path, strconv.Itoa(n), strconv.Itoa(workers))
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env, cmd.Stderr = append(os.Environ(), quietSignals), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("%v: %w", args, err)
	}
	return time.ParseDuration(string(out))
}

func removeSQLite(path string) {
	for _, end := range []string{"", "-wal", "-shm"} {
		os.Remove(path + end)
	}
}

// napQueue fills a queue in SQLite, has workers work through it, and prints how long they took.
func napQueue(path string, n, workers int) error {
	db, err := openSQLite("sqlite3", path)
	if err != nil {
		return err
	}
	defer db.Close()
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, s := range []string{"CREATE TABLE q (id INTEGER PRIMARY KEY, key TEXT NOT NULL, body TEXT NOT NULL, until INTEGER NOT NULL DEFAULT 0, received INTEGER NOT NULL DEFAULT 0)",
		"CREATE INDEX q_key ON q (key, id)"} {
		if _, err := tx.Exec(s); err != nil {
			return err
		}
	}
	for i := range n {
		if _, err := tx.Exec("INSERT INTO q (key, body) VALUES (?, 'x')", fmt.Sprintf("s%d", i%napKeys)); err != nil {
			return err
		}
	}
	if err := tx.Commit(); err != nil {
		return err
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
			return err
		}
	}
	_, err = fmt.Print(took)
	return err
}
