//go:build linux

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// programs puts the programs next to thread that keep runs, messages and mirrors.
func (a *accounts) programs() {
	a.Helper()
	for _, name := range []string{"thread-history", "thread-outbox", "thread-sqlite"} {
		a.check(os.Link(filepath.Join(a.dir, "bin", "thread"), filepath.Join(a.dir, "bin", name)))
	}
}

// quiet is ok for a command whose dispatch is of no interest.
func (a *accounts) quiet(uid uint32, args ...string) (stdout string) {
	a.Helper()
	cmd := a.command(uid, args...)
	cmd.Env = append(cmd.Env, "THREAD_DISPATCH=none")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		a.Fatalf("%v: %v, %s", args, err, stderr.String())
	}
	return string(out)
}

// What root records in a thread of another account is that account's.
func TestHistoryByRoot(t *testing.T) {
	a := newAccounts(t)
	a.programs()
	in := []string{"--thread", a.thread}
	a.quiet(root, append([]string{"session", "start", "--id", "S"}, in...)...)
	a.quiet(root, append(append([]string{"run", "exec", "--session", "S", "--id", "X"}, in...), "--", "true")...)
	a.quiet(root, append([]string{"run", "start", "--session", "S", "--id", "R"}, in...)...)
	a.quiet(root, append([]string{"run", "beat", "R"}, in...)...)
	a.quiet(root, append([]string{"history", "prune", "--keep-last", "2"}, in...)...)
	a.quiet(root, append([]string{"history", "rebuild"}, in...)...)
	to := filepath.Join(a.dir, "copy.db")
	a.quiet(root, append([]string{"history", "mirror", "--to", to}, in...)...)
	// The owner continues.
	a.quiet(nobody, append([]string{"message", "add", "--session", "S", "--role", "user", "--content", "hi"}, in...)...)
	a.quiet(nobody, append([]string{"run", "beat", "R"}, in...)...)
	a.quiet(nobody, append([]string{"run", "end", "R", "--status", "completed"}, in...)...)
	a.quiet(nobody, append([]string{"history", "prune", "--keep-last", "1"}, in...)...)
	a.quiet(nobody, append([]string{"history", "mirror"}, in...)...)
	if list := a.foreign(); len(list) > 0 {
		t.Errorf("root left %v", list)
	}
	// Root's directory, in which the owner has nothing to make: the history is its all the same.
	own := filepath.Join(a.dir, "home", "other")
	a.quiet(nobody, "init", own)
	a.check(os.Chown(own, root, root))
	a.check(os.Chmod(own, 0o755))
	a.quiet(root, "session", "start", "--id", "S", "--thread", own)
	a.quiet(nobody, "session", "show", "S", "--thread", own)
}

// What a thread says is done, as its owner only: the handler of its outbox, and the
// places of its mirrors. Root is not an exception, as those who write the thread would get
// its rights.
func TestHistoryChosenByOwner(t *testing.T) {
	a := newAccounts(t)
	a.programs()
	ran := filepath.Join(a.dir, "home", "as")
	a.quiet(nobody, "outbox", "config", "--thread", a.thread, "--handler", "id -u >>"+ran)
	message := filepath.Join(a.dir, "message.json")
	a.check(os.WriteFile(message, []byte(`{"event_id":"e","event_type":"mention.created","occurred_at":"2026-01-01T00:00:00Z","thread_id":"t","comment_id":"c",
"target_user_id":"a","target_user_type":"agent","actor_user_id":"u","content_preview":"x","depth":1,"language":"en","action_hint":"must_reply"}`), 0o644))
	a.quiet(nobody, "outbox", "add", "--thread", a.thread, "--message", message)
	a.quiet(nobody, "session", "start", "--id", "S", "--thread", a.thread)
	a.openToAll()
	for _, uid := range []uint32{root, stranger} {
		for _, args := range [][]string{{"outbox", "relay", "--once"}, {"history", "mirror"}} {
			a.says(uid, 1, []string{"Error: ", a.thread + " belongs to nobody - run it as nobody"}, append(args, "--thread", a.thread)...)
		}
	}
	if text, err := os.ReadFile(ran); err == nil {
		t.Errorf("the handler ran as %s", text)
	}
	if _, err := os.Lstat(filepath.Join(a.thread, ".openharness")); err == nil {
		t.Error("a mirror was made")
	}
	a.quiet(nobody, "outbox", "relay", "--once", "--thread", a.thread)
	if text, err := os.ReadFile(ran); strings.TrimSpace(string(text)) != "65534" {
		t.Errorf("the handler ran as %q, %v", text, err)
	}
	a.quiet(nobody, "history", "mirror", "--thread", a.thread)
}

// Another account that may write a thread may use its history, and cannot make or take it.
func TestHistoryByAnother(t *testing.T) {
	a := newAccounts(t)
	a.programs()
	in := []string{"--thread", a.thread}
	start := append([]string{"session", "start", "--id", "S"}, in...)
	private := []string{"Error: ", "events.db: permission denied - run as a user who may read and write that directory"}
	for _, args := range [][]string{start, append([]string{"run", "list"}, in...), append([]string{"runs", "--all"}, in...), append([]string{"logs", "-c", "c"}, in...)} {
		a.says(stranger, 1, private, args...)
	}
	a.openToAll()
	a.says(stranger, 1, []string{"Error: ", a.thread + " belongs to uid 65534", "run it as that account"}, start...)
	if _, err := os.Lstat(filepath.Join(a.thread, "history")); err == nil {
		t.Error("a history was made")
	}
	a.quiet(nobody, start...)
	a.says(stranger, 1, []string{"Error: ", "history", "permission denied"}, append([]string{"session", "show", "S"}, in...)...)
	a.openToAll()
	a.quiet(stranger, append([]string{"message", "add", "--session", "S", "--role", "user", "--content", "hi"}, in...)...)
	a.says(stranger, 1, []string{"Error: ", "history belongs to uid 65534"}, append([]string{"history", "prune", "--keep-last", "1"}, in...)...)
	// It runs its own command in a recorded run, is killed, and the owner ends the run by its beat.
	cmd := a.command(stranger, append(append([]string{"run", "exec", "--id", "X"}, in...), "--", "sh", "-c", "kill -9 $PPID")...)
	_ = cmd.Run()
	beat := filepath.Join(a.thread, "history", "run", ".beat", "X")
	if info, err := os.Lstat(beat); err != nil {
		t.Fatal(err)
	} else if err := os.Chtimes(beat, info.ModTime().Add(-time.Hour), info.ModTime().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	if out := a.quiet(nobody, append([]string{"run", "recover"}, in...)...); !strings.HasPrefix(out, "X  failed") {
		t.Errorf("recovered: %q", out)
	}
	if out := a.quiet(nobody, append([]string{"message", "list", "--session", "S"}, in...)...); !strings.Contains(out, "hi") {
		t.Errorf("messages: %q", out)
	}
}
