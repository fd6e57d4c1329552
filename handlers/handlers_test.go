//go:build linux

package handlers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/dispatch"
	"thread/internal/programs"
)

// TestMain lets the test binary stand in for the program thread, when it is called so.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "supervise" {
		programs.Is(programs.Main)
		if err := dispatch.Supervise(context.Background(), os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "Error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Setenv("THREAD_DISPATCH", "spawn") // the host's notifier is not to be asked
	os.Exit(m.Run())
}

// install makes the program be found on PATH, and returns a thread whose one consumer
// writes a line to the pipe that comes with it.
func install(t *testing.T) (th *engine.Thread, lines *os.File) {
	t.Helper()
	bin, dir := t.TempDir(), t.TempDir()
	exe, err := os.Executable()
	if err == nil {
		err = os.Symlink(exe, filepath.Join(bin, programs.Main))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":/usr/bin:/bin")
	pipe := filepath.Join(dir, "pipe")
	if out, err := exec.Command("mkfifo", pipe).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if lines, err = os.OpenFile(pipe, os.O_RDWR, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lines.Close() })
	if th, err = engine.Init(filepath.Join(dir, "inbox")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // who supervises has ended, too: the directory can be deleted
		for end := time.Now().Add(20 * time.Second); atWork(th.Dir()) && time.Now().Before(end); {
			time.Sleep(5 * time.Millisecond) // no event reports the end of others' processes
		}
	})
	if err := th.Subscribe(t.Context(), engine.Subscription{Consumer: "c", Handler: "echo \"$THREAD_CONSUMER\" > '" + pipe + "'"}); err != nil {
		t.Fatal(err)
	}
	return th, lines
}

// atWork reports whether another process has the directory among its arguments.
func atWork(dir string) bool {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range all {
		if args, _ := os.ReadFile(path); strings.Contains(string(args), "\x00"+dir+"\x00") {
			return true
		}
	}
	return false
}

func line(t *testing.T, f *os.File) string {
	t.Helper()
	f.SetReadDeadline(time.Now().Add(20 * time.Second))
	buf := make([]byte, 100)
	n, err := f.Read(buf)
	if err != nil {
		t.Fatalf("no handler ran: %v", err)
	}
	return string(buf[:n])
}

// TestWake: a push by the library runs the handler, in a process of the program, and
// the children of this one are left alone.
func TestWake(t *testing.T) {
	th, lines := install(t)
	e, err := th.Push(t.Context(), event.Draft{Source: "self", Type: "m"})
	if err == nil {
		err = Wake(t.Context(), th, e.Source)
	}
	if err != nil {
		t.Fatal(err)
	}
	own := exec.Command("sh", "-c", "exit 7")
	if err := own.Start(); err != nil {
		t.Fatal(err)
	}
	if got := line(t, lines); got != "c\n" {
		t.Errorf("the handler says %q", got)
	}
	if err := own.Wait(); err == nil || err.Error() != "exit status 7" {
		t.Errorf("the caller's child ended with %v", err)
	}
}

// TestWakeAt: a delayed event is released at its time, and its handler runs.
func TestWakeAt(t *testing.T) {
	th, lines := install(t)
	_, at, err := th.PushAfter(t.Context(), event.Draft{Source: "self", Type: "m"}, 300*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if awaited, err := WakeAt(t.Context(), th, at); !awaited || err != nil {
		t.Errorf("%v %v", awaited, err)
	}
	if got := line(t, lines); got != "c\n" || time.Now().Before(at) {
		t.Errorf("the handler says %q", got)
	}
	if awaited, err := WakeAt(t.Context(), th, time.Now().Add(24*time.Hour)); awaited || err != nil {
		t.Errorf("in a day: %v %v", awaited, err)
	}
}

// TestWakeNothing: without the program, and where nothing is to be started.
func TestWakeNothing(t *testing.T) {
	th, _ := install(t)
	t.Setenv("PATH", t.TempDir())
	if err := Wake(t.Context(), th, "self"); !errors.Is(err, ErrNoProgram) {
		t.Errorf("without the program: %v", err)
	}
	t.Setenv("THREAD_DISPATCH", "none")
	if err := Wake(t.Context(), th, "self"); err != nil {
		t.Errorf("THREAD_DISPATCH=none: %v", err)
	}
	t.Setenv("THREAD_DISPATCH", "spawn")
	if err := th.Unsubscribe(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	if err := Wake(t.Context(), th, "self"); err != nil {
		t.Errorf("without subscriptions: %v", err)
	}
	if err := engine.Destroy(th.Dir()); err != nil {
		t.Fatal(err)
	}
	if err := Wake(t.Context(), th, "self"); !errors.Is(err, engine.ErrNotThread) {
		t.Errorf("a thread that is gone: %v", err)
	}
}

// TestWakeOwner: the error of a thread of another account can be told.
func TestWakeOwner(t *testing.T) {
	if err := explained(fmt.Errorf("push: %w", &dispatch.OwnerError{Path: "/srv/inbox", Owner: "alice", Thread: true})); !errors.Is(err, ErrOwner) || !strings.Contains(err.Error(), "alice") {
		t.Errorf("%v", err)
	}
	if err := explained(nil); err != nil {
		t.Errorf("%v", err)
	}
}
