//go:build linux

package serve

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"thread/engine"
	"thread/internal/dispatch"
	"thread/lane"
)

// TestSteer: the whole protocol with a handler that is a shell script.
func TestSteer(t *testing.T) {
	b := newBench(t)
	at := b.fifo("at")
	b.fifo("next")
	// The answers to messages come back by the test's pipe.
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `
		say() { printf '%s\n' "$1" > "$D/at"; read x < "$D/next"; }
		exec 3< "$THREAD_MESSAGES"
		say started
		echo streaming > "$THREAD_STATE"; say streaming
		read -r m <&3; say "$m"
		echo compacting > "$THREAD_STATE"; say compacting
		echo idle > "$THREAD_STATE"; say idle
		` + drain})
	b.serve(Options{})
	next := func() {
		t.Helper()
		if err := os.WriteFile(b.path("next"), []byte("go\n"), 0); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(want string) {
		t.Helper()
		if a := b.ask(Request{Op: "send", Consumer: "c", Message: "m"}); a.Error != want {
			t.Errorf("send: %q, want %q", a.Error, want)
		}
	}
	expect := func(want string) {
		t.Helper()
		if got := b.line(at); got != want {
			t.Fatalf("the handler says %q, want %q", got, want)
		}
	}
	refused(string(lane.NoActiveRun))
	if a := b.ask(Request{Op: "abort", Consumer: "c"}); a.Error != string(lane.NoActiveRun) {
		t.Errorf("abort: %+v", a)
	}
	if a := b.ask(Request{Op: "wait", Consumer: "c"}); !a.Ended {
		t.Errorf("wait for nothing: %+v", a)
	}
	b.push("s")
	expect("started")
	refused(string(lane.NotStreaming))
	next()
	expect("streaming")
	runs := b.ask(Request{Op: "runs"}).Runs
	if len(runs) != 1 || runs[0].Activity != "streaming" || runs[0].State != stateRunning || runs[0].PID == 0 || len(runs[0].RunID) != 32 || runs[0].Lane != lane.Main {
		t.Errorf("runs: %+v", runs)
	}
	if a := b.ask(Request{Op: "send", Consumer: "c", Message: "wait,\n\"other\" file"}); a.Error != "" {
		t.Errorf("send: %+v", a)
	}
	next()
	expect(`"wait,\n\"other\" file"`)
	next()
	expect("compacting")
	refused(string(lane.Compacting))
	next()
	expect("idle")
	refused(string(lane.NotStreaming))
	start := time.Now()
	if a := b.ask(Request{Op: "wait", Consumer: "c", TimeoutMS: 1}); a.Ended || time.Since(start) < lane.MinEndTimeout {
		t.Errorf("wait: %+v after %v", a, time.Since(start))
	}
	ended := make(chan Answer)
	go func() {
		a, _ := askDirectory(b.t.Dir(), Request{Op: "wait", Consumer: "c"})
		ended <- a
	}()
	next()
	if a := <-ended; !a.Ended {
		t.Errorf("wait: %+v", a)
	}
	b.idle()
	if left, _ := os.ReadDir(filepath.Join(b.t.Dir(), "run", dispatch.RunsDir)); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// TestStartIsSeenWhole: the process that heard from a handler sees its run with all that
// is known of it, though the handler is at work before its start has ended.
func TestStartIsSeenWhole(t *testing.T) {
	b := newBench(t)
	b.serve(Options{})
	thread := b.s.thread(b.t.Dir())
	c := &consumer{name: "c", run: newRun(thread, "c")}
	c.enter(stateRunning)
	thread.mu.Lock()
	thread.consumers[c.name] = c
	thread.mu.Unlock()
	answer := make(chan []Run)
	err := c.run.begin("id", func() (int, error) {
		asking := make(chan struct{})
		go func() {
			close(asking)
			answer <- thread.list(nil)
		}()
		<-asking
		for range 1000 {
			runtime.Gosched() // for an answer that is too early
		}
		return 7, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if runs := <-answer; len(runs) != 1 || runs[0].RunID != "id" || runs[0].PID != 7 {
		t.Errorf("runs: %+v", runs)
	}
	thread.mu.Lock()
	delete(thread.consumers, c.name)
	thread.mu.Unlock()
}

// TestAbort: an aborted handler has failed, with all its processes.
func TestAbort(t *testing.T) {
	b := newBench(t)
	at := b.fifo("at")
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `echo started > "$D/at"; sleep 1000; echo survived > "$D/at"`})
	b.serve(Options{})
	b.push("s")
	b.line(at)
	if a := b.ask(Request{Op: "abort", Consumer: "c"}); a.Error != "" {
		t.Fatalf("abort: %+v", a)
	}
	if a := b.ask(Request{Op: "wait", Consumer: "c"}); !a.Ended {
		t.Fatalf("wait: %+v", a)
	}
	b.until("noted", func() bool {
		st, err := dispatch.Status(b.t, "c")
		return err == nil && st.LastExit == "aborted" && st.Failures == 1 && st.RetryAt != nil
	})
	if err := b.t.Unsubscribe(context.Background(), "c"); err != nil {
		t.Fatal(err)
	}
	b.idle()
}

func TestNobody(t *testing.T) {
	b := newBench(t)
	if _, err := askDirectory(b.t.Dir(), Request{Op: "runs"}); !errors.Is(err, ErrNobody) {
		t.Errorf("without a server: %v", err)
	}
}

// TestDrain: at the end, a handler that comes to its end is waited for, one that
// does not is reported and left, and what waits in a lane is let go.
func TestDrain(t *testing.T) {
	b := newBench(t)
	at := b.fifo("at")
	b.fifo("go")
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `echo started > "$D/at"; read x < "$D/go"; ` + drain})
	b.subscribe(engine.Subscription{Consumer: "d", Handler: drain})
	s, stop, left := b.untilStopped(Options{Limits: map[string]float64{"main": 1}})
	defer stop()
	b.push("s")
	b.line(at)
	stop()
	b.until("deaf", func() bool {
		_, err := askDirectory(b.t.Dir(), Request{Op: "runs"})
		return errors.Is(err, ErrNobody)
	})
	if err := os.WriteFile(b.path("go"), []byte("go\n"), 0); err != nil {
		t.Fatal(err)
	}
	if n := <-left; n != 0 {
		t.Errorf("%d handlers are left", n)
	}
	if d, err := b.t.DueFor(t.Context(), "c", 0); err != nil || d.First != 0 {
		t.Errorf("c was cut off: %+v %v", d, err)
	}
	if d, err := b.t.DueFor(t.Context(), "d", 0); err != nil || d.First == 0 {
		t.Errorf("d ran though the server was ending: %+v %v", d, err)
	}
	s.standby.Stop()
}
