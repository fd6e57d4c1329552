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
	opener "thread/net/servers"
)

// TestWakeUp measures how long after a push has returned another process has the event.
// One must come within 100 ms, and half within 2 s, on a machine that is busy with other
// tests: looking every 5 s would take longer. docs/reference/postgresql.md has what a quiet one takes.
func TestWakeUp(t *testing.T) {
	h := newFleet(t)
	tail := h.command("tail", "--follow", "--json")
	out, err := tail.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	h.start(tail)
	th, err := opener.Servers{}.Open(h.url, []engine.Option{})
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
		case <-time.After(time.Minute):
			t.Fatalf("event %d did not come", i+1)
		}
	}
	slices.Sort(waits)
	t.Logf("half within %s, all within %s", waits[rounds/2], waits[rounds-1])
	if waits[0] > 100*time.Millisecond || waits[rounds/2] > 2*time.Second { // a look every 5 s would be above
		t.Error("too late")
	}
}
