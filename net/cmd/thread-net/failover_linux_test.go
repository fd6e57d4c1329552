package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"thread/outbox"
)

// flight is what else is in flight while primaries fail: runs with steps, rows of an
// application's outbox that are taken, messages that a relay hands to an agent, and a
// trigger. Two hosts do each of them, and a row is taken by one.
type flight struct {
	*host
	app     *application
	queue   string // the directory that stands for a broker
	n       int    // runs, messages of each kind and rows that were confirmed
	sending context.Context
	working context.Context
	settle  context.CancelFunc // ends the sending
	end     context.CancelFunc // ends the work
	sender  sync.WaitGroup
	workers sync.WaitGroup
}

// flightPause is the time between two sends, and before a program that has ended starts
// again, as a service manager waits.
const flightPause = 300 * time.Millisecond

func newFlight(h *host, database string) *flight {
	h.t.Helper()
	dir := h.t.TempDir()
	f := &flight{host: h, app: newApplication(h.t, database, h.url), queue: filepath.Join(dir, "queue")}
	f.sending, f.settle = context.WithCancel(context.Background())
	f.working, f.end = context.WithCancel(context.Background())
	h.t.Cleanup(func() {
		f.settle()
		f.end()
		f.sender.Wait()
		f.workers.Wait()
	})
	bridge := filepath.Join(dir, "thread-bridge")
	build := exec.Command("go", "build", "-tags", "bare", "-o", bridge, "./cmd/thread-bridge")
	build.Dir = filepath.Join("..", "..", "..", "bridge")
	if out, err := build.CombinedOutput(); err != nil {
		h.t.Fatalf("%v: %s", err, out)
	}
	config := filepath.Join(dir, "trigger.yaml")
	text := fmt.Sprintf("name: orders\nqueue_name: q\nconsumer_group: g\nadapter: {type: mock, connection: {dir: %q}}\n", f.queue)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
	if err := os.Mkdir(f.queue, 0o700); err != nil {
		h.t.Fatal(err)
	}
	for range 2 {
		f.again("thread-net", "run", "work", "--strategy", "requeue_all", "--every", "1s", "--", "sh", "-c",
			`thread-net run do --key one -- true && echo "{\"attempt\":$THREAD_RUN_ATTEMPT}"`)
		f.again("thread-net", "outbox", "relay", "--", "sh", "-c", `echo '{"status":"accepted"}'`)
		f.again(bridge, "trigger", "run", "--config", config)
	}
	f.again(f.app.take().Args...)
	f.sender.Go(f.send)
	return f
}

// again runs a program on a separate host, and starts it again when it has ended.
func (f *flight) again(args ...string) {
	place := f.t.TempDir()
	f.workers.Go(func() {
		for f.working.Err() == nil {
			cmd := exec.CommandContext(f.working, args[0], args[1:]...)
			cmd.Env = append(os.Environ(), "THREAD_DIR="+f.url, "XDG_STATE_HOME="+place)
			cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(syscall.SIGTERM) }, patience
			_ = cmd.Run()
			pause(f.working)
		}
	})
}

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(flightPause):
	}
}

// confirmed repeats a command until it reports that its row is stored.
func (f *flight) confirmed(args ...string) {
	for deadline := time.Now().Add(2 * patience); ; time.Sleep(flightPause) {
		out, err := f.command(args...).CombinedOutput()
		if err == nil || bytes.Contains(out, []byte("row exists")) {
			return
		}
		if time.Now().After(deadline) {
			f.t.Errorf("thread %q: %v: %s", args, err, out)
			return
		}
	}
}

func (f *flight) send() {
	for ; f.sending.Err() == nil; pause(f.sending) {
		i := strconv.Itoa(f.n)
		f.confirmed("run", "enqueue", "--id", "R"+i, "--retries", "1000", "--backoff", "100ms..1s")
		f.confirmed("outbox", "add", "--message", `{"event_id":"m`+i+`","event_type":"comment.replied","thread_id":1,"comment_id":`+i+
			`,"actor_user_id":1,"target_user_id":2,"target_user_type":"agent"}`)
		part := filepath.Join(f.queue, ".part")
		err := os.WriteFile(part, []byte(`{"id":"q`+i+`","body":"e30="}`), 0o600)
		if err == nil {
			err = os.Rename(part, filepath.Join(f.queue, fmt.Sprintf("%020d-a.json", f.n)))
		}
		if err != nil {
			f.t.Error(err)
			return
		}
		f.app.add(1)
		f.n++
	}
}

// left waits until nothing of a kind is left.
func (f *flight) left(what string, count func() int) {
	f.t.Helper()
	for least, deadline := 1<<30, time.Now().Add(patience); ; time.Sleep(flightPause) {
		n := count()
		if n == 0 {
			return
		}
		if n < least {
			least, deadline = n, time.Now().Add(patience)
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("%d %s are left", n, what)
		}
	}
}

// verify ends the work when all of it is done. Each run has completed with the result of its
// last attempt, each message was handed on, and each row and message of the trigger is there
// once. It returns figures.
func (f *flight) verify() string {
	t := f.t
	t.Helper()
	f.settle()
	f.sender.Wait()
	f.left("runs", func() (n int) {
		for _, status := range []string{"queued", "running"} {
			n += strings.Count(f.run("run", "list", "--status", status, "--limit", "1000000", "--json"), `{"id":"R`)
		}
		return n
	})
	f.left("messages of the queue", func() int {
		list, _ := filepath.Glob(filepath.Join(f.queue, "*.json"))
		return len(list)
	})
	f.app.taken()
	f.left("messages", func() (n int) {
		for _, m := range outboxOf(t, f.url) {
			if m.Status == outbox.Pending {
				n++
			}
		}
		return n
	})
	f.end()
	f.workers.Wait()
	again := 0
	for i := range f.n {
		again += f.verifyRun(fmt.Sprint("R", i))
	}
	accepted := map[string]int{}
	for _, m := range outboxOf(t, f.url) {
		if m.Status != outbox.Processed {
			t.Errorf("message %s is %s", m.EventID, m.Status)
		}
		for _, r := range m.Receipts {
			if r.Status == "accepted" {
				accepted[m.EventID]++
			}
		}
	}
	events := map[string]int{}
	for line := range strings.Lines(f.run("peek", "--last-event-id", "0", "--limit", "10000000")) {
		var e struct{ Source, Content string }
		var c struct {
			MessageID string `json:"message_id"`
			EventID   string `json:"event_id"`
		}
		if json.Unmarshal([]byte(line), &e) == nil && e.Source != "s" && json.Unmarshal([]byte(e.Content), &c) == nil {
			events[c.MessageID+c.EventID]++
		}
	}
	for i := range f.n {
		if m := fmt.Sprint("m", i); accepted[m] != 1 || events[m] != 1 {
			t.Errorf("message %s was accepted %d times, and is there %d times", m, accepted[m], events[m])
		}
		if q := fmt.Sprint("q", i); events[q] != 1 {
			t.Errorf("message %s of the trigger is there %d times", q, events[q])
		}
	}
	return fmt.Sprintf("%d runs with %d attempts more, and as many messages of a relay, of a trigger, and rows taken", f.n, again)
}

// verifyRun returns how many attempts of a run were not the last one.
func (f *flight) verifyRun(id string) (again int) {
	f.t.Helper()
	attempt, steps, results := 0, 0, 0
	text := f.run("run", "show", id, "--json")
	for line := range strings.Lines(text) {
		var row struct {
			Entity, Status string
			Type           string `json:"step_type"`
			Attempt        int
			Input          struct{ Attempt int }
			Output         struct{ Result struct{ Attempt int } }
		}
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			f.t.Fatalf("%s: %v", line, err)
		}
		done := row.Status == "completed"
		switch {
		case row.Entity == "run" && !done:
			f.t.Errorf("run %s is %s", id, row.Status)
		case row.Entity == "run":
			attempt = row.Attempt
		case row.Type == "do" && done:
			steps++
		case row.Type == "command" && done && row.Input.Attempt == attempt && row.Output.Result.Attempt == attempt:
			results++
		case row.Type == "command" && done:
			f.t.Errorf("run %s has the result of a stale attempt: %s", id, line)
		}
	}
	if steps != 1 || results != 1 {
		f.t.Errorf("run %s has %d steps and %d results:\n%s", id, steps, results, text)
	}
	return attempt - 1
}

// TestFailover: the primary is killed while processes push, consume and do what a flight has,
// and its synchronous standby takes over, as often as THREAD_FAILOVERS says. Two times of
// five it is stopped, and continues when the standby has taken over. What was confirmed is
// there once, all of it is delivered, and the thread is sound.
func TestFailover(t *testing.T) {
	rounds, _ := strconv.Atoi(os.Getenv("THREAD_FAILOVERS"))
	if rounds == 0 {
		t.Skip("set THREAD_FAILOVERS to how often a primary is to be killed")
	}
	s := newServers(t)
	primary := s.at(0, 0)
	s.run("initdb", "-D", primary.data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
	primary.start()
	primary.sql("1", "SELECT 1")
	standby := primary.standby(1, 1)
	h := &host{t: t, url: s.address() + "fleet&durability=1"}
	h.run("init", h.url)
	if out := h.run("info"); !strings.Contains(out, "2 hosts, fsync") {
		t.Fatalf("the standby does not count: %s", out)
	}
	t.Setenv("THREAD_DISPATCH", "none")
	f := newFlight(h, strings.TrimSuffix(s.address(), "&thread="))
	l := newLoad(h)
	var away time.Duration
	pauses := 0
	for round := range rounds {
		reach(t, l.pushers, 5)
		pause := round%5 == 1 || round%5 == 3
		if pause {
			pauses++
			t.Cleanup(primary.crash) // what is stopped would stay
			primary.signal(syscall.SIGSTOP)
		} else {
			primary.kill()
		}
		killed := time.Now()
		standby.sql("", "ALTER SYSTEM RESET synchronous_standby_names")
		standby.promote()
		reach(t, l.pushers, 5)
		away = max(away, time.Since(killed))
		if pause { // it still thinks that it is the primary
			primary.signal(syscall.SIGCONT)
			primary.sql("f", "SELECT pg_is_in_recovery()")
			primary.crash()
		}
		if round+1 < rounds {
			primary, standby = standby, standby.standby(round%2, round+2)
		}
	}
	other := f.verify()
	t.Logf("%d primaries killed, %d stopped: %s; %s; at most %v until every pusher had 5 more", rounds-pauses, pauses, l.verify(), other, away.Round(time.Millisecond))
}
