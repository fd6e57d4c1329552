//go:build linux

package dispatch

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"thread/engine"
	"thread/lock"
)

// TestForget: the files of a consumer go a week after it was unsubscribed, unless a process
// works for it, and the files of others stay.
func TestForget(t *testing.T) {
	ctx := context.Background()
	b := newBench(t)
	consumers := []string{"a.lock", "b/%", "kept", "again", "held"}
	for _, c := range consumers {
		b.subscribe(engine.Subscription{Consumer: c, Handler: "echo out; " + drain})
	}
	b.push("s")
	b.dispatch(Options{})
	b.awaitIdle()
	logs := filepath.Join(b.t.Dir(), "logs", "handlers")
	for _, c := range consumers {
		if err := os.WriteFile(filepath.Join(logs, lock.Name(c)+"-2026-01-02T03-04-05.678.log"), []byte("old\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	others := []string{filepath.Join(b.r.run, ".other.lock"), filepath.Join(b.r.run, "note.txt")}
	for _, path := range others {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range consumers {
		if c != "kept" {
			if err := b.t.Unsubscribe(ctx, c); err != nil {
				t.Fatal(err)
			}
		}
	}
	files := func(consumer string) (n int) {
		for _, dir := range []string{b.r.run, logs} {
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				if rest, ok := strings.CutPrefix(e.Name(), lock.Name(consumer)); ok && (rest[0] == '.' || rest[0] == '-') {
					n++
				}
			}
		}
		return n
	}
	now := time.Now()
	forget := func(days int) {
		t.Helper()
		if err := b.r.forget(ctx, now.Add(time.Duration(days)*24*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	forget(0)
	b.subscribe(engine.Subscription{Consumer: "again", Handler: drain})
	forget(2)
	held, err := lock.Try(b.r.handlerLockPath("held"), lock.Exclusive)
	if err != nil {
		t.Fatal(err)
	}
	forget(6)
	for _, c := range consumers {
		if files(c) < 4 {
			t.Errorf("%s has %d files after six days", c, files(c))
		}
	}
	forget(7)
	for c, stays := range map[string]bool{"a.lock": false, "b/%": false, "kept": true, "again": true, "held": true} {
		if n := files(c); stays != (n > 0) {
			t.Errorf("%s has %d files after a week", c, n)
		}
	}
	held.Close()
	forget(7) // it was looked today
	if files("held") == 0 {
		t.Error("two looks in a day")
	}
	forget(8)
	if n := files("held"); n != 0 {
		t.Errorf("%d files are left when the lock is free", n)
	}
	for _, path := range others {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}
