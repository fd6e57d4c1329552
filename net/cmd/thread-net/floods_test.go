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
func TestFloods(t *testing.T) {
	h := newFleet(t)
	const token = "a-token-for-floods-that-is-long"
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := h.command("serve", "--thread", h.url, "--listen", "127.0.0.1:0", "--token-file", file)
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
			t.Errorf("%v: %s", err, out)
		}
	}}
	select {
	case s.Address = <-listening:
	case <-time.After(patience):
		t.Fatal("it does not listen")
	}
	floods.Run(t, s, floods.Sizes())
}
