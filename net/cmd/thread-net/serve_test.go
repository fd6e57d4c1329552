//go:build !windows

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestServe: two hosts serve a thread. Every event is handled once, by handlers that consume
// and by one that pops. A handler whose host was stopped until another one has the turn
// stores nothing, and the turn of a host that was killed is taken.
func TestServe(t *testing.T) {
	h := newFleet(t)
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	// The first run after "first" was removed waits for "gate".
	script := fmt.Sprintf(`cd %s
if mkdir first 2>/dev/null; then
	echo $PPID $$ >>begun
	until test -e gate; do sleep 0.02; done
	if test -e stale; then thread-net pop --consumer c --last-event-id 0; echo $? >>popped-stale; fi
fi
thread-net consume -- sh -c 'echo $THREAD_EVENT_ID >>consumed'`, dir)
	h.run("subscribe", "--consumer", "c", "--handler", script)
	h.run("subscribe", "--consumer", "p", "--lane", "slow", "--handler", fmt.Sprintf(`cd %s
last=$THREAD_LAST_ACKED_ID
while lines=$(thread-net pop --consumer p --last-event-id $last) && test -n "$lines"; do
	echo "$lines" | sed 's/^{"id":\([0-9]*\),.*/\1/' >>popped
	last=$(tail -n 1 popped)
done`, dir))
	if err := os.WriteFile(in("gate"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	serve := func() *exec.Cmd {
		cmd := h.command("serve", "--lane", "slow=1")
		cmd.Stderr = os.Stderr
		cmd.Env = append(cmd.Env, "XDG_STATE_HOME="+t.TempDir()) // on one host, the stale handler would be ended
		h.start(cmd)
		return cmd
	}
	hosts := []*exec.Cmd{serve(), serve()}
	total := 0
	push := func(n int) {
		t.Helper()
		h.push(n)
		total += n
	}
	handled := func(names ...string) {
		t.Helper()
		for _, name := range names {
			awaitLong(in(name), total)
			data, _ := os.ReadFile(in(name))
			var want []string
			for i := range total {
				want = append(want, strconv.Itoa(i+1))
			}
			if got := strings.Fields(string(data)); !slices.Equal(got, want) {
				t.Fatalf("%s: %q, want 1 to %d", name, got, total)
			}
		}
	}
	// blocked pushes, and returns when a handler waits for the gate, with its host.
	times := 0
	blocked := func() (host *exec.Cmd, group int) {
		t.Helper()
		times++
		h.free("c") // or a run that continues would take what is pushed
		_ = os.Remove(in("gate"))
		if err := os.Remove(in("first")); err != nil {
			t.Fatal(err)
		}
		push(3)
		awaitLong(in("begun"), times+1)
		data, _ := os.ReadFile(in("begun"))
		lines := strings.Split(strings.TrimSpace(string(data)), "\n")
		var parent int
		if _, err := fmt.Sscan(lines[len(lines)-1], &parent, &group); err != nil || len(lines) != times+1 {
			t.Fatalf("begun: %q: %v", data, err)
		}
		for _, cmd := range hosts {
			if cmd.Process.Pid == parent {
				return cmd, group
			}
		}
		t.Fatalf("process %d is no host", parent)
		return nil, 0
	}
	push(5)
	handled("consumed", "popped")

	stopped, _ := blocked()
	if err := stopped.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	h.expire("c")
	handled("consumed")
	for _, name := range []string{"stale", "gate"} {
		if err := os.WriteFile(in(name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	awaitLong(in("popped-stale"), 1)
	if data, _ := os.ReadFile(in("popped-stale")); string(data) != "1\n" {
		t.Errorf("the handler of the host that was stopped: %q", data)
	}
	if err := os.Remove(in("stale")); err != nil {
		t.Fatal(err)
	}
	if err := stopped.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	handled("consumed", "popped")

	killed, group := blocked()
	_ = killed.Process.Kill()
	_ = syscall.Kill(-group, syscall.SIGKILL)
	_ = killed.Wait()
	h.expire("c")
	handled("consumed", "popped")
	for _, cmd := range hosts {
		if cmd == killed {
			continue
		}
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("a host that was told to end: %v", err)
		}
	}
}

// TestServeAcks: why reports what a handler waits for. With --ack on-success a handler that exits 0 has acked what it popped, and one that
// fails has not.
func TestServeAcks(t *testing.T) {
	h := newFleet(t)
	popped, gate := filepath.Join(t.TempDir(), "popped"), filepath.Join(t.TempDir(), "gate")
	h.run("subscribe", "--consumer", "first", "--lane", "one", "--handler", "until test -e "+gate+"; do sleep 0.02; done; thread-net consume -- true")
	h.run("subscribe", "--consumer", "c", "--lane", "one", "--ack", "on-success", "--handler", fmt.Sprintf(
		`thread-net pop --consumer c --last-event-id $THREAD_LAST_ACKED_ID --limit 2 | sed 's/^{"id":\([0-9]*\),.*/\1/' >>%[1]s; test $(wc -l <%[1]s) -gt 2`, popped))
	h.push(3)
	why := func(words string) {
		t.Helper()
		said := ""
		for deadline := time.Now().Add(patience); !strings.Contains(said, words); said = h.run("why", "-c", "c", "3") {
			if time.Now().After(deadline) {
				t.Fatalf("why says %q, not %q", said, words)
			}
		}
	}
	why("No process works for the consumer")
	serve := at(t.TempDir(), h.command("serve", "--lane", "one=1"))
	serve.Stderr = os.Stderr
	h.start(serve)
	why("thread serve runs, and starts the handler when its lane has room")
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	awaitLong(popped, 5) // 1 and 2 twice
	if info := h.settled(); !strings.Contains(info, `"last_acked_id": 3`) {
		t.Errorf("info says %s", info)
	}
	if data, _ := os.ReadFile(popped); string(data) != "1\n2\n1\n2\n3\n" {
		t.Errorf("popped %q", data)
	}
}

// free waits until no process has the consumer's turn.
func (h *host) free(consumer string) {
	h.t.Helper()
	c, _, err := plainConn(h.url)
	if err != nil {
		h.t.Fatal(err)
	}
	defer c.Close(context.Background())
	for deadline := time.Now().Add(patience); ; {
		r := c.ExecParams(context.Background(), "SELECT 1 FROM turns WHERE consumer = $1 AND until > clock_timestamp()", [][]byte{[]byte(consumer)}, nil, []int16{1}, nil).Read()
		if r.Err != nil || time.Now().After(deadline) {
			h.t.Fatalf("the turn of %s is not free: %v", consumer, r.Err)
		}
		if len(r.Rows) == 0 {
			return
		}
	}
}

// awaitLong is awaitLines with patience.
func awaitLong(path string, want int) {
	for deadline := time.Now().Add(patience); awaitLines(path, want) < want && time.Now().Before(deadline); {
	}
}
