//go:build linux

package dispatch

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"thread/engine"
	"thread/internal/faults"
	"thread/internal/programs"
)

// withoutProgram makes this process one that finds no program to start.
func withoutProgram(t *testing.T) {
	t.Helper()
	t.Setenv("PATH", t.TempDir())
	programs.Is("a library")
	t.Cleanup(func() { programs.Is(programs.Main) })
}

// TestRunFails: a dispatch that cannot start what it is to start says so, and the event stays
// for the next one.
func TestRunFails(t *testing.T) {
	t.Setenv(envDispatch, wakeSpawn)
	for what, tt := range map[string]struct {
		f    func() *faults.Fault
		want error
	}{
		"the pipe of its supervisor":      {also(syscall.EMFILE, 1, "pipe2"), syscall.EMFILE},
		"the start of its supervisor":     {also(syscall.EAGAIN, 2, "pipe2"), syscall.EAGAIN},
		"the directory":                   {nth(syscall.EIO, 1, "mkdirat", "/run"), syscall.EIO},
		"the rights to the logs":          {also(syscall.EACCES, 1, "faccessat"), fs.ErrPermission},
		"the look at the directory's own": {nth(syscall.EIO, 1, "newfstatat", "events.db"), syscall.EIO},
	} {
		th := withEvent(t, filepath.Join(faults.Dir(t), "t"), "true")
		defer th.Close()
		b := &bench{TB: t, t: th}
		must(t, os.RemoveAll(filepath.Join(th.Dir(), "run")))
		if what == "the rights to the logs" {
			must(t, th.Unsubscribe(t.Context(), "c"))
		}
		before := descriptors(t)
		f := tt.f()
		var err error
		f.Run(t, th.Dir(), func() { err = Run(context.Background(), th, Options{}) })
		if f.Hit == nil || !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, after %v", what, err, f.Calls)
		}
		if !strings.Contains(what, "own") && !strings.Contains(b.log(), "[ERROR] dispatch: ") {
			t.Errorf("%s: the log is %q", what, b.log())
		}
		if list := stayOpen(t, before); list != nil {
			t.Errorf("%s: %q stay open", what, list)
		}
	}
	called, cancel := context.WithCancel(t.Context())
	cancel()
	th := withEvent(t, filepath.Join(faults.Dir(t), "t"), "true")
	defer th.Close()
	if err := Run(called, th, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("called off: %v", err)
	}
}

// TestNoProgram: where the program to start is not found, a dispatch, a push and a schedule
// say so, and a lock goes without its standby. Where nothing is to be started, that is not an error.
func TestNoProgram(t *testing.T) {
	th := withEvent(t, filepath.Join(faults.Dir(t), "t"), "true")
	defer th.Close()
	b := &bench{TB: t, t: th}
	withoutProgram(t)
	t.Setenv(envDispatch, wakeSpawn)
	ctx := t.Context()
	_, scheduled := Rescheduled(ctx, th, time.Now())
	for what, err := range map[string]error{"dispatch": Run(ctx, th, Options{}), "push": Wake(ctx, th, "s"), "schedule": scheduled} {
		if !errors.Is(err, ErrNoProgram) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if !strings.Contains(b.log(), "[WARN] push: no dispatch: ") || !strings.Contains(b.log(), "[ERROR] dispatch: ") {
		t.Errorf("the log is %q", b.log())
	}
	l, err := LockConsumer(ctx, th, "c")
	must(t, err)
	must(t, l.Release(ctx))
	if !strings.Contains(b.log(), "no standby: "+ErrNoProgram.Error()) || !unread(t, th) {
		t.Errorf("the log is %q", b.log())
	}
	t.Setenv(envDispatch, wakeNone)
	must(t, Wake(ctx, th, "s"))
}

// TestServerIsTold: a dispatch leaves all to a server that listens.
func TestServerIsTold(t *testing.T) {
	th := withEvent(t, filepath.Join(faults.Dir(t), "t"), "true")
	defer th.Close()
	withoutProgram(t) // it would be an error to start one
	r := newDispatcher(th, Options{})
	must(t, r.prepare())
	p, err := r.listen()
	must(t, err)
	defer p.Close()
	for range 2 {
		must(t, Run(t.Context(), th, Options{}))
		if got, err := p.Next(); err != nil || got != (Ping{Push: true}) {
			t.Errorf("%+v, %v", got, err)
		}
	}
	// So does a process that a push has started.
	s := newSupervisor(r)
	must(t, s.wake(t.Context(), ""))
	if got, err := p.Next(); err != nil || !got.Push {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestMixedOwners: a thread whose owner is not known is one for which no handler is started.
// A push into it without a subscription is well.
func TestMixedOwners(t *testing.T) {
	asRoot(t)
	th, err := engine.Open(threadOf(t, 12345, nobody, 0o700))
	must(t, err)
	defer th.Close()
	t.Setenv("PATH", t.TempDir())
	t.Setenv(envDispatch, wakeNotifier)
	var foreign *OwnerError
	if err := Wake(t.Context(), th, "s"); !errors.As(err, &foreign) {
		t.Errorf("a push: %v", err)
	}
	must(t, WakeUnsubscribed(t.Context(), th, "s"))
	if err := Run(t.Context(), th, Options{}); !errors.As(err, &foreign) {
		t.Errorf("a dispatch: %v", err)
	}
	must(t, th.Subscribe(t.Context(), engine.Subscription{Consumer: "c", Handler: "true"}))
	(&bench{TB: t, t: th}).push("s")
	a, err := Why(t.Context(), th, "c", 1)
	if err != nil || a.Place != PlacePending || !strings.Contains(a.Text, foreign.Error()+", whose pushes and dispatches start them") {
		t.Errorf("%+v, %v", a, err)
	}
	must(t, th.Close())
	must(t, os.Remove(filepath.Join(th.Dir(), "events.db")))
	if err := Wake(t.Context(), th, "s"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a push into no thread: %v", err)
	}
}

// TestWakeCannotLook: what a push has started ends with the error where it cannot look, and
// tells the next push of what stays so.
func TestWakeCannotLook(t *testing.T) {
	quickly(t)
	th := withEvent(t, filepath.Join(faults.Dir(t), "t"), "true")
	defer th.Close()
	r := newDispatcher(th, Options{})
	must(t, os.RemoveAll(r.run))
	must(t, os.WriteFile(r.run, nil, 0o600))
	s := newSupervisor(r)
	s.first = true
	if err := s.wake(t.Context(), ""); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("a file in place of run/: %v", err)
	}
	if !unread(t, th) {
		t.Error("the event is handled")
	}
}

// TestNotifierSays: of what notifier prints the beginning is kept. A process that it leaves,
// which holds its output, is not waited for.
func TestNotifierSays(t *testing.T) {
	b := newBench(t)
	t.Setenv("PATH", b.notifier(`sleep 1000 & echo $! > "$D/child"; head -c 100000 /dev/zero | tr '\0' x; exit 0`))
	said, err := addTask(t.Context(), "s", b.t.Dir())
	if err != nil || said != strings.Repeat("x", saidBytes) {
		t.Errorf("%d bytes, %v", len(said), err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(b.read("child")))
	must(t, err)
	if !alive(pid) {
		t.Error("what notifier has left is ended")
	}
	b.kill(pid)
}

// TestRetainFails: what cannot be dropped or forgotten now is logged, is not an error
// where others are at the thread, and stops nothing.
func TestRetainFails(t *testing.T) {
	th := withEvent(t, filepath.Join(faults.Dir(t), "t"), "true")
	defer th.Close()
	b := &bench{TB: t, t: th}
	r := newDispatcher(th, Options{})
	must(t, r.prepare())
	called, cancel := context.WithCancel(t.Context())
	cancel()
	newSupervisor(r).retain(called)
	for _, line := range []string{"[WARN] retain: context canceled", "[WARN] files of unsubscribed consumers: context canceled"} {
		if !strings.Contains(b.log(), line) {
			t.Errorf("no %q in the log:\n%s", line, b.log())
		}
	}
	// A busy thread is not an error.
	hasty, err := engine.Open(th.Dir(), engine.WithLockWait(time.Millisecond))
	must(t, err)
	defer hasty.Close()
	must(t, os.Remove(filepath.Join(r.run, ".forgotten")))
	must(t, th.Update(t.Context(), func(*engine.Tx) error {
		if _, err := hasty.Info(context.Background()); !errors.Is(err, engine.ErrBusy) {
			t.Errorf("beside a writer: %v", err)
		}
		must(t, errors.Join(Retain(context.Background(), hasty), Forget(context.Background(), hasty)))
		return nil
	}))
}

// TestForgetMeanwhile: the files of a consumer that is subscribed again while they are removed
// are made again by the dispatch that follows; what fails leaves the files.
func TestForgetMeanwhile(t *testing.T) {
	th := withEvent(t, filepath.Join(faults.Dir(t), "t"), "true")
	defer th.Close()
	r := newDispatcher(th, Options{})
	must(t, r.prepare())
	p, err := r.listen() // in place of a dispatch
	must(t, err)
	defer p.Close()
	must(t, r.writeNote("gone", note{State: stateIdle}))
	now := time.Now()
	forget := func(ctx context.Context, others ...step) (err error) {
		t.Helper()
		meanwhile(t, th.Dir(), func() { err = r.forget(ctx, now) }, others...)
		now = now.Add(keepUnsubscribed)
		return err
	}
	for _, name := range []string{".forgotten", "gone" + goneEnding} {
		inTheWay := filepath.Join(r.run, name+".new", "full")
		must(t, os.MkdirAll(inTheWay, 0o700))
		must(t, forget(t.Context()))
		must(t, os.RemoveAll(filepath.Dir(inTheWay)))
		if exists(filepath.Join(r.run, "gone"+goneEnding)) || !exists(r.notePath("gone")) {
			t.Errorf("%s: it is noted as gone, or is", name)
		}
	}
	must(t, forget(t.Context())) // seen to be gone for the first time
	ctx, cancel := context.WithCancel(t.Context())
	if err := forget(ctx, step{"unlinkat", "run/gone.json", 1, cancel}); !errors.Is(err, context.Canceled) {
		t.Errorf("called off: %v", err)
	}
	must(t, r.writeNote("gone", note{State: stateIdle}))
	must(t, forget(t.Context()))
	must(t, forget(t.Context(), step{"unlinkat", "run/gone.json", 1, func() {
		must(t, th.Subscribe(context.Background(), engine.Subscription{Consumer: "gone", Handler: "true"}))
	}}))
	if got, err := p.Next(); err != nil || got != (Ping{Push: true}) {
		t.Errorf("%+v, %v", got, err)
	}
	must(t, r.writeNote("gone", note{State: stateIdle}))
	must(t, forget(t.Context()))
	if !exists(r.notePath("gone")) {
		t.Error("the files of a subscribed consumer are removed")
	}
	if open := faults.Open(t, th.Dir()); len(open) > 0 {
		t.Errorf("open are %q", open)
	}
}

// TestForeignFileAtTheRoot: a look for the owner of what denies access ends at the root.
func TestForeignFileAtTheRoot(t *testing.T) {
	denied := &fs.PathError{Op: "open", Path: "/", Err: syscall.EACCES}
	f := faults.Nth(syscall.EIO, 1, "newfstatat", ".")
	f.Run(t, "/", func() {
		if err := ForeignFile(denied); !errors.Is(err, denied) {
			t.Errorf("%v", err)
		}
	})
	if f.Hit == nil {
		t.Errorf("the root was not looked at: %v", f.Calls)
	}
}
