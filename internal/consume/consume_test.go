//go:build unix

package consume

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
)

func newThread(t testing.TB, contents ...string) *engine.Thread {
	t.Helper()
	th, err := engine.Init(filepath.Join(t.TempDir(), "t"))
	if err != nil {
		t.Fatal(err)
	}
	if err := th.Subscribe(ctx, engine.Subscription{Consumer: "c", Handler: "true"}); err != nil {
		t.Fatal(err)
	}
	for _, c := range contents {
		if _, err := th.Push(ctx, event.Draft{Source: "s", Type: "t", Content: c}); err != nil {
			t.Fatal(err)
		}
	}
	return th
}

func TestBackoff(t *testing.T) {
	r := newRun(newThread(t), "c", Options{})
	want := time.Second
	for n := int64(1); n < 200; n++ {
		got := r.backoff(n)
		if got < want || got > min(want+want/4, MaxDelay) {
			t.Fatalf("wait %d is %v, want %v and up to a quarter more", n, got, want)
		}
		want = min(2*want, 4*time.Minute)
	}
	r = newRun(newThread(t), "c", Options{FirstDelay: time.Millisecond, Factor: 3})
	for n, want := range map[int64]time.Duration{1: time.Millisecond, 2: 3 * time.Millisecond, 3: 9 * time.Millisecond} {
		if got := r.backoff(n); got < want || got > want+want/4 {
			t.Errorf("by 3: wait %d is %v, want %v and up to a quarter more", n, got, want)
		}
	}
}

// A waiting consume ends at once when it is told to, and acks nothing.
func TestEndsWhileWaiting(t *testing.T) {
	th := newThread(t, "x")
	run, signals := CatchSignals(ctx)
	defer signals.Stop()
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	sum, err := Run(run, th, "c", Options{Command: []string{"false"}, FirstDelay: time.Hour, Signals: signals,
		Warn: func(string, ...any) { self.Signal(syscall.SIGTERM) }})
	if err != nil || sum != (Summary{Failed: 1}) {
		t.Fatalf("got %+v, %v", sum, err)
	}
	info, err := th.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if c := info.Subscriptions[0]; c.LastAcked != 0 || c.Attempts != 1 {
		t.Fatalf("got %+v", c)
	}
}

// The command that runs when a signal comes may finish, and its success counts;
// nothing is begun after it.
func TestSignalLetsTheCommandFinish(t *testing.T) {
	th := newThread(t, "one", "two")
	run, signals := CatchSignals(ctx)
	defer signals.Stop()
	out := filepath.Join(t.TempDir(), "out")
	// Only one signal: a second one would be meant for the command.
	script := `[ $THREAD_EVENT_ID != 1 ] || kill -TERM $PPID; echo "$THREAD_EVENT_ID" >>` + out
	sum, err := Run(run, th, "c", Options{Command: []string{"sh", "-c", script}, Signals: signals})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	// The signal may come after the first result is stored, not later.
	if n := int64(strings.Count(string(text), "\n")); n != sum.Delivered || n < 1 || n > 2 {
		t.Fatalf("%d runs, %+v", n, sum)
	}
	info, err := th.Info(ctx)
	if err != nil || info.Subscriptions[0].LastAcked != sum.Delivered {
		t.Fatalf("got %+v, %v", info, err)
	}
}

// A command that dies of the Ctrl-C that ends its consume has not failed.
func TestInterruptIsNoAttempt(t *testing.T) {
	for _, command := range []string{"kill -INT $PPID; kill -INT $$", "kill -INT $PPID; exit 130"} {
		th := newThread(t, "x")
		run, signals := CatchSignals(ctx)
		_, err := Run(run, th, "c", Options{Command: []string{"sh", "-c", command}, Signals: signals})
		signals.Stop()
		if err != nil {
			t.Fatal(err)
		}
		sum, err := Run(ctx, th, "c", Options{Command: []string{"sh", "-c", `test "$THREAD_EVENT_ATTEMPT" = 1`}})
		if err != nil || sum != (Summary{Delivered: 1}) {
			t.Fatalf("%s: got %+v, %v", command, sum, err)
		}
	}
}

// A command that cannot be started leaves its events as they were.
func TestNoCommand(t *testing.T) {
	th := newThread(t, "x")
	_, err := Run(ctx, th, "c", Options{Command: []string{"/no/such/program"}})
	if !errors.Is(err, ErrCommand) {
		t.Fatalf("got %v", err)
	}
	sum, err := Run(ctx, th, "c", Options{Command: []string{"sh", "-c", `test "$THREAD_EVENT_ATTEMPT" = 1`}})
	if err != nil || sum != (Summary{Delivered: 1}) {
		t.Fatalf("got %+v, %v", sum, err)
	}
}

// A command that does not read its stdin, or leaves a child that holds it open,
// holds nothing up.
func TestUnreadInput(t *testing.T) {
	th := newThread(t, strings.Repeat("x", 1<<20), "y")
	sum, err := Run(ctx, th, "c", Options{Command: []string{"true"}})
	if err != nil || sum.Delivered != 2 {
		t.Fatalf("got %+v, %v", sum, err)
	}
}

// What cannot stand in an environment does not keep an event from its command.
func TestUnusualEvents(t *testing.T) {
	th := newThread(t)
	if _, err := th.Push(ctx, event.Draft{Source: "a\x00b", Type: "t", Subtype: event.Text("")}); err != nil {
		t.Fatal(err)
	}
	t.Setenv("THREAD_EVENT_SOURCE", "of an outer consume")
	sum, err := Run(ctx, th, "c", Options{Command: []string{"sh", "-c", `test -z "${THREAD_EVENT_SOURCE+set}" && test -n "${THREAD_EVENT_SUBTYPE+set}"`}})
	if err != nil || sum.Delivered != 1 {
		t.Fatalf("got %+v, %v", sum, err)
	}
}

// Follow meets what is pushed while it runs.
func TestFollow(t *testing.T) {
	th := newThread(t, "one")
	run, signals := CatchSignals(ctx)
	defer signals.Stop()
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		_, err := Run(run, th, "c", Options{Command: []string{"sh", "-c", "cat >" + fifo}, ContentOnly: true, Mode: Follow, Signals: signals})
		ended <- err
	}()
	for _, want := range []string{"one", "two", "three"} {
		if want != "one" {
			if _, err := th.Push(ctx, event.Draft{Source: "s", Type: "t", Content: want}); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(fifo)
		if err != nil || string(got) != want {
			t.Fatalf("got %q, %v, want %q", got, err, want)
		}
	}
	syscall.Kill(os.Getpid(), syscall.SIGTERM)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}
