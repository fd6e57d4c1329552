//go:build linux

package dispatch

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"thread/engine"
	"thread/internal/faults"
	"thread/lock"
)

// exclusive takes a lock as this process, which no search for what is left finds.
func exclusive(t *testing.T, path string) *lock.File {
	t.Helper()
	l, err := lock.Try(path, lock.Exclusive)
	must(t, err)
	t.Cleanup(func() { release(l) })
	return l
}

// TestTreeOfNobody: a tree lock whose holder cannot be found is waited for, which is said, and
// not for longer than the context.
func TestTreeOfNobody(t *testing.T) {
	b := newBench(t)
	must(t, b.r.prepare())
	h := &handler{dispatcher: b.r, rec: &record{note: note{RunID: newRunID()}, Consumer: "c"}, due: engine.Due{Subscription: engine.Subscription{Consumer: "c"}}}
	held := exclusive(t, b.r.treeLockPath("c"))
	type result struct {
		tree *treeLock
		err  error
	}
	take := func(ctx context.Context) (got chan result) {
		got = make(chan result, 1)
		go func() {
			tree, err := b.r.lockTree(ctx, "c", h.remains(0), 0)
			got <- result{tree, err}
		}()
		return got
	}
	called, cancel := context.WithCancel(t.Context())
	cancel()
	if got := <-take(called); got.tree != nil || !errors.Is(got.err, context.Canceled) {
		t.Errorf("called off before: %+v", got)
	}
	if err := h.clear(called, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("called off before: %v", err)
	}
	called, cancel = context.WithCancel(t.Context())
	waits := take(called)
	b.awaitLog("consumer=c waits for a process of the handler before, which cannot be found", 1)
	cancel()
	if got := <-waits; got.tree != nil || got.err == nil {
		t.Errorf("called off: %+v", got)
	}
	limited, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if got := <-take(limited); got.tree != nil || got.err == nil {
		t.Errorf("its time is up: %+v", got)
	}
	waits = take(t.Context())
	b.awaitLog("consumer=c waits for a process of the handler before, which cannot be found", 3)
	release(held)
	got := <-waits
	must(t, got.err)
	got.tree.release()
	if strings.Count(b.log(), "cannot be found") != 3 || exists(b.r.treeLockPath("c")) {
		t.Errorf("it says so again, or leaves the lock:\n%s", b.log())
	}
}

// TestLockBesideLeftovers: a consumer is not locked while its handler runs without a
// supervisor, or while what is left of one cannot be ended; the handler continues.
func TestLockBesideLeftovers(t *testing.T) {
	quickly(t)
	th := withEvent(t, filepath.Join(faults.Dir(t), "t"), "true")
	defer th.Close()
	leaveRunning(t, th)
	r := newDispatcher(th, Options{})
	run := r.readNote("c").RunID
	refused := func(what string) {
		t.Helper()
		l, err := LockConsumer(t.Context(), th, "c")
		if !errors.Is(err, ErrHandled) {
			t.Errorf("%s: %v", what, err)
		}
		if err == nil {
			must(t, l.Release(t.Context()))
		}
		if n := r.readNote("c"); n.State != stateRunning || n.RunID != run {
			t.Errorf("%s: the note is %+v", what, n)
		}
		if open := faults.Open(t, th.Dir()); what == "its handler runs" && open != nil {
			t.Errorf("%s: open are %q", what, open)
		}
	}
	handler := exec.Command("sleep", "1000")
	handler.Env = []string{envRunID + "=" + run}
	detach(handler)
	must(t, handler.Start())
	l, err := r.tryRecord("c")
	must(t, err)
	rec := readRecord(l)
	rec.PID, rec.Began = handler.Process.Pid, beganAt(handler.Process.Pid)
	must(t, writeRecord(l, rec))
	release(l)
	refused("its handler runs")
	if !alive(handler.Process.Pid) {
		t.Error("the handler was ended")
	}
	// A system without numbers of processes that stay theirs has nothing to wait with.
	f := also(syscall.ENOSYS, 1, "pidfd_open")()
	f.Run(t, th.Dir(), func() {
		if l := findLeader(rec); l != nil {
			t.Errorf("it is found without a way to wait for it: %+v", l)
		}
	})
	if f.Hit == nil {
		t.Errorf("no process was looked for: %v", f.Calls)
	}
	must(t, handler.Process.Kill())
	_ = handler.Wait()
	tree := exclusive(t, r.treeLockPath("c"))
	refused("what holds the tree lock is not found")
	release(tree)
	lockAndRelease(t, th) // the run is settled
	work := exclusive(t, r.workLockPath("c"))
	if l, err := LockConsumer(t.Context(), th, "c"); l != nil || !errors.Is(err, ErrHandled) {
		t.Errorf("what holds the work lock is not found: %v", err)
	}
	release(work)
	lockAndRelease(t, th)
}

// TestLostConsumerLock: what is left of a process that was killed with a consumer locked is not
// a run. The consumer is run if something is due, and not in a lane without a place.
func TestLostConsumerLock(t *testing.T) {
	quickly(t)
	for what, tt := range map[string]struct {
		lane string
		push bool
		max  int
		runs bool
	}{
		"nothing is due": {"", false, serverSlots, false}, "something is due": {"", true, serverSlots, true},
		"in a lane": {"cron", true, 2, false}, "in a lane of a server": {"cron", true, serverSlots, true},
	} {
		root := faults.Dir(t)
		t.Setenv("RAN", filepath.Join(root, "ran"))
		th, err := engine.Init(filepath.Join(root, "t"))
		must(t, err)
		defer th.Close()
		must(t, th.Subscribe(t.Context(), engine.Subscription{Consumer: "c", Handler: `echo ran > "$RAN"`, Lane: tt.lane}))
		b := &bench{TB: t, t: th}
		if tt.push {
			b.push("s")
		}
		r := newDispatcher(th, Options{MaxHandlers: tt.max})
		must(t, r.prepare())
		l, err := r.tryRecord("c")
		must(t, err)
		must(t, writeRecord(l, &record{note: note{RunID: newRunID()}, Consumer: "c", Manual: true}))
		release(l)
		s := &supervisor{dispatcher: r, waiting: map[string]*waiter{}}
		c, _, err := r.claim(t.Context(), "c", r.rulePending)
		must(t, err)
		if w, err := s.attempt(t.Context(), c); w != nil || err != nil {
			t.Errorf("%s: %v, %v", what, w, err)
		}
		if exists(os.Getenv("RAN")) != tt.runs {
			t.Errorf("%s: it has run: %v\n%s", what, !tt.runs, b.log())
		}
		if open := faults.Open(t, th.Dir()); open != nil {
			t.Errorf("%s: open are %q", what, open)
		}
		if list := r.records(); len(list) > 0 {
			t.Errorf("%s: %+v is left", what, list)
		}
		lockAndRelease(t, th)
	}
}

// TestKilledHandlerIsCalledOff: a process that is called off while it ends what its handler
// has left leaves that to the next one.
func TestKilledHandlerIsCalledOff(t *testing.T) {
	b := newBench(t)
	t.Setenv(envDispatch, wakeNone)
	at, leave := b.fifo("at"), b.fifo("leave")
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `if [ -e "$D/first" ]; then ` + drain + `; exit; fi
		: > "$D/first"; trap 'echo told > "$D/at"; read _ < "$D/leave"; exit' TERM; echo up > "$D/at"; while :; do sleep 0.01; done`})
	last := b.push("s")
	defer func(grace time.Duration) { killGrace = grace }(killGrace)
	killGrace = patience // it ends by itself
	must(t, b.r.prepare())
	abort := make(chan struct{})
	s := &supervisor{dispatcher: b.r, waiting: map[string]*waiter{}, hooks: &Hooks{Abort: abort}}
	c, _, err := b.r.claim(t.Context(), "c", b.r.rulePending)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- second(s.attempt(ctx, c)) }()
	at.line()
	close(abort)
	at.line() // it was told to end
	cancel()
	leave.say()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("called off: %v", err)
	}
	killGrace = time.Millisecond
	pid := readRecord(c.record).PID
	c.drop()
	_, _ = syscall.Wait4(pid, nil, 0, nil) // as the end of the process has it
	if s := b.state("c"); !s.Interrupted || b.acked("c") != 0 {
		t.Errorf("%+v, acked %d", s, b.acked("c"))
	}
	b.dispatch(Options{})
	b.awaitIdle()
	if b.acked("c") != last {
		t.Errorf("acked %d of %d\n%s", b.acked("c"), last, b.log())
	}
}

// TestRetryCannotBegin: a retry that cannot be begun gives everything back, and the event is
// handled at the next look.
func TestRetryCannotBegin(t *testing.T) {
	quickly(t)
	exe, err := os.Executable()
	must(t, err)
	t.Setenv("T", exe)
	for _, path := range []string{"run/c.lock", "handlers/c.run"} {
		root := faults.Dir(t)
		t.Setenv("RAN", filepath.Join(root, "ran"))
		th := withEvent(t, filepath.Join(root, "t"), `[ -e "$RAN" ] || { : > "$RAN"; exit 1; }; `+drain)
		defer th.Close()
		server, err := NewServer(t.Context(), th)
		must(t, err)
		defer server.Close()
		o, err := server.Run(t.Context(), "c", false, nil)
		if err != nil || o.Retry == nil {
			t.Fatalf("%+v, %v", o, err)
		}
		f := faults.Nth(syscall.EIO, 1, "openat", path)
		f.Run(t, th.Dir(), func() { o, err = server.Resume(context.Background(), o.Retry, nil) })
		if !errors.Is(err, syscall.EIO) || o.Ran || o.Retry != nil || !o.Look {
			t.Errorf("%s: %+v, %v", path, o, err)
		}
		server.Close()
		if open := faults.Open(t, th.Dir()); open != nil {
			t.Errorf("%s: open are %q", path, open)
		}
		lockAndRelease(t, th)
		if err := serveOnce(th); err != nil || unread(t, th) {
			t.Errorf("%s: it is not handled afterwards: %v", path, err)
		}
	}
}

// TestSmallAnswers: what is said where there is nothing to be said, or cannot be read.
func TestSmallAnswers(t *testing.T) {
	th := withEvent(t, filepath.Join(faults.Dir(t), "t"), "true")
	r := newDispatcher(th, Options{})
	must(t, r.prepare())
	for err, want := range map[error]string{nil: "", os.ErrProcessDone: "", syscall.EPERM: ": operation not permitted"} {
		if got := suffix(err); got != want {
			t.Errorf("%v: %q", err, got)
		}
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "work"))
	must(t, err)
	for text, want := range map[string]work{"run x released": {}, "run 3": {}, "run 3 released": {"run", 3, true}, "run 3 working_": {"run", 3, false}} {
		must(t, f.Truncate(0))
		_, err := f.WriteAt([]byte(text), 0)
		must(t, err)
		if got := readWork(f); got != want {
			t.Errorf("%q: %+v", text, got)
		}
	}
	must(t, f.Close())
	if n := (&output{reader: f}).inode(); n != 0 {
		t.Errorf("a closed file has inode %d", n)
	}
	h := &handler{dispatcher: r, rec: &record{First: 99}}
	if parent, request := h.trace(); parent+request != "" {
		t.Errorf("the trace of no event is %q, %q", parent, request)
	}
	s := &supervisor{dispatcher: r}
	called, cancel := context.WithCancel(t.Context())
	cancel()
	if s.windowed(t.Context(), "nobody") || s.windowed(t.Context(), "c") || !s.windowed(called, "c") {
		t.Error("a window that is none, or is not known")
	}
	// No file keeps a year of five digits: what is there stays.
	must(t, r.writeNote("c", note{State: stateIdle}))
	year := note{State: stateRunning, StartedAt: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}
	l, err := r.tryRecord("c")
	must(t, err)
	if r.writeNote("c", year) == nil || writeRecord(l, &record{note: year}) == nil {
		t.Error("a year of five digits is written")
	}
	release(l)
	if n := r.readNote("c"); n.State != stateIdle {
		t.Errorf("the note is %+v", n)
	}
	for _, recorded := range []string{"", "another"} {
		l, err := r.tryRecord("c")
		must(t, err)
		must(t, writeRecord(l, &record{note: note{RunID: recorded}, Consumer: "c"}))
		release(l)
		if rec := r.recordOf(&standbyRun{Consumer: "c", RunID: "run"}); rec.RunID != "" {
			t.Errorf("the record of another run: %+v", rec)
		}
	}
	if rec := r.recordOf(&standbyRun{Consumer: "nobody", RunID: "run"}); rec.RunID != "" || rec.PID != 0 {
		t.Errorf("a record of no run: %+v", rec)
	}
	must(t, os.Symlink("elsewhere", r.poppedPath("c")))
	if id, err := r.popped("c", "run"); id != 0 || !errors.Is(err, syscall.ELOOP) {
		t.Errorf("popped up to %d, %v", id, err)
	}
	must(t, th.Close())
	if parent, request := h.trace(); parent+request != "" {
		t.Errorf("the trace in a closed thread is %q, %q", parent, request)
	}
}
