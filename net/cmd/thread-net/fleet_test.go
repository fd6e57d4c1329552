//go:build !windows

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"thread/net/internal/pgtest"
)

// host runs programs as a host of a fleet would.
type host struct {
	t    *testing.T
	url  string
	name string // of its connections
}

func newFleet(t *testing.T) *host {
	t.Helper()
	name := fmt.Sprintf("fleet%d_%d", os.Getpid(), time.Now().UnixNano())
	h := &host{t, pgtest.Schema(t) + url.QueryEscape("fleet") + "&application_name=" + name, name}
	h.run("init", h.url)
	return h
}

func (h *host) command(args ...string) *exec.Cmd {
	cmd := exec.Command("thread-net", args...)
	cmd.Env = append(os.Environ(), "THREAD_DIR="+h.url)
	return cmd
}

// run runs a verb to its end and returns what it printed.
func (h *host) run(args ...string) string {
	h.t.Helper()
	cmd := h.command(args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		h.t.Fatalf("thread %q: %v\n%s", args, err, &stderr)
	}
	return string(out)
}

// expire makes the turns that are held end, as if their leases had run out: all of them, or
// the events of these consumers.
func (h *host) expire(consumers ...string) {
	h.t.Helper()
	c, _, err := plainConn(h.url)
	if err != nil {
		h.t.Fatal(err)
	}
	defer c.Close(context.Background())
	const all = "UPDATE turns SET until = clock_timestamp()"
	if len(consumers) == 0 {
		_, err = c.Exec(context.Background(), all).ReadAll()
	}
	for _, name := range consumers {
		err = errors.Join(err, c.ExecParams(context.Background(), all+" WHERE consumer = $1", [][]byte{[]byte(name)}, nil, []int16{1}, nil).Read().Err)
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// cut ends all connections of the fleet.
func (h *host) cut() {
	h.t.Helper()
	c, _, err := plainConn(h.url)
	if err != nil {
		h.t.Fatal(err)
	}
	defer c.Close(context.Background())
	if r := c.ExecParams(context.Background(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1 AND pid <> pg_backend_pid()",
		[][]byte{[]byte(h.name)}, nil, nil, nil).Read(); r.Err != nil {
		h.t.Fatal(r.Err)
	}
}

// settled waits, for at most 20 s, until nothing is left to settle, and returns what info
// says then.
func (h *host) settled() (info string) {
	h.t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		before := info // what is pending is counted later than what is acked
		if info = h.run("info", "--json"); info == before && strings.Contains(info, `"pending_count": 0`) {
			return info
		}
	}
	h.t.Fatalf("not everything is settled:\n%s", info)
	return ""
}

// start starts a program that is killed at the end of the test.
func (h *host) start(cmd *exec.Cmd) {
	h.t.Helper()
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
}

func (h *host) push(n int) {
	h.t.Helper()
	cmd := h.command("push", "--source", "s", "--type", "t", "--lines", "--quiet")
	cmd.Stdin = strings.NewReader(strings.Repeat("x\n", n))
	if out, err := cmd.CombinedOutput(); err != nil {
		h.t.Fatalf("%v\n%s", err, out)
	}
}

// A host that was stopped beyond its lease, with a handler under way, stores nothing
// afterwards, and says why; another one has gone on meanwhile.
func TestStopped(t *testing.T) {
	h := newFleet(t)
	dir := t.TempDir()
	h.run("subscribe", "--consumer", "w", "--pull")
	h.push(3)
	begun, gate, log := filepath.Join(dir, "begun"), filepath.Join(dir, "gate"), filepath.Join(dir, "log")
	first := h.command("consume", "--consumer", "w", "--follow", "--", "sh", "-c",
		fmt.Sprintf("echo $THREAD_EVENT_ID >>%s; until test -e %s; do sleep 0.02; done; echo first >>%s", begun, gate, log))
	var said bytes.Buffer
	first.Stderr = &said
	h.start(first)
	if n := awaitLines(begun, 1); n != 1 {
		t.Fatalf("%d handlers have begun: %s", n, &said)
	}
	if err := first.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	h.expire()
	second := h.command("consume", "--consumer", "w", "--follow", "--", "sh", "-c", "echo $THREAD_EVENT_ID >>"+log)
	second.Stderr = os.Stderr
	h.start(second)
	defer func() {
		_ = second.Process.Signal(syscall.SIGTERM)
		if err := second.Wait(); err != nil {
			t.Errorf("the second: %v", err)
		}
	}()
	if n := awaitLines(log, 3); n != 3 {
		t.Fatalf("the second host has delivered %d events", n)
	}
	before := h.settled()
	// Its handler ends well now, and it continues.
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := first.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	err := first.Wait()
	if first.ProcessState.ExitCode() != 1 || !strings.Contains(said.String(), `another process has taken over the consumer "w" - nothing was stored here`) {
		t.Errorf("the first host: %v: %s", err, &said)
	}
	if after := h.run("info", "--json"); after != before {
		t.Errorf("it has changed something:\n%s\nbefore:\n%s", after, before)
	}
	if data, _ := os.ReadFile(log); !strings.HasPrefix(string(data), "1\n2\n3\n") {
		t.Errorf("delivered: %q", data)
	}
}

// TestKills: pushers and consumers on several hosts are killed at random, hosts are stopped
// beyond their leases and come back, and connections are cut. Every event that was
// acknowledged is there once, every one is settled, in order, and what was settled is not
// delivered again, but by a host that was stopped between its pop and its command.
func TestKills(t *testing.T) {
	kills := 20
	if n, err := strconv.Atoi(os.Getenv("THREAD_KILLS")); err == nil {
		kills = n
	}
	seed := rand.Uint64()
	if n, err := strconv.ParseUint(os.Getenv("THREAD_SEED"), 10, 64); err == nil {
		seed = n
	}
	t.Logf("THREAD_SEED=%d, %d kills", seed, kills)
	r := rand.New(rand.NewPCG(seed, 2))
	h := newFleet(t)
	h.run("subscribe", "--consumer", "w", "--pull")
	log := filepath.Join(t.TempDir(), "log")
	consume := func() *exec.Cmd {
		cmd := h.command("consume", "--consumer", "w", "--follow", "--max-attempts", "1000", "--backoff", "1ms", "--backoff-factor", "1", "--",
			"sh", "-c", "echo $THREAD_EVENT_ID >>"+log)
		h.start(cmd)
		return cmd
	}
	kill := func(cmd *exec.Cmd) {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	hosts := []*exec.Cmd{consume(), consume()}
	var stopped []*exec.Cmd
	stops, cuts := 0, 0
	var acked sync.Map // contents that were acknowledged
	for i := range kills {
		pusher := h.command("push", "--source", "s", "--type", "t", "--batch")
		var lines strings.Builder
		for n := range 5 {
			fmt.Fprintf(&lines, `{"source":"s","type":"t","content":"%d.%d"}`+"\n", i, n)
		}
		pusher.Stdin = strings.NewReader(lines.String())
		if err := pusher.Start(); err != nil {
			t.Fatal(err)
		}
		if r.IntN(2) == 0 { // at any moment of a push, which takes some 50 ms
			timer := time.AfterFunc(time.Duration(r.IntN(100))*time.Millisecond, func() { _ = pusher.Process.Kill() })
			defer timer.Stop()
		}
		if err := pusher.Wait(); err == nil {
			for n := range 5 {
				acked.Store(fmt.Sprintf("%d.%d", i, n), true)
			}
		}
		// A host that was stopped comes back, and continues as it thinks it may.
		for _, cmd := range stopped {
			_ = cmd.Process.Signal(syscall.SIGCONT)
		}
		victim := r.IntN(len(hosts))
		switch r.IntN(3) {
		case 0:
			kill(hosts[victim])
			h.expire()
			hosts[victim] = consume()
		case 1:
			stops++
			_ = hosts[victim].Process.Signal(syscall.SIGSTOP)
			stopped = append(stopped, hosts[victim])
			h.expire()
			hosts[victim] = consume()
		default:
			// All connections of the fleet at once: who was in the middle of something ends,
			// and is started again as a service manager would.
			cuts++
			h.cut()
			kill(hosts[victim])
			hosts[victim] = consume()
		}
		// The one before has given its place up, or continues next to the two.
		for len(stopped) > 2 {
			_ = stopped[0].Process.Signal(syscall.SIGCONT)
			kill(stopped[0])
			h.expire()
			stopped = stopped[1:]
		}
	}
	for _, cmd := range stopped {
		_ = cmd.Process.Signal(syscall.SIGCONT)
	}
	hosts = append(hosts, stopped...)
	hosts = append(hosts, consume())
	h.push(1)
	events := strings.Split(strings.TrimSpace(h.run("peek", "--last-event-id", "0", "--limit", "1000000")), "\n")
	seen := map[string]int{}
	for i, line := range events {
		var e struct {
			ID      int
			Content string
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.ID != i+1 {
			t.Fatalf("line %d: %s: %v", i+1, line, err)
		}
		seen[e.Content]++
	}
	acked.Range(func(content, _ any) bool {
		if seen[content.(string)] != 1 {
			t.Errorf("%s was acknowledged, and is there %d times", content, seen[content.(string)])
		}
		return true
	})
	for content, n := range seen {
		if n != 1 {
			t.Errorf("%s is there %d times", content, n)
		}
	}
	// The last is delivered: its line comes last.
	last := strconv.Itoa(len(events))
	var ids []string
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); awaitLines(log, len(ids)+1) {
		data, _ := os.ReadFile(log)
		if ids = strings.Fields(string(data)); len(ids) > 0 && ids[len(ids)-1] == last {
			break
		}
	}
	for _, cmd := range hosts {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	}
	at, again, late := 0, 0, 0
	for _, s := range ids {
		switch id, _ := strconv.Atoi(s); id {
		case at:
			again++
		case at + 1:
			at = id
		default:
			if late++; id > at || late > stops {
				t.Fatalf("event %d was delivered after event %d, after %d stops", id, at, stops)
			}
		}
	}
	if at != len(events) || again > 3*kills { // a cut ends what all of them do
		t.Errorf("%d of %d events were delivered, %d again in %d kills", at, len(events), again, kills)
	}
	if info := h.run("info", "--json"); !strings.Contains(info, `"pending_count": 0`) || !strings.Contains(info, `"dead_count": 0`) {
		t.Errorf("not everything is settled:\n%s", info)
	}
	t.Logf("%d events, %d kills, stops and cuts, %d and %d of them stops and cuts; %d delivered again, %d late", len(events), kills, stops, cuts, again, late)
}
