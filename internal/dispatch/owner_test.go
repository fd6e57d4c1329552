//go:build linux

package dispatch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"thread/engine"
)

// What counts is the file that is open: a database that another process puts in the place
// of the one that was looked at is not used.
func TestOwnFile(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make another account's file")
	}
	dir := filepath.Join(t.TempDir(), "thread")
	if _, err := engine.Init(dir); err != nil {
		t.Fatal(err)
	}
	thread, err := engine.Open(dir, OwnFile(dir))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := thread.Due(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(filepath.Join(dir, "events.db"), 65534, 65534); err != nil {
		t.Fatal(err)
	}
	var foreign *OwnerError
	if _, err := thread.Due(context.Background()); !errors.As(err, &foreign) || foreign.Owner != "nobody" {
		t.Errorf("%v", err)
	}
}

// A note of trouble that has ended warns no process.
func TestTroubleIsOver(t *testing.T) {
	b := newBench(t)
	if err := b.r.prepare(); err != nil {
		t.Fatal(err)
	}
	gone := b.path("gone")
	if err := replaceFile(b.r.troublePath(), []byte(gone+"\n")); err != nil {
		t.Fatal(err)
	}
	if err := b.r.trouble(); err != nil {
		t.Error(err)
	}
	if err := newSupervisor(b.r).wake(context.Background(), ""); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(b.r.troublePath()); err == nil {
		t.Error("the note is left")
	}
}
