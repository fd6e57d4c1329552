//go:build linux

package serve

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/backup"
	"thread/internal/dispatch"
	"thread/lock"
)

// TestPushIsServed: with a server, the handler is its child, and no dispatch is
// started; when it is gone, pushes start one again.
func TestPushIsServed(t *testing.T) {
	b := newBench(t)
	at := b.fifo("at")
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `echo $PPID > "$D/at"; ` + drain})
	t.Run("served", func(t *testing.T) {
		in := *b
		in.TB = t
		in.serve(Options{})
		for range 3 {
			in.push("s")
			if got := in.line(at); got != strconv.Itoa(os.Getpid()) {
				t.Fatalf("the handler's parent is %s, not %d", got, os.Getpid())
			}
			in.idle()
		}
		if strings.Contains(in.log(), "skipped") {
			t.Errorf("there was a dispatch:\n%s", in.log())
		}
	})
	b.push("s")
	if got := b.line(at); got == strconv.Itoa(os.Getpid()) {
		t.Error("the server still serves")
	}
	b.until("done", func() bool {
		d, err := b.t.DueFor(context.Background(), "c", 0)
		st, serr := dispatch.Status(b.t, "c")
		return err == nil && serr == nil && d.First == 0 && !st.Running
	})
}

// TestWaitingForServer: what was pushed while no process served is found at the start.
func TestWaitingForServer(t *testing.T) {
	b := newBench(t)
	at := b.fifo("at")
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `echo $PPID > "$D/at"; ` + drain})
	if _, err := b.t.Push(t.Context(), event.Draft{Source: "s", Type: "m"}); err != nil {
		t.Fatal(err)
	}
	b.serve(Options{})
	if got := b.line(at); got != strconv.Itoa(os.Getpid()) {
		t.Errorf("the handler's parent is %s", got)
	}
	b.idle()
}

// TestLostPing: a push that reports nothing is found by the file notice, also without
// events.jsonl, and by the sweep where there is no notice.
func TestLostPing(t *testing.T) {
	for _, with := range []string{"notices", "notices, lines off", "sweep"} {
		t.Run(with, func(t *testing.T) {
			notices := with != "sweep"
			b := newBench(t)
			if err := b.t.SetLines(t.Context(), with != "notices, lines off"); err != nil {
				t.Fatal(err)
			}
			at := b.fifo("at")
			b.subscribe(engine.Subscription{Consumer: "c", Handler: `echo here > "$D/at"; ` + drain})
			o := Options{}
			if !notices {
				o.Sweep = 50 * time.Millisecond
			}
			b.serve(o)
			if !notices {
				b.s.notices.remove(b.t.Dir())
			}
			if _, err := b.t.Push(t.Context(), event.Draft{Source: "s", Type: "m"}); err != nil {
				t.Fatal(err)
			}
			b.line(at)
			b.idle()
		})
	}
}

// TestSecondServer: a thread has one server at a time.
func TestSecondServer(t *testing.T) {
	b := newBench(t)
	b.serve(Options{})
	s, err := New(Options{Threads: []string{b.t.Dir()}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), dispatch.ErrServed.Error()) {
		t.Errorf("the second server: %v", err)
	}
	b.ask(Request{Op: "lanes"}) // the first one is as it was
}

// TestLimit: of many consumers, as many run as the lane's limit says; a higher
// limit takes effect while they wait, and a reset loses none of them.
func TestLimit(t *testing.T) {
	b := newBench(t)
	const consumers, limit = 6, 2
	for i := range consumers {
		b.subscribe(engine.Subscription{Consumer: fmt.Sprint("c", i), Lane: "slow", Handler: `read x < "$D/go$THREAD_CONSUMER"; ` + drain})
		b.fifo(fmt.Sprint("goc", i))
	}
	b.serve(Options{Limits: map[string]float64{"slow": limit}})
	b.push("s")
	states := func() (running, queued int) {
		for _, r := range b.ask(Request{Op: "runs"}).Runs {
			switch {
			case r.Lane != "slow":
				t.Errorf("%+v", r)
			case r.State == stateRunning && r.PID != 0:
				running++
			case r.State == stateQueued:
				queued++
			}
		}
		return running, queued
	}
	become := func(running, queued int) {
		t.Helper()
		b.until(fmt.Sprintf("%d running, %d queued", running, queued), func() bool {
			r, q := states()
			return r == running && q == queued
		})
	}
	become(limit, consumers-limit)
	lanes := b.ask(Request{Op: "lanes"}).Lanes
	if len(lanes) != 1 || lanes[0].Name != "slow" || lanes[0].Limit != limit || lanes[0].Active != limit || lanes[0].Queued != consumers-limit {
		t.Errorf("lanes: %+v", lanes)
	}
	if err := b.s.Configure(map[string]float64{"slow": 3}); err != nil {
		t.Fatal(err)
	}
	become(3, 3)
	b.s.Reset()
	become(6, 0)
	for i := range consumers {
		if err := os.WriteFile(b.path(fmt.Sprint("goc", i)), []byte("go\n"), 0); err != nil {
			t.Fatal(err)
		}
	}
	b.idle()
	for i := range consumers {
		if d, err := b.t.DueFor(t.Context(), fmt.Sprint("c", i), 0); err != nil || d.First != 0 {
			t.Errorf("c%d has unread events: %+v %v", i, d, err)
		}
	}
}

// TestOwnPushDoesNotSpin: a handler that answers into its own thread without
// acking is not run by its own push, and is run by the next one of another process.
func TestOwnPushDoesNotSpin(t *testing.T) {
	b := newBench(t)
	at := b.fifo("at")
	b.subscribe(engine.Subscription{Consumer: "c", Filter: event.Text("source = 's'"), Handler: `echo ran > "$D/at"`})
	b.serve(Options{})
	b.push("s")
	b.line(at)
	b.idle()
	t.Setenv("THREAD_DIR", b.t.Dir())
	t.Setenv("THREAD_CONSUMER", "c")
	t.Setenv("THREAD_RUN_ID", "1")
	b.push("answer")
	// Pings of a thread are taken in order, and its pass is made before the next.
	os.Unsetenv("THREAD_RUN_ID")
	b.subscribe(engine.Subscription{Consumer: "d", Handler: `echo other > "$D/at"; ` + drain, Filter: event.Text("source = 'other'")})
	b.push("other")
	got := []string{b.line(at), b.line(at)}
	if got[0]+got[1] != "ranother" && got[0]+got[1] != "otherran" {
		t.Errorf("ran %v, want c and d once each", got)
	}
	b.idle()
}

// TestAnotherHolder: a consumer that another process has is left to it, and is the
// server's again afterwards.
func TestAnotherHolder(t *testing.T) {
	b := newBench(t)
	at := b.fifo("at")
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `echo ran > "$D/at"; ` + drain})
	b.serve(Options{})
	held, err := lock.Try(filepath.Join(b.t.Dir(), "run", "c.lock"), lock.Exclusive)
	if err != nil {
		t.Fatal(err)
	}
	b.push("s")
	b.idle()
	held.Close()
	b.push("s") // who releases looks again; here it is the next push
	b.line(at)
	b.idle()
}

// TestRetry: a handler that fails is run again after a second, and waits as a retry
// in the list, in no lane.
func TestRetry(t *testing.T) {
	b := newBench(t)
	at := b.fifo("at")
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `echo ran > "$D/at"; [ -e "$D/ok" ] || exit 3; ` + drain})
	b.serve(Options{})
	b.push("s")
	b.line(at)
	b.until("waiting", func() bool {
		runs := b.ask(Request{Op: "runs"}).Runs
		return len(runs) == 1 && runs[0].State == stateWaiting && !runs[0].RetryAt.IsZero() && runs[0].PID == 0 &&
			len(b.ask(Request{Op: "lanes"}).Lanes) == 0
	})
	if err := os.WriteFile(b.path("ok"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.line(at)
	b.idle()
}

// TestRunDeleted: run/ may be deleted at any time; the sweep brings the sockets
// back.
func TestRunDeleted(t *testing.T) {
	b := newBench(t)
	at := b.fifo("at")
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `echo $PPID > "$D/at"; ` + drain})
	b.serve(Options{Sweep: 20 * time.Millisecond})
	// Moved and not deleted, which the server could interfere with.
	if err := os.Rename(filepath.Join(b.t.Dir(), "run"), b.path("old")); err != nil {
		t.Fatal(err)
	}
	b.until("listening", func() bool {
		_, err := askDirectory(b.t.Dir(), Request{Op: "runs"})
		return err == nil
	})
	b.push("s")
	if got := b.line(at); got != strconv.Itoa(os.Getpid()) {
		t.Errorf("the handler's parent is %s", got)
	}
	b.idle()
}

// TestRestoredInRoot: in a root, neither a copy that is being made nor a backup is served,
// and a restored thread is, with its consumers paused.
func TestRestoredInRoot(t *testing.T) {
	b := newBench(t)
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `echo ran >> "$D/ran"`})
	if _, err := b.t.Push(t.Context(), event.Draft{Source: "s", Type: "t", Content: "c"}); err != nil {
		t.Fatal(err)
	}
	root := b.path("root")
	if _, err := backup.Create(t.Context(), b.t.Dir(), root, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(b.t.Dir()); err != nil {
		t.Fatal(err)
	}
	var err error
	if b.t, err = engine.Init(b.t.Dir()); err != nil {
		t.Fatal(err)
	}
	b.serve(Options{Roots: []string{root}, Sweep: 10 * time.Millisecond})
	// What restore makes is a thread one level down until it has its name.
	unfinished := filepath.Join(root, "new.restoring-1", "thread")
	if _, err := backup.Restore(t.Context(), root, unfinished, backup.RestoreOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := backup.Restore(t.Context(), root, filepath.Join(root, "new"), backup.RestoreOptions{Serving: true}); err != nil {
		t.Fatal(err)
	}
	b.until("served", func() bool { return b.s.thread(filepath.Join(root, "new")) != nil })
	b.idle()
	for _, dir := range []string{filepath.Join(root, "000001"), filepath.Dir(unfinished), unfinished} {
		if b.s.thread(dir) != nil {
			t.Errorf("%s is served", dir)
		}
	}
	if _, err := os.Stat(b.path("ran")); err == nil {
		t.Error("a handler has run")
	}
	if !dispatch.Served(filepath.Join(root, "new")) || dispatch.Served(unfinished) {
		t.Error("Served")
	}
}

// TestRoots: thread directories below a root are served, those that come later
// too, and forgotten when they go.
func TestRoots(t *testing.T) {
	b := newBench(t)
	at := b.fifo("at")
	root := b.path("root")
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	b.serve(Options{Roots: []string{root}, Sweep: 100 * time.Millisecond})
	later, err := engine.Init(filepath.Join(root, "later"))
	if err != nil {
		t.Fatal(err)
	}
	if err := later.Subscribe(t.Context(), engine.Subscription{Consumer: "c", Handler: `echo $PPID > "$D/at"; ` + drain}); err != nil {
		t.Fatal(err)
	}
	if _, err := later.Push(t.Context(), event.Draft{Source: "s", Type: "m"}); err != nil {
		t.Fatal(err)
	}
	if got := b.line(at); got != strconv.Itoa(os.Getpid()) {
		t.Errorf("the handler's parent is %s", got)
	}
	b.until("idle", func() bool {
		a, err := askDirectory(later.Dir(), Request{Op: "runs"})
		return err == nil && len(a.Runs) == 0
	})
	// Moved and not deleted, which the server could interfere with.
	if err := os.Rename(later.Dir(), b.path("elsewhere")); err != nil {
		t.Fatal(err)
	}
	b.until("forgotten", func() bool { return b.s.count() == 1 })
}

// TestDelayed: a delayed event starts its handler at its time, also when it is
// scheduled before others that were known already.
func TestDelayed(t *testing.T) {
	b := newBench(t)
	at := b.fifo("at")
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `echo ran > "$D/at"; ` + drain})
	b.serve(Options{})
	for _, delay := range []time.Duration{time.Hour, 200 * time.Millisecond} {
		if _, err := b.t.PushAt(t.Context(), event.Draft{Source: "s", Type: "m"}, time.Now().Add(delay)); err != nil {
			t.Fatal(err)
		}
		dispatch.Rescheduled(context.Background(), b.t, time.Now().Add(time.Hour))
	}
	b.line(at)
	b.idle()
	if info, err := b.t.Info(t.Context()); err != nil || info.Newest != 1 || info.Scheduled != 1 {
		t.Errorf("%+v %v", info, err)
	}
}

// TestLongPath: the sockets of a directory whose path is longer than an address.
func TestLongPath(t *testing.T) {
	b := newBench(t)
	at := b.fifo("at")
	long := b.path(strings.Repeat("x", 150))
	th, err := engine.Init(long)
	if err != nil {
		t.Fatal(err)
	}
	if err := th.Subscribe(t.Context(), engine.Subscription{Consumer: "c", Handler: `echo $PPID > "$D/at"; ` + drain}); err != nil {
		t.Fatal(err)
	}
	b.serve(Options{Threads: []string{long}, Log: slog.New(slog.DiscardHandler)})
	b.t = th
	b.push("s")
	if got := b.line(at); got != strconv.Itoa(os.Getpid()) {
		t.Errorf("the handler's parent is %s", got)
	}
	b.idle()
}
