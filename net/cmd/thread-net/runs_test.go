//go:build !windows

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// at makes the command one of another host: each host has a separate place.
func at(place string, cmd *exec.Cmd) *exec.Cmd {
	cmd.Env = append(cmd.Env, "XDG_STATE_HOME="+place)
	return cmd
}

// TestRunOfAnotherHost: a run whose worker was killed, or stopped, begins again on another
// host, once. What the first worker stores later is refused.
func TestRunOfAnotherHost(t *testing.T) {
	for name, sig := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "stopped": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			h := newFleet(t)
			dir := t.TempDir()
			file := func(name string) string { return filepath.Join(dir, name) }
			h.run("session", "start", "--id", "S")
			h.run("run", "enqueue", "--id", "R", "--session", "S")

			work := []string{"run", "work", "--once", "--every", "500ms", "--strategy", "requeue_all", "--", "sh", "-c"}
			first := at(file("a"), h.command(append(work, "echo begun >>"+file("first")+"; while [ ! -e "+file("gate")+" ]; do sleep 0.05; done; echo late")...))
			first.Stderr = new(strings.Builder)
			h.start(first)
			awaitLong(file("first"), 1)
			second := at(file("b"), h.command(append(work, "echo begun >>"+file("second"))...))
			second.Stderr = os.Stderr
			h.start(second)
			if err := first.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if err := second.Wait(); err != nil {
				t.Fatal(err)
			}
			if n := awaitLines(file("second"), 1); n != 1 {
				t.Fatalf("the other host has run it %d times", n)
			}
			if err := os.WriteFile(file("gate"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			_ = first.Process.Signal(syscall.SIGCONT)
			_ = first.Wait()
			row := h.run("run", "show", "--json", "R")
			for _, want := range []string{`"status":"completed"`, `"attempt":2`, `"recovery":{"attempts":1,`} {
				if !strings.Contains(row, want) {
					t.Errorf("%s is not in %s", want, row)
				}
			}
			if strings.Contains(row, `"output":"late`) {
				t.Errorf("a late result is stored: %s", row)
			}
			if said := first.Stderr.(*strings.Builder).String(); sig == syscall.SIGSTOP && !strings.Contains(said, "the run was recovered") {
				t.Errorf("the first worker says %q", said)
			}
		})
	}
}

// exec runs a statement in the schema, and returns how many rows it gave.
func (h *host) exec(statement string) int {
	h.t.Helper()
	c, _, err := plainConn(h.url)
	if err != nil {
		h.t.Fatal(err)
	}
	defer c.Close(context.Background())
	r, err := c.Exec(context.Background(), statement).ReadAll()
	if err != nil {
		h.t.Fatal(err)
	}
	return len(r[0].Rows)
}

// eventually waits until the runs of handlers, as lines of JSON, are as wanted.
func (h *host) eventually(wanted func(rows []string) bool) {
	h.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var rows string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-tick.C {
		if rows = h.run("runs", "--all", "--json"); wanted(strings.Split(strings.TrimSpace(rows), "\n")) {
			return
		}
	}
	h.t.Fatalf("the runs are\n%s", rows)
}

// TestServeRecords: the runs of handlers that serve runs are in the history, with what they
// printed, and with the steps that they recorded. A run whose host was killed is recovered by
// another host.
func TestServeRecords(t *testing.T) {
	h := newFleet(t)
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	h.run("subscribe", "--consumer", "c", "--handler", "echo said; thread-net run step --type mine >>"+file("steps")+
		"; while [ -e "+file("block")+" ]; do sleep 0.05; done; thread-net consume -- true; exit $(cat "+file("exit")+")")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(file(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	serve := func(place string) *exec.Cmd {
		cmd := at(file(place), h.command("serve"))
		cmd.Stderr = os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		h.start(cmd)
		return cmd
	}
	has := func(row string, wants ...string) bool {
		for _, want := range wants {
			if !strings.Contains(row, want) {
				return false
			}
		}
		return true
	}
	write("exit", "0")
	h.push(1)
	first := serve("a")
	h.eventually(func(rows []string) bool {
		return len(rows) == 1 && has(rows[0], `"state":"completed"`, `"exit":"exit 0"`, `"event_id":1,"source":"s","acked_from":0,"acked_to":1`)
	})
	var row struct {
		ID string `json:"run_id"`
	}
	if err := json.Unmarshal([]byte(h.run("runs", "--all", "--json")), &row); err != nil {
		t.Fatal(err)
	}
	if steps := h.run("run", "show", "--json", row.ID); !has(steps, `"step_type":"mine"`, `"step_type":"command"`, `"output":"said\n"`) {
		t.Error(steps)
	}
	write("exit", "3")
	h.push(1)
	h.eventually(func(rows []string) bool {
		return len(rows) == 2 && has(rows[0], `"state":"failed"`, `"exit":"exit 3"`, `"error":"exit 3: said"`)
	})
	write("exit", "0")
	write("block", "")
	h.push(1)
	awaitLong(file("steps"), 3)
	_ = first.Process.Kill()
	_ = first.Wait()
	h.expire("c")
	serve("b")
	awaitLong(file("steps"), 4) // it has the turn, which what is left of the first has not
	if err := os.Remove(file("block")); err != nil {
		t.Fatal(err)
	}
	h.eventually(func(rows []string) bool {
		text := strings.Join(rows, "\n")
		return len(rows) == 4 && strings.Count(text, `"state":"completed"`) == 2 && strings.Count(text, `"error":"no heartbeat for `) == 1
	})
	if h.exec("SELECT 1 FROM turns WHERE consumer >= '\\xff'") != 0 {
		t.Error("a run that has ended has a beat")
	}
}

// TestRunCutOff: a worker that cannot reach the server ends its command, because another host
// may take the run.
func TestRunCutOff(t *testing.T) {
	h := newFleet(t)
	u, err := url.Parse(h.url)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	if strings.HasPrefix(q.Get("host"), "/") {
		t.Skip("the server is not reached over TCP")
	}
	w := newWire(t, net.JoinHostPort(q.Get("host"), q.Get("port")))
	_, port, _ := net.SplitHostPort(w.listener.Addr().String())
	q.Set("host", "127.0.0.1")
	q.Set("port", port)
	q.Set("connect_timeout", "2")
	u.RawQuery = q.Encode()
	far := &host{t, u.String(), h.name}
	dir := t.TempDir()
	begun, ended := filepath.Join(dir, "begun"), filepath.Join(dir, "ended")
	cmd := at(dir, far.command("run", "exec", "--id", "R", "--every", "500ms", "--", "sh", "-c",
		"trap 'echo >>"+ended+"; exit 1' TERM; echo >>"+begun+"; while :; do sleep 0.05; done"))
	h.start(cmd)
	awaitLong(begun, 1)
	w.set(true)
	awaitLong(ended, 1)
	w.set(false)
	if awaitLines(ended, 1) != 1 {
		t.Fatal("the command was not ended")
	}
	_ = cmd.Wait()
	if row := h.run("run", "show", "--json", "R"); !strings.Contains(row, `"run","id":"R"`) {
		t.Error(row)
	}
}

// TestRelayOfAnotherHost: a relay whose host was killed, or stopped, is followed by the relay of
// another host, which hands the message on again and ends the run that was left. The first one
// stores nothing later.
func TestRelayOfAnotherHost(t *testing.T) {
	for name, sig := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "stopped": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			h := newFleet(t)
			dir := t.TempDir()
			file := func(name string) string { return filepath.Join(dir, name) }
			h.run("outbox", "config", "--handler", "cat >>"+file("begun")+"; until test -e "+file("gate")+"; do sleep 0.05; done; echo '{\"status\":\"accepted\",\"reason\":\"late\"}'")
			h.run("outbox", "add", "--message", `{"event_type":"mention.created","thread_id":101,"comment_id":9,"actor_user_id":12,"target_user_id":5,"target_user_type":"agent"}`)
			first := at(file("a"), h.command("outbox", "relay"))
			first.Stderr = new(strings.Builder)
			h.start(first)
			awaitLong(file("begun"), 1)
			if err := first.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			second := at(file("b"), h.command("outbox", "relay", "--", "sh", "-c", "cat >>"+file("again")+"; echo '{\"status\":\"accepted\",\"reason\":\"second\"}'"))
			second.Stderr = os.Stderr
			h.start(second)
			h.expire("outbox")
			awaitLong(file("again"), 1)
			var list string
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			for deadline := time.Now().Add(patience); !strings.Contains(list, "second") && time.Now().Before(deadline); <-tick.C {
				list = h.run("outbox", "list", "--json")
			}
			if err := os.WriteFile(file("gate"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			_ = first.Process.Signal(syscall.SIGCONT)
			_ = first.Wait()
			if said := first.Stderr.(*strings.Builder).String(); sig == syscall.SIGSTOP && !strings.Contains(said, "another process has taken over the consumer") {
				t.Errorf("the first relay says %q", said)
			}
			if after := h.run("outbox", "list", "--json"); after != list || strings.Contains(after, "late") || !strings.Contains(after, "second") {
				t.Errorf("the records are %s, and were %s", after, list)
			}
			if n := awaitLines(file("again"), 1); n != 1 {
				t.Errorf("the second relay has run the handler %d times", n)
			}
		})
	}
}

// TestServeRelays: thread serve starts the relay of an outbox, which works in the turn that serve
// has.
func TestServeRelays(t *testing.T) {
	h := newFleet(t)
	dir := t.TempDir()
	got := filepath.Join(dir, "got")
	h.run("outbox", "config", "--handler", "cat >>"+got)
	serve := at(dir, h.command("serve"))
	serve.Stderr = os.Stderr
	h.start(serve)
	for n := range 2 {
		h.run("outbox", "add", "--message", fmt.Sprintf(`{"event_type":"mention.created","thread_id":101,"comment_id":%d,"actor_user_id":12,"target_user_id":5,"target_user_type":"agent"}`, n))
		awaitLong(got, n+1)
		h.free("outbox") // the relay ended when nothing was left
	}
	h.eventually(func(rows []string) bool {
		text := strings.Join(rows, "\n")
		return strings.Contains(text, `"consumer_id":"outbox","state":"completed"`)
	})
}
