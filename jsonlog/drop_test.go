package jsonlog

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"thread/internal/faults"
)

// TestDropRotated: what was rotated goes when its events are gone, and nothing else.
func TestDropRotated(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "logs", "handlers"), 0o700); err != nil {
		t.Fatal(err)
	}
	line := func(id string) string {
		return `{"id":` + id + `,"created_at":"2026-01-01T00:00:00Z","content":"x"}` + "\n"
	}
	since := time.Now()
	for name, file := range map[string]struct {
		text string
		age  time.Duration
		stay bool
	}{
		"events.jsonl":                                {text: line("1"), stay: true},
		"events-20260101-000000.jsonl":                {text: line("1") + line("9")},
		"events-20260101-000000-3.jsonl":              {text: line("1") + strings.Repeat("x", 1<<20) + "\n" + line("9")},
		"events-20260102-000000.jsonl":                {text: line("9") + line("10"), stay: true},
		"events-20260103-000000.jsonl":                {text: "mine\n", stay: true},
		"events-20260104-000000.jsonl":                {stay: true},
		"events-20260101-000000.jsonl.bad":            {text: line("1"), stay: true},
		"events-mine.jsonl":                           {text: line("1"), stay: true},
		"others-20260101-000000.jsonl":                {text: line("1"), stay: true},
		"logs/thread.log":                             {age: time.Hour, stay: true},
		"logs/thread-20260101-000000.log":             {age: time.Hour},
		"logs/thread-20260101-000000-1.log":           {age: -time.Hour, stay: true},
		"logs/mine-2026.log":                          {age: time.Hour, stay: true},
		"logs/handlers/a.log":                         {age: time.Hour, stay: true},
		"logs/handlers/a.run":                         {age: time.Hour, stay: true},
		"logs/handlers/a-2026-01-01T00-00-00.000.log": {age: time.Hour},
		"logs/handlers/b-2026-01-01T00-00-00.000.log": {age: -time.Hour, stay: true},
	} {
		path := filepath.Join(dir, name)
		at := since.Add(-file.age)
		if err := os.WriteFile(path, []byte(file.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if _, err := os.Stat(path); (err == nil) != file.stay {
				t.Errorf("%s: %v, stay is %v", name, err, file.stay)
			}
		}()
	}
	link := filepath.Join(dir, "events-20260105-000000.jsonl")
	if err := os.Symlink("events.jsonl", link); err != nil {
		t.Fatal(err)
	}
	if err := DropRotated(dir, 10, since); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(link); err != nil {
		t.Error(err)
	}
	if err := DropRotated(filepath.Join(dir, "none"), 10, since); err != nil {
		t.Error(err)
	}
}

// TestDropOldestFails: a file that cannot be deleted is reported, and the others are deleted.
func TestDropOldestFails(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a-20260101-000000.log", "a-20260102-000000.log"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f := faults.Fault{At: 1, Errno: syscall.EIO, Only: []string{"unlinkat"}}
	var err error
	f.Run(t, dir, func() { err = dropOldest(filepath.Join(dir, "a.log"), 0) })
	left, globErr := filepath.Glob(filepath.Join(dir, "*"))
	if !errors.Is(err, syscall.EIO) || len(left) != 1 || globErr != nil {
		t.Errorf("%v, left are %q, %v", err, left, globErr)
	}
}

// TestDropOldest: of the rotated files of one log the newest stay, and nothing else goes.
func TestDropOldest(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	for i, name := range []string{"thread-20260101-000000.log", "thread-20260102-000000.log", "thread-20260102-000000-1.log", "thread-20260103-000000.log",
		"other-20260101-000000.log", "thread.log", "thread-mine.log"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		at := now.Add(time.Duration(i-10) * time.Hour)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := dropOldest(filepath.Join(dir, "thread.log"), 2); err != nil {
			t.Fatal(err)
		}
		var left []string
		entries, err := os.ReadDir(dir)
		for _, e := range entries {
			left = append(left, e.Name())
		}
		if want := "other-20260101-000000.log thread-20260102-000000-1.log thread-20260103-000000.log thread-mine.log thread.log"; strings.Join(left, " ") != want {
			t.Errorf("%q are left, %v", left, err)
		}
	}
}
