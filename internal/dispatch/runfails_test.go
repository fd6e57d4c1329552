//go:build linux

package dispatch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"thread/engine"
	"thread/internal/faults"
)

// quickly lets handlers be tried again at once, and be killed at once.
func quickly(t *testing.T) {
	t.Helper()
	t.Setenv(envDispatch, wakeNone)
	delay, grace := firstDelay, killGrace
	t.Cleanup(func() { firstDelay, killGrace = delay, grace })
	firstDelay, killGrace = time.Millisecond, time.Millisecond
}

// nth makes the failure of the n-th call of that name on a file.
func nth(errno syscall.Errno, n int, name, path string) func() *faults.Fault {
	return func() *faults.Fault { return faults.Nth(errno, n, name, path) }
}

// also makes the failure of the n-th call of that name, which is on no file.
func also(errno syscall.Errno, n int, name string) func() *faults.Fault {
	return func() *faults.Fault {
		return &faults.Fault{At: n, Errno: errno, Only: []string{name}, Also: []string{name}}
	}
}

// TestOneFailureOfARun: what fails in a run of a handler, each with its consequence: whether
// the handler runs nevertheless, and what is said. Nothing stays open or locked, and the event
// is handled, now or at the next look.
func TestOneFailureOfARun(t *testing.T) {
	quickly(t)
	exe, err := os.Executable()
	must(t, err)
	t.Setenv("T", exe)
	const ran, failed, never = "ran", "failed", "never"
	for what, tt := range map[string]struct {
		f    func() *faults.Fault
		want string // what came of the run with the failure
		log  string
	}{
		"the supervisor's lock":       {nth(syscall.EIO, 3, "openat", "run/c.busy"), never, ""},
		"the consumer's lock":         {nth(syscall.EIO, 1, "openat", "run/c.lock"), never, ""},
		"the tree lock":               {nth(syscall.EIO, 1, "openat", "run/c.tree"), failed, "c.tree: input/output error"},
		"what was popped before":      {nth(syscall.EIO, 1, "unlinkat", "run/c.popped"), failed, "c.popped: input/output error"},
		"the pipe of its output":      {also(syscall.EMFILE, 1, "pipe2"), failed, "too many open files"},
		"the log of its output":       {nth(syscall.EACCES, 1, "openat", "handlers/c.log"), ran, ""},
		"the record before its start": {nth(syscall.ENOSPC, 1, "pwrite64", "handlers/c.run"), ran, "c.run: no space left"},
		"the record with its process": {nth(syscall.ENOSPC, 2, "pwrite64", "handlers/c.run"), ran, "c.run: no space left"},
		"its start":                   {also(syscall.EAGAIN, 2, "pipe2"), failed, "resource temporarily unavailable"},
		"the note":                    {nth(syscall.ENOSPC, 1, "write", "run/c.json.new"), ran, "c.json.new: no space left"},
		"the reading of its output":   {nth(syscall.EIO, 2, "openat", "handlers/c.log"), ran, ""},
	} {
		for _, hooks := range []*Hooks{nil, {Start: func(_ string, start func() (int, error)) error { _, err := start(); return err }}} {
			t.Run(what, func(t *testing.T) {
				root := faults.Dir(t)
				t.Setenv("RAN", filepath.Join(root, "ran"))
				th, err := engine.Init(filepath.Join(root, "t"))
				must(t, err)
				defer th.Close()
				must(t, th.Subscribe(t.Context(), engine.Subscription{Consumer: "c", Handler: `echo said; echo ran >> "$RAN"; ` + drain, AckOnSuccess: true}))
				b := &bench{TB: t, t: th}
				b.push("s")
				must(t, newDispatcher(th, Options{}).prepare())
				must(t, os.WriteFile(newDispatcher(th, Options{}).poppedPath("c"), []byte("before 1\n"), 0o600))
				server, err := NewServer(t.Context(), th)
				must(t, err)
				defer server.Close()
				f := tt.f()
				var o Outcome
				f.Run(t, th.Dir(), func() { o, err = server.Run(context.Background(), "c", false, hooks) })
				if f.Hit == nil {
					t.Fatalf("it did not fail: %v", f.Calls)
				}
				text, _ := os.ReadFile(os.Getenv("RAN"))
				switch got := string(text); {
				case tt.want == ran && (got != "ran\n" || err != nil || o.Retry != nil || unread(t, th)),
					tt.want == failed && (got != "" || err != nil || o.Retry == nil),
					tt.want == never && (got != "" || err == nil || o.Retry != nil):
					t.Errorf("it ran %q, %+v, %v", got, o, err)
				}
				if !strings.Contains(b.log(), tt.log) {
					t.Errorf("no %q in the log:\n%s", tt.log, b.log())
				}
				if o.Retry != nil {
					o, err = server.Resume(t.Context(), o.Retry, nil)
				} else if tt.want == never {
					o, err = server.Run(t.Context(), "c", false, nil)
				}
				if err != nil || o.Retry != nil || unread(t, th) {
					t.Errorf("afterwards: %+v, %v", o, err)
				}
				server.Close()
				lockAndRelease(t, th)
				if s, err := Status(th, "c"); err != nil || s.Running || s.LastExit != "exit 0" {
					t.Errorf("%+v, %v", s, err)
				}
			})
		}
	}
}

// TestRunIsWaitedForByAnother: a handler of which another part of the process has taken the
// exit has not succeeded, and what it has done counts.
func TestRunIsWaitedForByAnother(t *testing.T) {
	quickly(t)
	th := withEvent(t, filepath.Join(faults.Dir(t), "t"), "true")
	defer th.Close()
	server, err := NewServer(t.Context(), th)
	must(t, err)
	defer server.Close()
	// It is opened when the handler has exited.
	taken := step{"openat", "run/c.turn", 1, func() {
		if list := server.records(); len(list) == 1 {
			_, err := syscall.Wait4(list[0].PID, nil, 0, nil)
			must(t, err)
		}
	}}
	var o Outcome
	meanwhile(t, th.Dir(), func() { o, err = server.Run(context.Background(), "c", false, nil) }, taken)
	if err != nil || o.Retry == nil || !unread(t, th) {
		t.Fatalf("%+v, %v", o, err)
	}
	if s, err := Status(th, "c"); err != nil || s.Failures != 1 || !strings.Contains(s.LastExit, "no child processes") {
		t.Errorf("%+v, %v", s, err)
	}
	o.Retry.Release()
	server.Close()
	lockAndRelease(t, th)
}

// calledOff is a context that ends when the handler has begun to wait.
func calledOff(t *testing.T, at *fifo) (ctx context.Context, pid chan int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	pid = make(chan int, 1)
	go func() {
		pid <- at.numbers()[0]
		cancel()
	}()
	return ctx, pid
}

// TestRunIsCalledOff: a process that is called off leaves its handler, which the next one
// adopts, and the next one after it: the event is handled once.
func TestRunIsCalledOff(t *testing.T) {
	b := newBench(t)
	t.Setenv(envDispatch, wakeNone)
	at, leave := b.fifo("at"), b.fifo("leave")
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `echo $$ > "$D/at"; read _ < "$D/leave"; echo ran >> "$D/runs"; ` + drain})
	last := b.push("s")
	b.r.max = serverSlots
	must(t, b.r.prepare())
	s := &supervisor{dispatcher: b.r, waiting: map[string]*waiter{}}
	ctx, pid := calledOff(t, at)
	handler := 0
	for n := range 3 {
		c, _, err := b.r.claim(t.Context(), "c", b.r.rulePending)
		if err != nil || c == nil || (c.lost != nil) != (n > 0) {
			t.Fatalf("%d: %+v, %v", n, c, err)
		}
		if n == 2 {
			leave.say()
			if w, err := s.attempt(t.Context(), c); w != nil || err != nil {
				t.Errorf("it is not settled: %v, %v", w, err)
			}
			break
		}
		if w, err := s.attempt(ctx, c); w != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("%d: called off: %v, %v", n, w, err)
		}
		if n == 0 {
			handler = <-pid
		}
		if !alive(handler) {
			t.Fatalf("%d: the handler is ended", n)
		}
		c.drop() // as the end of the process does
	}
	if got := b.lines("runs"); len(got) != 1 || b.acked("c") != last {
		t.Errorf("%d runs, acked %d of %d\n%s", len(got), b.acked("c"), last, b.log())
	}
	lockAndRelease(t, b.t)
}
