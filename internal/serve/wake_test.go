//go:build linux

package serve

import (
	"testing"

	"thread/engine"
	"thread/internal/dispatch"
)

// TestPushDuringPass: a pass that is under way when a push is told of has perhaps read
// the database before it, and another one follows.
func TestPushDuringPass(t *testing.T) {
	b := newBench(t)
	at := b.fifo("at")
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `echo ran > "$D/at"; ` + drain})
	b.serve(Options{})
	b.s.notices.close() // which would find it, too
	th := b.s.thread(b.t.Dir())
	b.until("no pass is under way", func() bool {
		th.mu.Lock()
		defer th.mu.Unlock()
		if th.reconciling {
			return false
		}
		th.reconciling = true // 1. this test makes one
		return true
	})
	b.push("s") // 2. a push
	b.until("told", func() bool { return th.pushes.Load() == 1 })
	go th.reconcile() // 3. the pass continues
	b.line(at)
	b.idle()
}

// TestPushDuringAttempt: a push that is told of while its consumer seems to run is
// not answered by that when another process had the consumer.
func TestPushDuringAttempt(t *testing.T) {
	b := newBench(t)
	at := b.fifo("at")
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `echo ran > "$D/at"; ` + drain})
	b.serve(Options{})
	b.s.notices.close() // which would find it, too
	th := b.s.thread(b.t.Dir())
	c := &consumer{name: "c", session: th.session("c")}
	th.mu.Lock()
	th.consumers["c"] = c
	c.enter(stateRunning) // 1. the attempt begins
	th.mu.Unlock()
	b.push("s") // 2. a push
	b.until("noticed", func() bool {
		th.mu.Lock()
		defer th.mu.Unlock()
		return c.missed.set
	})
	th.after(c, dispatch.Outcome{}, nil) // 3. the handler was another process's
	b.line(at)
	b.idle()
}
