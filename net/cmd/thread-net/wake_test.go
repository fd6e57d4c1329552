//go:build !windows

package main

import (
	"bufio"
	"context"
	"slices"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
	"thread/net/internal/verb"
)

// TestWakeUp measures how long after a push has returned another process has the event.
// Half of them must come within 500 ms, on a machine that is busy with other tests, and
// none by looking every 5 s; docs/FLEET.md has what a quiet one takes.
func TestWakeUp(t *testing.T) {
	h := newFleet(t)
	tail := h.command("tail", "--follow", "--json")
	out, err := tail.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	h.start(tail)
	th, err := verb.Servers{}.Open(h.url, []engine.Option{})
	if err != nil {
		t.Fatal(err)
	}
	defer th.Close()
	lines := make(chan time.Time)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- time.Now()
		}
	}()
	const rounds = 30
	var waits []time.Duration
	for i := range rounds + 1 {
		if _, err := th.Push(context.Background(), event.Draft{Source: "s", Type: "t", Content: "x"}); err != nil {
			t.Fatal(err)
		}
		at := time.Now()
		select {
		case came, ok := <-lines:
			if !ok {
				t.Fatal("tail has ended")
			}
			if i > 0 { // the first one waits for the program to start
				waits = append(waits, max(0, came.Sub(at)))
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("event %d did not come", i+1)
		}
	}
	slices.Sort(waits)
	t.Logf("half within %s, all within %s", waits[rounds/2], waits[rounds-1])
	if waits[rounds/2] > 500*time.Millisecond || waits[rounds-1] > 4*time.Second {
		t.Error("too late")
	}
}
