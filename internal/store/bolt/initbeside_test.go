//go:build linux

package bolt_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"thread/engine"
	"thread/event"
	"thread/internal/faults"
	"thread/lock"
)

// TestInitBesideInit: of two that make a thread of one directory, the second one finds what
// the first has made, though it was not there when the second began.
func TestInitBesideInit(t *testing.T) {
	dir := filepath.Join(faults.Dir(t), "t")
	must(t, os.MkdirAll(filepath.Join(dir, "run"), 0o700))
	first, err := lock.Open(ctx, filepath.Join(dir, "run", ".init"), lock.Exclusive)
	must(t, err)
	second := make(chan error, 1)
	go func() {
		_, err := engine.Init(dir)
		second <- err
	}()
	for { // it has looked for a database before it makes logs
		if _, err := os.Stat(filepath.Join(dir, "logs")); err == nil {
			break
		}
		select {
		case err := <-second:
			t.Fatalf("it does not wait: %v", err)
		default:
			runtime.Gosched()
		}
	}
	path := filepath.Join(dir, "events.db")
	must(t, os.WriteFile(path, []byte("first"), 0o600))
	must(t, first.Close())
	if err := <-second; !errors.Is(err, engine.ErrExists) {
		t.Errorf("got %v", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "first" {
		t.Errorf("events.db is %q, %v", text, err)
	}
}

// TestBatchOnAFullDisk: a long batch that finds no room for its copy is an error, at each
// write of the copy. Nothing is stored, and nothing stays.
func TestBatchOnAFullDisk(t *testing.T) {
	dir := filepath.Join(faults.Dir(t), "t")
	th, err := engine.Init(dir)
	must(t, err)
	defer th.Close()
	drafts := func(yield func(event.Draft, error) bool) {
		for range 40 {
			if !yield(event.Draft{Source: "s", Type: "t", Content: strings.Repeat("x", 1<<20)}, nil) {
				return
			}
		}
	}
	for at := 1; at <= 4; at++ {
		f := &faults.Fault{At: at, Errno: syscall.ENOSPC, Only: []string{"write"}}
		f.Run(t, dir, func() { _, err = th.PushAll(ctx, drafts) })
		if f.Hit == nil || !errors.Is(err, syscall.ENOSPC) || !strings.HasPrefix(f.Hit.Path, "./run/batch-") {
			t.Errorf("write %d: %v, %v", at, f.Hit, err)
		}
		left, err := filepath.Glob(filepath.Join(dir, "run", "batch-*"))
		if len(left) > 0 || err != nil || faults.Open(t, dir) != nil {
			t.Errorf("left are %q, open %q, %v", left, faults.Open(t, dir), err)
		}
		if info, err := th.Info(ctx); err != nil || info.Stored != 0 {
			t.Errorf("%d events are stored, %v", info.Stored, err)
		}
	}
}
