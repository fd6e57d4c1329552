package jsonlog

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"
)

func newLog(t *testing.T) (*Log, string) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "run"), 0o700); err != nil {
		t.Fatal(err)
	}
	return OpenLog(dir), dir
}

func TestLogLine(t *testing.T) {
	l, dir := newLog(t)
	l.now = func() time.Time { return time.UnixMilli(1773829800123) }
	if err := l.Info("push: source=%s type=%s id=%d", "a\nb\x1b[31m\u009b", "<é>", 7); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "logs", "thread.log"))
	want := `[2026-03-18T10:30:00.123Z] [INFO] push: source=a\nb\x1b[31m\u009b type=<é> id=7` + "\n"
	if err != nil || string(got) != want {
		t.Errorf("got %q, want %q, %v", got, want, err)
	}
}

// TestLogRotation: with many writers at once every line is in exactly one file,
// no file holds many more than the limit, and deleting run/ does no harm.
// T-72.
func TestLogRotation(t *testing.T) {
	l, dir := newLog(t)
	const writers, each = 4, 6000
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				if w == 0 && i == each/2 {
					os.RemoveAll(filepath.Join(dir, "run"))
					os.Mkdir(filepath.Join(dir, "run"), 0o700)
				}
				if err := l.Warn("writer %d line %d", w, i); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	files, err := filepath.Glob(filepath.Join(dir, "logs", "thread*.log"))
	if err != nil || len(files) < 3 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	name := regexp.MustCompile(`^thread(-\d{8}-\d{6}(-\d+)?)?\.log$`)
	seen := map[string]int{}
	for _, f := range files {
		if !name.MatchString(filepath.Base(f)) {
			t.Errorf("named %s", filepath.Base(f))
		}
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		lines := bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
		if len(lines) > MaxLines+1000 { // others continue to write while one rotates
			t.Errorf("%s holds %d lines", f, len(lines))
		}
		for _, line := range lines {
			_, msg, _ := bytes.Cut(line, []byte("[WARN] "))
			seen[string(msg)]++
		}
	}
	for w := range writers {
		for i := range each {
			if n := seen[fmt.Sprintf("writer %d line %d", w, i)]; n != 1 {
				t.Fatalf("writer %d line %d is there %d times", w, i, n)
			}
		}
	}
}

// TestExactlyFull: a file with 10001 lines is moved aside for the next line, which
// is in the new one.
func TestExactlyFull(t *testing.T) {
	l, dir := newLog(t)
	count := func() int {
		files, err := filepath.Glob(filepath.Join(dir, "logs", "thread*.log"))
		if err != nil {
			t.Fatal(err)
		}
		return len(files)
	}
	for range MaxLines + 1 {
		if err := l.Info("x"); err != nil {
			t.Fatal(err)
		}
	}
	if n := count(); n != 1 {
		t.Fatalf("%d files with %d lines", n, MaxLines+1)
	}
	if err := l.Info("y"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "logs", "thread.log"))
	if n := count(); n != 2 || err != nil || bytes.Count(text, []byte{'\n'}) != 1 || !bytes.HasSuffix(text, []byte(" y\n")) {
		t.Fatalf("%d files with %d lines, the newest holds %q, %v", n, MaxLines+2, text, err)
	}
}

// TestRotatedNamesRise: the name of a file that was set aside is not given to a
// newer one, which would sort before the files of the same second.
func TestRotatedNamesRise(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	at := time.Date(2026, 3, 18, 10, 30, 0, 0, time.UTC)
	for n, want := range []string{"events-20260318-103000.jsonl", "events-20260318-103000-1.jsonl", "events-20260318-103000-2.jsonl"} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		name, err := rotateFile(path, at)
		if err != nil || filepath.Base(name) != want {
			t.Fatal(name, err)
		}
		if n == 0 {
			err = os.Rename(name, name+".bad")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
