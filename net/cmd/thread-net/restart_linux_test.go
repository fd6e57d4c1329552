package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"thread/engine"
	"thread/internal/cli"
	opener "thread/net/servers"
	"thread/outbox"
)

// backends are the processes that the server has started.
func (h *server) backends() (list []int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		data, _ := os.ReadFile(path) // it may have ended
		_, rest, _ := bytes.Cut(data, []byte(") "))
		if fields := bytes.Fields(rest); len(fields) > 1 && string(fields[1]) == strconv.Itoa(h.cmd.Process.Pid) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			list = append(list, pid)
		}
	}
	return list
}

// signal sends a signal to all processes of the server, first to the one that starts the
// others.
func (h *server) signal(s syscall.Signal) {
	_ = h.cmd.Process.Signal(s)
	for _, pid := range h.backends() {
		_ = syscall.Kill(pid, s) // it may have ended
	}
}

// crash kills all processes of the server at once, as far as anybody can, and returns when
// they are gone.
func (h *server) crash() {
	h.t.Helper()
	backends := h.backends()
	h.kill()
	for _, pid := range backends {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	for _, pid := range backends {
		for deadline := time.Now().Add(patience); alive(pid); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				h.t.Fatalf("process %d does not end", pid)
			}
		}
	}
}

// alive reports whether there is that process, and not only its exit code.
func alive(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := bytes.Cut(data, []byte(") "))
	return err == nil && !bytes.HasPrefix(rest, []byte("Z"))
}

// application is one with an outbox table, whose rows are taken into a thread.
type application struct {
	t            *testing.T
	database, at string
	rows         int // that are there
}

func newApplication(t *testing.T, database, at string) *application {
	a := &application{t: t, database: database, at: at}
	a.do(`CREATE TABLE event_outbox (id bigint PRIMARY KEY, event_id text UNIQUE, event_type text NOT NULL, thread_id bigint NOT NULL, status text NOT NULL DEFAULT 'pending', error text)`)
	return a
}

// do does a statement, which may be done again, until the server says that it is done.
func (a *application) do(statement string) (first string) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for ; ; time.Sleep(20 * time.Millisecond) {
		c, err := pgconn.Connect(ctx, a.database)
		if err == nil {
			r := c.ExecParams(ctx, statement, nil, nil, nil, nil).Read()
			_ = c.Close(ctx)
			if err = r.Err; err == nil {
				if len(r.Rows) > 0 {
					first = string(r.Rows[0][0])
				}
				return first
			}
		}
		if ctx.Err() != nil {
			a.t.Fatalf("%s: %v", statement, err)
		}
	}
}

func (a *application) add(n int) {
	a.t.Helper()
	a.do(fmt.Sprintf(`INSERT INTO event_outbox (id, event_id, event_type, thread_id) SELECT i, 'e' || i, 'thread.created', i
		FROM generate_series(%d, %d) i ON CONFLICT DO NOTHING`, a.rows, a.rows+n-1))
	a.rows += n
}

func (a *application) take() *exec.Cmd {
	cmd := exec.Command("thread-net", "outbox", "take", "--thread", a.at, "--from", a.database, "--batch", "2")
	cmd.Env = append(os.Environ(), "THREAD_DISPATCH=none")
	return cmd
}

// begun waits until some of the last n rows are marked.
func (a *application) begun(n int) {
	a.t.Helper()
	for deadline := time.Now().Add(patience); a.do(`SELECT count(*) FROM event_outbox WHERE status = 'processed' AND id >= `+strconv.Itoa(a.rows-n)) == "0"; {
		if time.Now().After(deadline) {
			a.t.Fatal("nothing is taken")
		}
	}
}

// taken looks whether each row is in the thread once, and marked.
func (a *application) taken() {
	a.t.Helper()
	if out, err := a.take().CombinedOutput(); err != nil {
		a.t.Fatalf("%v: %s", err, out)
	}
	list := outboxOf(a.t, a.at)
	times := map[string]int{}
	for _, r := range list {
		times[r.EventID]++
	}
	for i := range a.rows {
		if n := times[fmt.Sprint("e", i)]; n != 1 {
			a.t.Errorf("row %d is there %d times", i, n)
		}
	}
	if n := a.do(`SELECT count(*) FROM event_outbox WHERE status <> 'processed'`); n != "0" {
		a.t.Errorf("%s rows are not marked", n)
	}
}

// outboxOf is the outbox of the thread at an address.
func outboxOf(t *testing.T, at string) (list []outbox.Record) {
	t.Helper()
	open := func() (*engine.Thread, error) { return engine.Open(at) }
	if cli.IsURL(at) {
		open = func() (*engine.Thread, error) { return opener.Servers{}.Open(at, nil) }
	}
	th, err := open()
	if err != nil {
		t.Fatal(err)
	}
	defer th.Close()
	if err := th.View(context.Background(), func(tx *engine.Tx) (err error) {
		list, err = outbox.List(tx, outbox.Query{Limit: 1 << 20})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return list
}

// TestRestart: all processes of the server are killed while processes push and consume, and
// rows of an application's outbox are taken, and the same server starts again, three times
// or as often as THREAD_FAILOVERS says. What was confirmed is there once, all of it is
// delivered, and each row was taken once.
func TestRestart(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv("THREAD_FAILOVERS"))
	if err != nil {
		rounds = 3
	}
	s := newServers(t)
	primary := s.at(0, 0)
	s.run("initdb", "-D", primary.data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
	primary.start()
	primary.sql("1", "SELECT 1")
	database := "postgres://postgres@/postgres?sslmode=disable&connect_timeout=5&host=" + primary.socket
	h := &host{t: t, url: database + "&thread=fleet"}
	h.run("init", h.url)
	app := newApplication(t, database, filepath.Join(t.TempDir(), "outbox"))
	program(t, "", "thread", "init", app.at)
	l := newLoad(h)
	cut, away := 0, time.Duration(0)
	for range rounds {
		reach(t, l.pushers, 5)
		app.add(200) // a hundred batches
		taking := app.take()
		h.start(taking)
		app.begun(200)
		primary.crash()
		killed := time.Now()
		if taking.Wait() != nil {
			cut++
		}
		primary.start()
		reach(t, l.pushers, 5)
		away = max(away, time.Since(killed))
	}
	app.taken()
	if list := outboxOf(t, app.at); len(list) != app.rows {
		t.Errorf("%d records of %d rows", len(list), app.rows)
	}
	if cut == 0 {
		t.Error("no take was cut off")
	}
	t.Logf("%d crashes: %s; at most %v from a crash until every pusher had 5 more; %d rows taken, by %d that were cut off",
		rounds, l.verify(), away.Round(time.Millisecond), app.rows, cut)
}
