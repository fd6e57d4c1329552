//go:build linux

package dispatch

import (
	"os"
	"strings"
	"testing"

	"thread/engine"
	"thread/event"
	"thread/lock"
)

func TestRunStartsHandler(t *testing.T) {
	b := newBench(t)
	b.subscribe(engine.Subscription{Consumer: "a/b", Handler: `echo "out $THREAD_LAST_ACKED_ID"; echo err >&2; pwd > "$D/cwd"; env > "$D/env"; ` + drain})
	b.push("s")
	b.push("s")
	b.dispatch(Options{})
	b.awaitIdle()
	if got := b.acked("a/b"); got != 2 {
		t.Errorf("acked %d, want 2", got)
	}
	if wd, _ := os.Getwd(); strings.TrimSpace(b.read("cwd")) != wd {
		t.Errorf("cwd is %q, want %q", b.read("cwd"), wd)
	}
	for _, want := range []string{"THREAD_DIR=" + b.t.Dir(), "THREAD_CONSUMER=a/b", "THREAD_LAST_ACKED_ID=0", "D=" + b.dir} {
		if !strings.Contains(b.read("env"), want+"\n") {
			t.Errorf("the environment has no %s", want)
		}
	}
	out, err := os.ReadFile(OutputPath(b.t.Dir(), "a/b"))
	if err != nil || string(out) != "out 0\nerr\n" {
		t.Errorf("the handler's log is %q, %v", out, err)
	}
	for _, want := range []string{
		"[INFO] dispatch: consumer=a/b spawned handler_cmd=\"echo",
		"[INFO] supervise: consumer=a/b run=",
		" ended: exit 0 after ",
	} {
		if !strings.Contains(b.log(), want) {
			t.Errorf("no %q in the log:\n%s", want, b.log())
		}
	}
	// Everything is free, and a free lock is all it takes to run again.
	for _, path := range []string{b.r.handlerLockPath("a/b"), b.r.supervisorLockPath("a/b"), b.r.slotPath(0)} {
		l, err := lock.Try(path, lock.Exclusive)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		l.Close()
	}
	if _, err := os.Lstat(b.r.treeLockPath("a/b")); !os.IsNotExist(err) {
		t.Errorf("tree file: %v", err)
	}
	if s := b.state("a/b"); s.Running || s.LastExit != "exit 0" || s.LastExitAt == nil || s.Failures != 0 || s.Stalled || s.Stopped {
		t.Errorf("state %+v", s)
	}
}

// Consumers are any text: also the names of files that others have in run/.
func TestConsumerNames(t *testing.T) {
	b := newBench(t)
	names := []string{"gate", "init", "thread.log", "slots", "..", "../x", "a b", "-n", "ä\n", "a.lock", "a", "%67ate", strings.Repeat("x", event.MaxNameBytes)}
	for _, name := range names {
		b.subscribe(engine.Subscription{Consumer: name, Handler: drain})
	}
	b.push("s")
	b.dispatch(Options{})
	b.awaitIdle()
	paths := map[string]bool{}
	for _, name := range names {
		if got := b.acked(name); got != 1 {
			t.Errorf("%.40q acked %d", name, got)
		}
		paths[b.r.handlerLockPath(name)] = true
	}
	if len(paths) != len(names) {
		t.Errorf("%d lock files for %d consumers", len(paths), len(names))
	}
}
