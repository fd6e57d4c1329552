//go:build linux

package dispatch

import (
	"os"
	"strings"
	"testing"
	"time"

	"thread/engine"
)

// TestThreadCannotBeRead: a supervisor tries again when the thread cannot be used for a
// moment, and runs what is due then; but not for ever.
func TestThreadCannotBeRead(t *testing.T) {
	for _, mended := range []bool{true, false} {
		b := newBench(t)
		func() {
			defer func(delay time.Duration) { firstDelay = delay }(firstDelay)
			if firstDelay = time.Millisecond; mended {
				firstDelay = 300 * time.Millisecond
			}
			b.subscribe(engine.Subscription{Consumer: "c", Handler: drain})
			last := b.push("s")
			must(t, os.RemoveAll(b.r.run))
			must(t, os.WriteFile(b.r.run, nil, 0o600))
			ended := make(chan error, 1)
			go func() { ended <- newSupervisor(b.r).work(t.Context()) }()
			if !mended {
				if err := <-ended; err == nil || b.acked("c") != 0 {
					t.Errorf("%v", err)
				}
				if n := strings.Count(b.log(), "[ERROR] supervise: "); n != maxTries-1 {
					t.Errorf("%d tries are logged before the last one", n)
				}
				must(t, os.Remove(b.r.run))
				return
			}
			b.awaitLog("[ERROR] supervise: ", 1)
			must(t, os.Remove(b.r.run))
			if err := <-ended; err != nil || b.acked("c") != last {
				t.Errorf("after it was mended: %v, acked %d of %d", err, b.acked("c"), last)
			}
		}()
	}
}

// TestThreadIsGone: a supervisor ends at once when the thread was deleted, and does not bring
// it back.
func TestThreadIsGone(t *testing.T) {
	b := newBench(t)
	b.subscribe(engine.Subscription{Consumer: "c", Handler: drain})
	b.push("s")
	must(t, os.RemoveAll(b.t.Dir()))
	defer func(delay time.Duration) { firstDelay = delay }(firstDelay)
	firstDelay = time.Hour // a second try would wait
	ended := make(chan error, 1)
	go func() { ended <- newSupervisor(b.r).work(t.Context()) }()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("no error")
		}
	case <-time.After(patience):
		t.Error("it waits for a deleted thread")
	}
	if _, err := os.Lstat(b.t.Dir()); err == nil {
		t.Error("a deleted thread is back")
	}
}
