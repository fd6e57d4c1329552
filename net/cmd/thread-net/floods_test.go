//go:build !windows

package main

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"thread/internal/floods"
)

// TestFloods: clients that flood thread serve for a thread in PostgreSQL keep no other client
// waiting.
func TestFloods(t *testing.T) { floods.Run(t, flooded(newFleet(t)), floods.Sizes()) }

// TestHostile: what hostile clients, and pages of other sites, send is refused.
func TestHostile(t *testing.T) { floods.Hostile(t, flooded(newFleet(t))) }

// TestHostilePages: what is in a thread never becomes markup, and a form is carried out only
// from a page of the server.
func TestHostilePages(t *testing.T) { floods.HostilePages(t, flooded(newFleet(t), "--ui")) }

// flooded starts thread serve.
func flooded(h *host, flags ...string) *floods.Server {
	h.t.Helper()
	const token = "a-token-for-floods-that-is-long"
	file := filepath.Join(h.t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		h.t.Fatal(err)
	}
	cmd := h.command(append([]string{"serve", "--thread", h.url, "--listen", "127.0.0.1:0", "--token-file", file}, flags...)...)
	cmd.Env = append(cmd.Env, "XDG_STATE_HOME="+h.t.TempDir())
	r, out := io.Pipe()
	cmd.Stderr = out
	h.start(cmd)
	listening := make(chan string, 1)
	go func() {
		found := regexp.MustCompile(`msg=listening address=(\S+)`)
		for s := bufio.NewScanner(r); s.Scan(); {
			if m := found.FindStringSubmatch(s.Text()); m != nil {
				listening <- m[1]
			}
		}
	}()
	s := &floods.Server{Token: token, PID: cmd.Process.Pid, Idle: 15 * time.Second, Path: "/threads/fleet/events", Push: func(content string) {
		cmd := h.command("push", "--source", "s", "--type", "t", "--content-file", "-")
		cmd.Stdin = strings.NewReader(content)
		if out, err := cmd.CombinedOutput(); err != nil {
			h.t.Errorf("%v: %s", err, out)
		}
	}}
	select {
	case s.Address = <-listening:
	case <-time.After(patience):
		h.t.Fatal("it does not listen")
	}
	return s
}
