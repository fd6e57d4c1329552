//go:build linux

package serve

import (
	"testing"

	"thread/engine"
	"thread/internal/dispatch"
)

// TestPushDuringLook: who is looking when a push is told of has perhaps read the
// database before it, and looks again.
func TestPushDuringLook(t *testing.T) {
	b := newBench(t)
	at := b.fifo("at")
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `echo ran > "$D/at"; ` + drain})
	b.serve(Options{})
	b.s.notices.close() // which would find it, too
	th := b.s.thread(b.t.Dir())
	b.until("done looking", func() bool {
		th.mu.Lock()
		defer th.mu.Unlock()
		if th.looking {
			return false
		}
		th.looking = true // 1. this test looks
		return true
	})
	b.push("s") // 2. a push
	b.until("told", func() bool { return th.pushes.Load() == 1 })
	go th.look() // 3. the look goes on
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
		return c.missed.look
	})
	th.after(c, dispatch.Outcome{}, nil) // 3. the handler was somebody else's
	b.line(at)
	b.idle()
}
