//go:build linux

package dispatch

import (
	"bytes"
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
	"thread/internal/programs"
)

// TestSuperviseCannotWork: a mode that is not known, and a thread that is not there, are
// errors, and nothing is run.
func TestSuperviseCannotWork(t *testing.T) {
	b := newBench(t)
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `: > "$D/ran"`})
	b.push("s")
	for _, tt := range []struct{ mode, dir, want string }{
		{"other", b.t.Dir(), "supervise: unknown mode other"},
		{modeWork, b.path("gone"), "gone: no such file"},
	} {
		out, err := b.command(superviseVerb, tt.mode, "-thread", tt.dir).CombinedOutput()
		if err == nil || !strings.Contains(string(out), tt.want) {
			t.Errorf("%s: %s%v", tt.mode, out, err)
		}
	}
	if b.read("ran") != "" || exists(b.path("ran")) || !strings.Contains(b.log(), "[ERROR] supervise: supervise: unknown mode") {
		t.Errorf("a handler has run, or the log is %q", b.log())
	}
}

// TestSuperviseOfAnEarlierVersion: a dispatch of an earlier version hands the consumer's locks
// over and says by the end of a pipe that it has let go of them. Until then nothing is run, and
// then they are not in the way.
func TestSuperviseOfAnEarlierVersion(t *testing.T) {
	b := newBench(t)
	b.subscribe(engine.Subscription{Consumer: "c", Handler: drain})
	last := b.push("s")
	must(t, b.r.prepare())
	held := exclusive(t, b.r.handlerLockPath("c"))
	worker := b.command(superviseVerb, modeWork, "-thread", b.t.Dir(), "-max", "2", "-consumer", "c")
	worker.ExtraFiles = []*os.File{nil, nil, held.File()}
	in, err := worker.StdinPipe()
	must(t, err)
	var out bytes.Buffer
	worker.Stdout, worker.Stderr = &out, &out
	must(t, worker.Start())
	held.Close() // the worker has it still
	if b.acked("c") != 0 {
		t.Error("it has run before the locks were let go of")
	}
	must(t, in.Close())
	if err := worker.Wait(); err != nil {
		t.Errorf("%v: %s", err, out.String())
	}
	if b.acked("c") != last {
		t.Errorf("acked %d of %d\n%s", b.acked("c"), last, b.log())
	}
}

// TestServerStandbyCannotLook: the standby of a server that ended works in each of its threads,
// also when it cannot in one of them, and when a run of that says which it was.
func TestServerStandbyCannotLook(t *testing.T) {
	b := newBench(t)
	t.Setenv("DISPATCH_TEST_DELAY_MS", "1")
	b.subscribe(engine.Subscription{Consumer: "c", Handler: drain})
	last := b.push("s")
	other := withEvent(t, b.path("other"), "true")
	defer other.Close()
	must(t, os.RemoveAll(filepath.Join(other.Dir(), "run")))
	must(t, os.WriteFile(filepath.Join(other.Dir(), "run"), nil, 0o600))
	standby := b.command(superviseVerb, modeServerStandby)
	standby.Stdin = strings.NewReader(other.Dir() + "\x00" + b.path("gone") + "\x00" + b.t.Dir() + "\x00")
	if out, err := standby.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	o := &bench{TB: t, t: other}
	if b.acked("c") != last || !unread(t, other) || !strings.Contains(o.log(), "[ERROR] supervise: mkdir ") {
		t.Errorf("acked %d of %d\n%s%s", b.acked("c"), last, b.log(), o.log())
	}
}

// program makes a program of that name, and returns its directory.
func program(t *testing.T, name, body string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	syscall.ForkLock.RLock() // else a child that is just started has it open for writing
	defer syscall.ForkLock.RUnlock()
	must(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+body+"\n"), 0o700))
	return dir
}

// TestStandbyIsReplaced: a standby that ends is replaced by one that is sent the same, until
// there is nothing to take over.
func TestStandbyIsReplaced(t *testing.T) {
	b := newBench(t)
	at := b.fifo("at")
	path := os.Getenv("PATH")
	withoutProgram(t)
	// The first one ends when it has read a path.
	bin := program(t, programs.Main, "echo up > \"$D/at\"; if mkdir \"$D/first\"; then head -c 2; else head -c 3 > \"$D/second\"; fi")
	t.Setenv("PATH", bin+string(os.PathListSeparator)+path)
	s := newStandby(b.r)
	s.start()
	s.await()
	at.line()
	s.addDir("a")
	at.line() // the second one
	s.stop()
	if got := b.read("second"); got != "a\x00q" {
		t.Errorf("the second one was sent %q\n%s", got, b.log())
	}
}

// TestDispatchIsNotHandedOver: a dispatch whose supervisor does not come so far that another
// process takes over from it ends with ErrBusy.
func TestDispatchIsNotHandedOver(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes 4 s")
	}
	th := withEvent(t, filepath.Join(faults.Dir(t), "t"), "true")
	defer th.Close()
	b := newBench(t)
	leave := b.fifo("leave")
	bin := program(t, programs.Main, `read _ < "$D/leave"`)
	withoutProgram(t)
	t.Setenv("PATH", bin)
	if err := Run(t.Context(), th, Options{}); !errors.Is(err, engine.ErrBusy) || !unread(t, th) {
		t.Errorf("%v", err)
	}
	leave.say()
}

// TestHistoryCannotBeTold: a run of which the history cannot be told stays for it.
func TestHistoryCannotBeTold(t *testing.T) {
	th := withEvent(t, filepath.Join(faults.Dir(t), "t"), "true")
	defer th.Close()
	t.Setenv("PATH", program(t, programs.History, ""))
	run := EndedRun{RunID: newRunID(), Consumer: "c", EndedAt: time.Now()}
	_, err := run.Leave(th.Dir(), false)
	must(t, err)
	r := newDispatcher(th, Options{})
	f := also(syscall.EMFILE, 1, "pipe2")()
	before := descriptors(t)
	f.Run(t, th.Dir(), func() { r.askToTake(true) })
	left, err := filepath.Glob(filepath.Join(EndedDir(th.Dir()), "*"+endedFailed))
	if err != nil || len(left) != 1 || f.Hit == nil {
		t.Errorf("%q are left, %v; it hit %v", left, err, f.Hit)
	}
	if list := stayOpen(t, before); list != nil {
		t.Errorf("%q stay open", list)
	}
}

// TestAwaitNextFails: what cannot be watched, or read, is an error and no wait.
func TestAwaitNextFails(t *testing.T) {
	th, err := engine.Init(filepath.Join(faults.Dir(t), "t"))
	must(t, err)
	must(t, th.Subscribe(t.Context(), engine.Subscription{Consumer: "c", Pull: true}))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	take := func(context.Context) (engine.Lease, error) {
		return engine.Lease{}, th.Close() // nothing yet
	}
	if _, err := AwaitNext(ctx, th, take); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("closed meanwhile: %v", err)
	}
	must(t, os.RemoveAll(th.Dir()))
	if _, err := AwaitNext(ctx, th, func(context.Context) (engine.Lease, error) {
		t.Error("events are taken from a thread that cannot be watched")
		return engine.Lease{}, engine.ErrClosed
	}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("gone: %v", err)
	}
}
