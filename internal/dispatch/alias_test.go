//go:build linux

package dispatch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"thread/engine"
	"thread/lock"
)

// A thread is the same by every path that leads to it.
func TestAlias(t *testing.T) {
	b := newBench(t)
	link := b.path("link")
	if err := os.Symlink(b.t.Dir(), link); err != nil {
		t.Fatal(err)
	}
	alias, err := engine.Open(link)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(envDir, link)
	t.Setenv(envConsumer, "c")
	t.Setenv(envRunID, "run")
	if got := b.r.author(); got != "c" {
		t.Errorf("the author is %q", got)
	}
	// What a handler pops by the other path counts for --ack on-success.
	t.Setenv(envPopped, newDispatcher(alias, Options{}).poppedPath("c"))
	if err := Popped(b.t, "c", 7); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(b.r.poppedPath("c")); string(text) != "run 7\n" {
		t.Errorf("noted as popped: %q, %v", text, err)
	}
	// And its lock is its supervisor's.
	if err := b.r.prepare(); err != nil {
		t.Fatal(err)
	}
	busy, err := lock.Try(b.r.supervisorLockPath("c"), lock.Exclusive)
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	if err := b.r.writeNote("c", note{State: stateRunning, RunID: "run"}); err != nil {
		t.Fatal(err)
	}
	turn, err := LockConsumer(context.Background(), b.t, "c")
	if err != nil {
		t.Fatal(err)
	}
	if !turn.Supervised() {
		t.Error("the lock is not the supervisor's")
	}
	t.Setenv(envDir, b.path("elsewhere"))
	if b.r.author() != "" || turn.Supervised() {
		t.Error("another directory is taken for this one")
	}
}

func TestHandlerPath(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(exe)
	for _, tc := range []struct{ path, want string }{
		{"/usr/bin:/bin", "/usr/bin:/bin:" + dir}, // cron's; a thread that is in there comes first
		{dir + ":/bin", dir + ":/bin"},
		{"", ":" + dir},
	} {
		t.Setenv("PATH", tc.path)
		if got := handlerPath(); got != tc.want {
			t.Errorf("PATH=%s: %s, want %s", tc.path, got, tc.want)
		}
	}
	os.Unsetenv("PATH") // as env -i; Setenv above brings it back
	if got := handlerPath(); got != standardPath+":"+dir {
		t.Errorf("no PATH: %s", got)
	}
}

// By hand, dispatch gives up when another process holds the thread; the process
// that a push starts does not.
func TestFrozenWriter(t *testing.T) {
	b := newBench(t)
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `echo run >> "$D/runs"; ` + drain})
	b.push("s")
	held, err := lock.Try(filepath.Join(b.t.Dir(), "events.db"), lock.Exclusive)
	if err != nil {
		t.Fatal(err)
	}
	hasty, err := engine.Open(b.t.Dir(), engine.WithLockWait(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := Run(context.Background(), hasty, Options{}); !errors.Is(err, engine.ErrBusy) {
		t.Errorf("by hand: %v", err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("by hand it took %v", took)
	}
	quick, err := engine.Open(b.t.Dir(), engine.WithLockWait(5*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	r := newDispatcher(quick, Options{})
	looked := make(chan error, 1)
	tries := 0
	go func() {
		_, err := retryBusy(context.Background(), r, func() ([]engine.Due, error) {
			if tries++; tries == 40 {
				held.Close()
			}
			return quick.Due(context.Background())
		})
		looked <- err
	}()
	if err := <-looked; err != nil || tries < 40 {
		t.Errorf("detached: %v after %d tries", err, tries)
	}
	b.dispatch(Options{})
	b.awaitIdle()
	if runs := b.lines("runs"); !slices.Equal(runs, []string{"run"}) {
		t.Errorf("runs %v", runs)
	}
}

// why claims nothing that it cannot see.
func TestWhyNobodyIsOnTheWay(t *testing.T) {
	b := newBench(t)
	b.subscribe(engine.Subscription{Consumer: "c", Handler: "true"})
	b.push("s")
	a, err := Why(context.Background(), b.t, "c", 1)
	if err != nil || a.Place != PlacePending || !strings.Contains(a.Text, "thread dispatch does") || strings.Contains(a.Text, "on its way") {
		t.Errorf("%+v, %v", a, err)
	}
	if err := b.r.prepare(); err != nil {
		t.Fatal(err)
	}
	busy, err := lock.Try(b.r.supervisorLockPath("other"), lock.Exclusive)
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	if a, err = Why(context.Background(), b.t, "c", 1); err != nil || !strings.Contains(a.Text, "the handlers of another consumer of the thread run or wait") {
		t.Errorf("%+v, %v", a, err)
	}
}
