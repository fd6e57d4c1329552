//go:build linux

package serve

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/dispatch"
)

// logged is the text of a log, which may be read while the log is written.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logged) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// held subscribes consumers whose handlers run in the lane slow, each until release is
// called with its name.
func (b *bench) held(consumers ...string) (release func(consumer string)) {
	b.Helper()
	for _, c := range consumers {
		b.fifo("go" + c)
		b.subscribe(engine.Subscription{Consumer: c, Lane: "slow", Handler: `read x < "$D/go$THREAD_CONSUMER"; ` + drain})
	}
	return func(consumer string) {
		b.Helper()
		if err := os.WriteFile(b.path("go"+consumer), []byte("go\n"), 0); err != nil {
			b.Fatal(err)
		}
	}
}

// inState returns the consumers in a state, in the order of their names.
func (b *bench) inState(state string) string {
	b.Helper()
	var names []string
	for _, r := range b.ask(Request{Op: "runs"}).Runs {
		if r.State == state && (state != stateRunning || r.PID != 0) {
			names = append(names, r.Consumer)
		}
	}
	return strings.Join(names, " ")
}

func (b *bench) untilStates(running, queued string) {
	b.Helper()
	b.until("running: "+running+", queued: "+queued, func() bool {
		return b.inState(stateRunning) == running && b.inState(stateQueued) == queued
	})
}

// TestDrainLog: L-07 and L-01. A drain logs as queued what waits, and not what runs. The
// log names a session lane by its key, and not by what keeps it apart from others.
func TestDrainLog(t *testing.T) {
	b := newBench(t)
	release := b.held("c1", "c2", "c3")
	var log logged
	s, stop, left := b.untilStopped(Options{Log: log.logger()})
	b.s = s
	b.push("s")
	b.untilStates("c1", "c2 c3")
	stop()
	b.until("draining", func() bool { return strings.Contains(log.String(), "msg=draining") })
	release("c1")
	if n := <-left; n != 0 {
		t.Errorf("%d handlers left", n)
	}
	s.standby.Stop()
	for _, want := range []string{
		"msg=draining running=1 queued=2\n",
		"msg=\"lane enqueue\" lane=session:c1 depth=1\n",
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q", want)
		}
	}
	if strings.Contains(log.String(), `\x00`) {
		t.Error("the log has a zero byte")
	}
}

// TestQueuedThatIsNotDue: L-15. A queued consumer that is paused, unsubscribed or has
// nothing unread any more leaves its lane at once, and is not run.
func TestQueuedThatIsNotDue(t *testing.T) {
	b := newBench(t)
	release := b.held("c1", "c2", "c3", "c4", "c5")
	b.serve(Options{Sweep: time.Hour})
	last := b.push("s")
	b.untilStates("c1", "c2 c3 c4 c5")
	change := func(queued string, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		dispatch.WakeServer(b.t)
		b.untilStates("c1", queued)
		b.until("the lane counts "+queued, func() bool {
			l := b.ask(Request{Op: "lanes"}).Lanes
			return len(l) == 1 && l[0].Queued == len(strings.Fields(queued))
		})
	}
	change("c3 c4 c5", b.t.Pause(t.Context(), "c2"))
	change("c4 c5", b.t.Unsubscribe(t.Context(), "c3"))
	change("c5", b.t.Ack(t.Context(), "c4", last))
	release("c1")
	release("c5")
	b.idle()
	if d, err := b.t.DueFor(t.Context(), "c5", 0); err != nil || d.First != 0 {
		t.Errorf("c5 has not run: %+v %v", d, err)
	}
	// What has left is queued again when it is due again.
	if err := b.t.Resume(t.Context(), "c2"); err != nil {
		t.Fatal(err)
	}
	dispatch.WakeServer(b.t)
	b.untilStates("c2", "")
	release("c2")
	b.idle()
}

// TestClear: L-11. What waits in a lane leaves it until the next push; what runs ends
// well, and another lane is as it was.
func TestClear(t *testing.T) {
	b := newBench(t)
	release := b.held("c1", "c2", "c3")
	b.serve(Options{Sweep: time.Hour})
	b.push("s")
	b.untilStates("c1", "c2 c3")
	for name, want := range map[string]int{"main": 0, "nothing": 0} {
		if a := b.ask(Request{Op: "clear", Lane: name}); a.Error != "" || a.Count != want {
			t.Errorf("clear %s: %+v", name, a)
		}
	}
	if a := b.ask(Request{Op: "clear", Lane: " slow "}); a.Error != "" || a.Count != 2 {
		t.Errorf("clear: %+v", a)
	}
	b.untilStates("c1", "")
	release("c1")
	b.idle()
	dispatch.WakeServer(b.t) // is not a push
	b.push("s")
	b.until("one runs and two are queued", func() bool { // c1 may be on its way out when the others come
		return len(strings.Fields(b.inState(stateRunning))) == 1 && len(strings.Fields(b.inState(stateQueued))) == 2
	})
	for _, c := range []string{"c1", "c2", "c3"} {
		release(c)
	}
	b.idle()
}

// TestAll: L-13 and L-19. All of a thread's handlers, or those that compact, are aborted;
// the wait for all is for those that run at the call.
func TestAll(t *testing.T) {
	b := newBench(t)
	for _, c := range []string{"c1", "c2", "c3"} {
		b.subscribe(engine.Subscription{Consumer: c, Handler: drain + `; true
			[ $THREAD_CONSUMER = c2 ] && echo compacting > "$THREAD_STATE"; exec sleep 1000`})
	}
	b.serve(Options{Sweep: time.Hour})
	if a := b.ask(Request{Op: "wait", All: AllRuns}); !a.Ended {
		t.Errorf("wait where nothing runs: %+v", a)
	}
	if a := b.ask(Request{Op: "abort", All: AllRuns}); a.Error != "" || a.Count != 0 {
		t.Errorf("abort where nothing runs: %+v", a)
	}
	b.push("s")
	b.until("c2 compacts", func() bool {
		for _, r := range b.ask(Request{Op: "runs"}).Runs {
			if r.Activity == wordCompacting {
				return b.inState(stateRunning) == "c1 c2 c3"
			}
		}
		return false
	})
	b.until("all have read their event", func() bool {
		return !slices.ContainsFunc(b.t.Backlogs(t.Context(), []string{"c1", "c2", "c3"}), func(l engine.Backlog) bool { return l.Count != 0 })
	})
	if a := b.ask(Request{Op: "abort", All: AllCompacting}); a.Error != "" || a.Count != 1 {
		t.Errorf("abort what compacts: %+v", a)
	}
	b.until("c2 has ended", func() bool { return b.inState(stateRunning) == "c1 c3" })
	if a := b.ask(Request{Op: "wait", All: AllRuns, TimeoutMS: 1}); a.Ended {
		t.Errorf("wait: %+v", a)
	}
	waited := make(chan Answer)
	go func() {
		a, _ := askDirectory(b.t.Dir(), Request{Op: "wait", All: AllRuns})
		waited <- a
	}()
	if a := b.ask(Request{Op: "abort", All: AllRuns}); a.Error != "" || a.Count != 2 {
		t.Errorf("abort all: %+v", a)
	}
	if a := <-waited; !a.Ended {
		t.Errorf("wait: %+v", a)
	}
	b.idle()
}

// TestFirstComeFirstServed: L-03 and L-06. Consumers enter a lane in the order of their
// first unread events, not of their subscription.
func TestFirstComeFirstServed(t *testing.T) {
	b := newBench(t)
	order := b.fifo("order")
	for i := 1; i <= 6; i++ {
		c := fmt.Sprint("c", i)
		b.subscribe(engine.Subscription{Consumer: c, Lane: "slow", Filter: event.Text("source = '" + c + "'"),
			Handler: `echo $THREAD_CONSUMER > "$D/order"; ` + drain})
	}
	want := []string{"c6", "c4", "c2", "c5"}
	for _, c := range []string{"c6", "c4", "c6", "c2", "c4", "c5"} {
		if _, err := b.t.Push(t.Context(), event.Draft{Source: c, Type: "message", Content: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	b.serve(Options{})
	for i, c := range want {
		if got := b.line(order); got != c {
			t.Errorf("handler %d is of %s, want %s", i, got, c)
		}
	}
	b.idle()
}
