package jsonlog

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"thread/internal/faults"
)

// TestSetAside: a file with lines gets the name of a rotated one and keeps them, an empty one
// goes, and what is not a file stays.
func TestSetAside(t *testing.T) {
	at := time.Date(2026, 3, 18, 10, 30, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		make func(path string) error
		off  bool // there is no events.jsonl then
		kept int  // files with lines
	}{
		"none":        {func(string) error { return nil }, true, 0},
		"empty":       {func(path string) error { return os.WriteFile(path, nil, 0o600) }, true, 0},
		"with a line": {func(path string) error { return os.WriteFile(path, []byte("line\n"), 0o600) }, true, 1},
		"a directory": {func(path string) error { return os.Mkdir(path, 0o700) }, false, 0},
		"a link":      {func(path string) error { return os.Symlink("nowhere", path) }, false, 0},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "events.jsonl")
		if err := tt.make(path); err != nil {
			t.Fatal(err)
		}
		if off := name == "none"; Off(dir) != off {
			t.Errorf("%s: off is %v", name, !off)
		}
		for range 2 {
			if err := SetAside(dir, at); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if Off(dir) != tt.off {
			t.Errorf("%s: off is %v", name, !tt.off)
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		kept := 0
		for _, e := range entries {
			if text, _ := os.ReadFile(filepath.Join(dir, e.Name())); string(text) == "line\n" {
				kept++
			}
		}
		files := tt.kept
		if !tt.off {
			files++
		}
		if kept != tt.kept || len(entries) != files {
			t.Errorf("%s: %d files, of which %d have the line", name, len(entries), kept)
		}
	}
}

// TestFailuresOfSetAside: each system call fails once. The line is in one file all the same,
// and without an error that has another name.
func TestFailuresOfSetAside(t *testing.T) {
	faults.Each(t, syscall.EIO, nil, func(t *testing.T, f *faults.Fault) {
		dir := faults.Dir(t)
		path := filepath.Join(dir, "events.jsonl")
		if err := os.WriteFile(path, []byte("line\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		var err error
		f.Run(t, dir, func() { err = SetAside(dir, time.Now()) })
		entries, rerr := os.ReadDir(dir)
		if rerr != nil || len(entries) != 1 {
			t.Fatalf("%v, %v", entries, rerr)
		}
		if text, _ := os.ReadFile(filepath.Join(dir, entries[0].Name())); string(text) != "line\n" {
			t.Errorf("%s has %q", entries[0].Name(), text)
		}
		if aside := entries[0].Name() != "events.jsonl"; !aside && err == nil || f.Hit == nil && err != nil || f.Hit != nil && err == nil && f.Hit.Name != "close" && f.Hit.Name != "newfstatat" { // os.Rename looks as well
			t.Errorf("it is %s, and the error %v", entries[0].Name(), err)
		}
		if err != nil && !errors.Is(err, syscall.EIO) {
			t.Error(err)
		}
		if open := faults.Open(t, dir); open != nil {
			t.Errorf("open are %q", open)
		}
	})
}

// TestShortLine: of a line that cannot be written as a whole nothing stays, however little was
// written.
func TestShortLine(t *testing.T) {
	for _, line := range []string{"x\n", "xy\n", "a longer line\n"} {
		dir := faults.Dir(t)
		e, err := OpenEvents(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		if err := e.AppendLine([]byte("first\n")); err != nil {
			t.Fatal(err)
		}
		f := faults.Fault{At: 1, Errno: faults.Short, Only: []string{"write"}}
		f.Run(t, dir, func() { err = e.AppendLine([]byte(line)) })
		if text, _ := os.ReadFile(filepath.Join(dir, "events.jsonl")); !errors.Is(err, syscall.ENOSPC) || string(text) != "first\n" {
			t.Errorf("%q: %q, %v", line, text, err)
		}
	}
}
