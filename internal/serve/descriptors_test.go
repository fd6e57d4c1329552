//go:build linux

package serve

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
)

// TestFewDescriptors: a server that cannot keep all of its threads open runs the
// handlers of all, and does not fill the log.
func TestFewDescriptors(t *testing.T) {
	b := newBench(t)
	const threads = 60
	var dirs []string
	for i := range threads {
		thread, err := engine.Init(b.path(fmt.Sprint("t", i)))
		if err != nil {
			t.Fatal(err)
		}
		if err := thread.Subscribe(t.Context(), engine.Subscription{Consumer: "c", Handler: `echo x >> "$D/ran"; ` + drain}); err != nil {
			t.Fatal(err)
		}
		if _, err := thread.Push(t.Context(), event.Draft{Source: "s", Type: "m"}); err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, thread.Dir())
	}
	// The handlers have a descriptor of a number just below 100.
	cmd := exec.Command("sh", append([]string{"-c", `ulimit -n 120; exec "$T" serve "$@"`, "sh"}, dirs...)...)
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	b.until("run", func() bool { return len(b.lines("ran")) == threads })
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	// On a slow machine each consumer that waits long in its lane has a separate line.
	if n := strings.Count(log.String(), "\n") - strings.Count(log.String(), "lane wait exceeded"); n > 10 || !strings.Contains(log.String(), "too few file descriptors") {
		t.Errorf("the log has %d lines:\n%s", n, log.String())
	}
}

// TestNotKeptOpen: a thread without sockets is looked at by the sweep, pushes start
// its handlers themselves, and it is kept open when there is room again. A retry
// for which there is no descriptor comes all the same.
func TestNotKeptOpen(t *testing.T) {
	b := newBench(t)
	at := b.fifo("at")
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `[ -e "$D/failed" ] || { : > "$D/failed"; exit 1; }; echo $PPID > "$D/at"; ` + drain})
	b.serve(Options{Sweep: 20 * time.Millisecond, maxDescriptors: 1})
	if _, err := b.t.Push(t.Context(), event.Draft{Source: "s", Type: "m"}); err != nil { // reports nothing
		t.Fatal(err)
	}
	if got := b.line(at); got != fmt.Sprint(os.Getpid()) {
		t.Errorf("the handler's parent is %s", got)
	}
	if _, err := askDirectory(b.t.Dir(), Request{Op: "runs"}); err == nil {
		t.Error("the test is not what it is called: it has a socket")
	}
	b.until("idle", func() bool { return b.s.queue.Total() == 0 })
	if b.push("s"); b.line(at) == "" {
		t.Error("no handler after a push")
	}
	b.s.mu.Lock()
	b.s.descriptors.threads = 1
	b.s.mu.Unlock()
	b.until("open", func() bool {
		_, err := askDirectory(b.t.Dir(), Request{Op: "runs"})
		return err == nil
	})
}

// TestRenamed: a directory that gets another name below a root is served under it
// without waiting for a sweep.
func TestRenamed(t *testing.T) {
	b := newBench(t)
	root := b.path("root")
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := engine.Init(filepath.Join(root, "a")); err != nil {
		t.Fatal(err)
	}
	b.serve(Options{Roots: []string{root}, Sweep: time.Hour})
	if err := os.Rename(filepath.Join(root, "a"), filepath.Join(root, "b")); err != nil {
		t.Fatal(err)
	}
	b.until("served under the new name", func() bool {
		_, err := askDirectory(filepath.Join(root, "b"), Request{Op: "runs"})
		return err == nil && b.s.thread(filepath.Join(root, "a")) == nil
	})
}

// TestRenamedUnseen: without file notices, the next sweep does it.
func TestRenamedUnseen(t *testing.T) {
	b := newBench(t)
	root := b.path("root")
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := engine.Init(filepath.Join(root, "a")); err != nil {
		t.Fatal(err)
	}
	b.serve(Options{Roots: []string{root}, Sweep: time.Hour})
	b.s.notices.remove(root)
	if err := os.Rename(filepath.Join(root, "a"), filepath.Join(root, "b")); err != nil {
		t.Fatal(err)
	}
	b.s.sweep()
	if b.s.thread(filepath.Join(root, "b")) == nil || b.s.thread(filepath.Join(root, "a")) != nil {
		t.Error("one sweep was not enough")
	}
}

// TestRepeats: what goes wrong again and again is logged once, and then counted.
func TestRepeats(t *testing.T) {
	var log bytes.Buffer
	r := newRepeats(slog.New(slog.NewTextHandler(&log, nil)))
	for range 100 {
		r.say(slog.LevelError, "failed", "thread", "a")
	}
	r.say(slog.LevelError, "failed", "thread", "b")
	r.sum(time.Hour)
	if n := strings.Count(log.String(), "\n"); n != 2 {
		t.Errorf("%d lines:\n%s", n, log.String())
	}
	log.Reset()
	r.sum(0)
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "thread=a again=99") {
		t.Errorf("the sum is:\n%s", got)
	}
	log.Reset()
	r.sum(0)
	if r.say(slog.LevelError, "failed", "thread", "a"); !strings.Contains(log.String(), "thread=a\n") || len(r.seen) != 1 {
		t.Errorf("after a pause:\n%s", log.String())
	}
}
