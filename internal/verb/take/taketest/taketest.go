//go:build unix

// Package taketest is what the verb outbox take must do whichever database it takes
// from. It is for tests.
package taketest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"thread/engine"
	"thread/internal/verb/take"
	"thread/outbox"
)

// Program is a program that has the verb.
type Program interface {
	Run(args []string, stdin io.Reader, stdout, stderr io.Writer) int
}

// Database has a table event_outbox, with rows that are pending.
type Database struct {
	Args     []string // --from and, if it needs that, --table
	Statuses func(t *testing.T) []string
	Settle   func(t *testing.T) // waits until a process that was killed is forgotten; may be nil
}

// Main is TestMain. It is also the program that tests kill: with TAKE_ARGS set it takes,
// says on stdout when it has reached the place that TAKE_KILL_AT counts, and waits there
// for its death.
func Main(m *testing.M, p Program) {
	args := os.Getenv("TAKE_ARGS")
	if args == "" {
		os.Exit(m.Run())
	}
	at, _ := strconv.Atoi(os.Getenv("TAKE_KILL_AT"))
	n := 0
	take.Reached = func(place string) {
		if n++; n == at {
			fmt.Fprintln(os.Stdout, "reached", place) // for the test that started it
			time.Sleep(time.Hour)                     // a deadlock would end the program
		}
	}
	os.Exit(p.Run(strings.Split(args, "\n"), os.Stdin, os.Stdout, os.Stderr))
}

// Command is a separate process that takes, and stops at the place that killAt counts
// from 1.
func Command(killAt int, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "TAKE_ARGS="+strings.Join(args, "\n"), fmt.Sprint("TAKE_KILL_AT=", killAt))
	cmd.Stderr = os.Stderr
	return cmd
}

// Run takes in this process.
func Run(p Program, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = p.Run(args, strings.NewReader(""), &out, &errs)
	return code, out.String(), errs.String()
}

// NewThread makes a thread whose handlers are not started.
func NewThread(t *testing.T) *engine.Thread {
	t.Helper()
	t.Setenv("THREAD_DISPATCH", "none")
	th, err := engine.Init(filepath.Join(t.TempDir(), "t"))
	if err != nil {
		t.Fatal(err)
	}
	return th
}

// Records are the records of the outbox.
func Records(t *testing.T, th *engine.Thread) (list []outbox.Record) {
	t.Helper()
	err := th.View(context.Background(), func(tx *engine.Tx) (err error) {
		list, err = outbox.List(tx, outbox.Query{Limit: 1 << 20})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// EventIDs are the ids of the records, in their order.
func EventIDs(t *testing.T, th *engine.Thread) (list []string) {
	t.Helper()
	for _, r := range Records(t, th) {
		list = append(list, r.EventID)
	}
	return list
}

// Killed tests O-02: wherever a take is killed, between the two commits too, the next one
// leaves each row in the thread exactly once, in order, and marked; and the one after
// that does nothing. Databases are made with that many rows, whose event_ids are e0, e1,
// and so on.
func Killed(t *testing.T, p Program, newDatabase func(t *testing.T, rows int) Database) {
	const rows = 6
	places := map[string]int{}
	for n := 1; ; n++ {
		db := newDatabase(t, rows)
		th := NewThread(t)
		args := append([]string{"outbox", "take", "--thread", th.Dir(), "--batch", "2"}, db.Args...)
		cmd := Command(n, args...)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		line, _ := bufio.NewReader(out).ReadString('\n')
		place, killed := strings.CutPrefix(strings.TrimSpace(line), "reached ")
		if killed {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		if err := cmd.Wait(); (err != nil) != killed {
			t.Fatalf("%s: %v", line, err)
		}
		if db.Settle != nil {
			db.Settle(t)
		}
		// What is marked is stored, always.
		stored := len(Records(t, th))
		for i, s := range db.Statuses(t) {
			if s == "processed" && i >= stored {
				t.Errorf("killed at %s (%d): row %d is marked, but only %d are stored", place, n, i, stored)
			}
		}
		Finished(t, p, th, db, args, fmt.Sprintf("killed at %s (%d)", place, n), rows)
		if !killed {
			break
		}
		places[place]++
	}
	for _, place := range []string{"read", "stored", "marked"} {
		if places[place] != rows/2 {
			t.Errorf("%d deaths at %s", places[place], place)
		}
	}
}

// Finished runs a take that continues after what has happened, and one more.
func Finished(t *testing.T, p Program, th *engine.Thread, db Database, args []string, what string, rows int) {
	t.Helper()
	if code, out, errs := Run(p, args...); code != 0 {
		t.Fatalf("%s: %s%s", what, out, errs)
	}
	var want []string
	for i := range rows {
		want = append(want, fmt.Sprint("e", i))
	}
	if got := EventIDs(t, th); !slices.Equal(got, want) || slices.ContainsFunc(db.Statuses(t), func(s string) bool { return s != "processed" }) {
		t.Errorf("%s: got %v, %v", what, got, db.Statuses(t))
	}
	if code, out, errs := Run(p, append(args, "--json")...); code != 0 || out != `{"taken":0,"duplicates":0,"refused":0}`+"\n" {
		t.Errorf("%s, again: %d, %s%s", what, code, out, errs)
	}
}
