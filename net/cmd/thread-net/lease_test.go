//go:build !windows

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"thread/net/pgstore"
)

// holder is the process that has the turn of a consumer, 0 for none.
func (h *host) holder(consumer string) (pid int) {
	h.t.Helper()
	c, _, err := plainConn(h.url)
	if err != nil {
		h.t.Fatal(err)
	}
	defer c.Close(context.Background())
	r := c.ExecParams(context.Background(), "SELECT holder FROM turns WHERE consumer = $1 AND until > clock_timestamp()", [][]byte{[]byte(consumer)}, nil, []int16{1}, nil).Read()
	if r.Err != nil {
		h.t.Fatal(r.Err)
	}
	if len(r.Rows) > 0 {
		_, text, _ := strings.Cut(string(r.Rows[0][0]), ", process ")
		pid, _ = strconv.Atoi(text)
	}
	return pid
}

// TestLease: who serves and is stopped loses its turn to another one when it has run out by
// itself, and stores nothing when it continues. With THREAD_KILLS turns are as long as those
// of the program, and the other one has it within 30 s.
func TestLease(t *testing.T) {
	lease, long := 5*time.Second, os.Getenv("THREAD_KILLS") != ""
	if long {
		lease = pgstore.Lease
	}
	h := newFleet(t)
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	h.run("subscribe", "--consumer", "c", "--handler", fmt.Sprintf(`cd %s
echo $PPID $$ >>begun
thread-net consume --max-attempts 1000 --backoff 1ms -- sh -c 'echo $THREAD_EVENT_ID >>tried; until test -e gate; do sleep 0.02; done; echo $THREAD_EVENT_ID >>done'
echo $? >>exit.$PPID`, dir))
	var hosts []*exec.Cmd
	for range 2 {
		cmd := h.command("serve")
		// On one host, the stale handler would be ended.
		cmd.Env = append(cmd.Env, envLease+"="+lease.String(), "XDG_STATE_HOME="+t.TempDir())
		cmd.Stderr = os.Stderr
		h.start(cmd)
		hosts = append(hosts, cmd)
	}
	h.push(3)
	awaitLong(in("tried"), 1)
	data, err := os.ReadFile(in("begun"))
	if err != nil {
		t.Fatal(err)
	}
	// The latest: on a busy machine a turn may have been lost before.
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	var stopped, handler int
	if _, err := fmt.Sscan(lines[len(lines)-1], &stopped, &handler); err != nil {
		t.Fatalf("begun: %q: %v", data, err)
	}
	stop := func(pid int) {
		t.Helper()
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	stop(stopped)
	stop(-handler)
	begun := time.Now()
	defer func() { // nothing is left behind when the test ends early
		_ = syscall.Kill(-handler, syscall.SIGKILL)
		_ = syscall.Kill(stopped, syscall.SIGCONT)
	}()
	for deadline := begun.Add(patience); ; {
		if pid := h.holder("c"); pid != 0 && pid != stopped {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("nobody has taken the turn of %d", stopped)
		}
	}
	took := time.Since(begun)
	if long && took > 30*time.Second {
		t.Errorf("the turn was taken over after %v", took)
	}
	if err := os.WriteFile(in("gate"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	awaitLong(in("done"), 3)
	before := h.settled()
	// What the handler does outside may overlap: its event is handled again.
	exit := in(fmt.Sprint("exit.", stopped))
	was, _ := os.ReadFile(exit)
	if err := syscall.Kill(-handler, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	awaitLong(exit, bytes.Count(was, []byte("\n"))+1)
	if now, _ := os.ReadFile(exit); string(now[len(was):]) != "1\n" {
		t.Errorf("the handler that was stopped ends with %q, want 1", now[len(was):])
	}
	if after := h.run("info", "--json"); after != before {
		t.Errorf("it has changed something:\n%s\nbefore:\n%s", after, before)
	}
	_ = syscall.Kill(stopped, syscall.SIGCONT)
	for _, cmd := range hosts {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("a host that was told to end: %v", err)
		}
	}
	t.Logf("a lease of %v: taken over after %v", lease, took.Round(time.Millisecond))
}
