package jsonlog_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"thread/internal/faults"
	"thread/jsonlog"
)

// TestFailures: each system call of a push fails once: with a new file, with one that
// is healed, and with one that is rotated. The error is returned, no file stays open,
// and the next push makes every line whole.
func TestFailures(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, f *feed){
		"new": func(t *testing.T, f *feed) {},
		"healed": func(t *testing.T, f *feed) {
			f.mustPush(t, 1, "one")
			f.mustPush(t, 2, "two")
			write(t, f.path(), f.lines(2)[:len(f.lines(2))-3])
		},
		"healed behind lines of others": func(t *testing.T, f *feed) {
			f.mustPush(t, 1, "one")
			write(t, f.path(), f.lines(1)+"mine")
		},
		"rotated": func(t *testing.T, f *feed) {
			f.mustPush(t, 1, "one")
			f.at.Lines = jsonlog.MaxLines + 1
		},
	} {
		t.Run(name, func(t *testing.T) {
			faults.Each(t, syscall.EIO, nil, func(t *testing.T, fault *faults.Fault) {
				f := newFeed(t)
				prepare(t, f)
				head := int64(len(f.events))
				before := f.at
				var err error
				fault.Run(t, f.dir, func() { err = f.push(head+1, "pushed") })
				if open := faults.Open(t, f.dir); open != nil {
					t.Errorf("open are %q", open)
				}
				if fault.Hit != nil && err == nil && !osRename(fault) && *fault.Hit != (faults.Call{Name: "close", Path: "."}) {
					t.Error("no error")
				}
				if err != nil && !errors.Is(err, syscall.EIO) {
					t.Error(err)
				}
				if f.at != before && int64(len(f.events)) == head {
					t.Errorf("the position became %+v and nothing was pushed", f.at)
				}
				f.mustPush(t, int64(len(f.events))+1, "next")
				// A line of others may be cut off with a torn one of ours.
				got := strings.ReplaceAll(everything(t, f.dir), "mine\n", "")
				if sortedLines(got) != sortedLines(f.lines(head+9)) {
					t.Errorf("the files hold %q", got)
				}
			})
		})
	}
}

// osRename reports whether the failed call is the look of os.Rename at the new name. Its
// result only decides between two errors.
func osRename(f *faults.Fault) bool {
	i := slices.IndexFunc(f.Calls, func(c faults.Call) bool { return c.Name == "renameat" })
	return f.Hit.Name == "newfstatat" && i > 0 && f.Calls[i-1] == *f.Hit
}

// everything returns the lines of events.jsonl and of those that were rotated, in order.
func everything(t *testing.T, dir string) (text string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "events*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		part, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text += string(part)
	}
	return text
}

// sortedLines makes texts with the same lines equal.
func sortedLines(text string) string {
	lines := slices.Sorted(strings.Lines(text))
	return strings.Join(slices.Compact(lines), "")
}

// TestRotationOrder: what is rotated is on the disk before it has its new name, and has
// the name before there is a new file.
func TestRotationOrder(t *testing.T) {
	f := newFeed(t)
	f.mustPush(t, 1, "one")
	f.at.Lines = jsonlog.MaxLines + 1
	var fault faults.Fault
	fault.Run(t, f.dir, func() {
		if err := f.push(2, "two"); err != nil {
			t.Error(err)
		}
	})
	const rotated = "./events-20260318-120000.jsonl"
	want := []string{"openat ./events.jsonl", "fsync ./events.jsonl", "renameat ./events.jsonl", "openat " + rotated, "fsync " + rotated, "openat .", "fsync .", "openat ./events.jsonl"}
	got := fault.Names("openat", "fsync", "renameat", "write")
	got = slices.Compact(got) // a file is created in two steps
	if want = append(want, "write ./events.jsonl"); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestAppendFailures: a line that is written in part is cut off, and the line of the other
// way to write as well.
func TestAppendFailures(t *testing.T) {
	for name, write := range map[string]func(e *jsonlog.Events, text string) error{
		"line": func(e *jsonlog.Events, text string) error { return e.AppendLine([]byte(text)) },
		"lines": func(e *jsonlog.Events, text string) error {
			return e.Append(func(w io.Writer) error {
				_, err := io.WriteString(w, text)
				return err
			})
		},
	} {
		for _, errno := range []syscall.Errno{faults.Short, syscall.ENOSPC} {
			faults.Each(t, errno, []string{"write"}, func(t *testing.T, fault *faults.Fault) {
				dir := t.TempDir()
				e, err := jsonlog.OpenEvents(dir)
				if err != nil {
					t.Fatal(err)
				}
				defer e.Close()
				if err := e.AppendLine([]byte("first\n")); err != nil {
					t.Fatal(err)
				}
				fault.Run(t, dir, func() { err = write(e, "second\n") })
				text, _ := os.ReadFile(filepath.Join(dir, "events.jsonl"))
				if fault.Hit != nil && (!errors.Is(err, syscall.ENOSPC) || string(text) != "first\n") {
					t.Errorf("%s: %q, %v", name, text, err)
				}
				if fault.Hit == nil && (err != nil || string(text) != "first\nsecond\n") {
					t.Errorf("%s: %q, %v", name, text, err)
				}
			})
		}
		// Where the file cannot be cut either, both errors are returned.
		for _, call := range []string{"ftruncate", "fstat"} {
			dir := t.TempDir()
			e, err := jsonlog.OpenEvents(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			fault := faults.Fault{At: 1, Errno: faults.Short, Only: []string{"write"}, Then: []string{call}}
			fault.Run(t, dir, func() { err = write(e, "second\n") })
			if needed := call == "ftruncate" || name == "line"; !errors.Is(err, syscall.ENOSPC) || needed != errors.Is(err, syscall.EROFS) {
				t.Errorf("%s without %s: %v", name, call, err)
			}
		}
	}
}

// fullLog makes a logs/thread.log that is rotated with the next line.
func fullLog(t *testing.T) (dir string, lines int) {
	t.Helper()
	dir = t.TempDir()
	for _, sub := range []string{"logs", "run"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(dir, "logs", "thread.log"), strings.Repeat("[2006-01-02T15:04:05.000Z] [INFO] old\n", jsonlog.MaxLines+1))
	return dir, jsonlog.MaxLines + 1
}

// TestLogFailures: each system call fails while a line is written to a log that is
// full. Without an error the line is there, once.
func TestLogFailures(t *testing.T) {
	faults.Each(t, syscall.EIO, nil, func(t *testing.T, fault *faults.Fault) {
		dir, old := fullLog(t)
		l := jsonlog.OpenLog(dir)
		var err error
		fault.Run(t, dir, func() { err = l.Warn("new") })
		if open := faults.Open(t, dir); open != nil {
			t.Errorf("open are %q", open)
		}
		text := ""
		paths, _ := filepath.Glob(filepath.Join(dir, "logs", "*"))
		for _, path := range paths {
			part, _ := os.ReadFile(path)
			text += string(part)
		}
		if n := strings.Count(text, " old\n"); n != old {
			t.Errorf("%d lines of %d are there", n, old)
		}
		if n := strings.Count(text, "] [WARN] new\n"); n > 1 || n == 0 && err == nil {
			t.Errorf("the line is there %d times, %v", n, err)
		}
		if fault.Hit == nil {
			if err != nil || len(paths) != 2 {
				t.Errorf("%q, %v", paths, err)
			}
			return
		}
		// A lock that cannot be had, or a log that cannot be read, is left for the next line.
		later := osRename(fault) || strings.HasPrefix(fault.Hit.Path, "./run") && !slices.Contains([]string{"write", "pwrite64"}, fault.Hit.Name) ||
			fault.Hit.Name == "close" || fault.Hit.Name == "fstat" || fault.Hit.Name == "openat"
		if err == nil && !later {
			t.Error("no error")
		}
		if err != nil && !errors.Is(err, syscall.EIO) {
			t.Error(err)
		}
	})
}

// TestLogFailuresNew: each system call fails while the first line of a log is written.
func TestLogFailuresNew(t *testing.T) {
	faults.Each(t, syscall.EIO, nil, func(t *testing.T, fault *faults.Fault) {
		dir := t.TempDir()
		l := jsonlog.OpenLog(dir)
		var err error
		fault.Run(t, dir, func() { err = l.Info("new") })
		if open := faults.Open(t, dir); open != nil {
			t.Errorf("open are %q", open)
		}
		// The size of the log decides whether it is rotated, and that can wait.
		later := fault.Hit != nil && (*fault.Hit == faults.Call{Name: "close", Path: "./logs"} || *fault.Hit == faults.Call{Name: "fstat", Path: "./logs/thread.log"})
		if !later && (fault.Hit != nil) != errors.Is(err, syscall.EIO) {
			t.Errorf("%v, after %v", err, fault.Calls)
		}
	})
}

// TestLogLevels: a line without room for it is an error at every level.
func TestLogLevels(t *testing.T) {
	dir := t.TempDir()
	l := jsonlog.OpenLog(dir)
	for level, log := range map[string]func(string, ...any) error{"DEBUG": l.Debug, "INFO": l.Info, "WARN": l.Warn, "ERROR": l.Error} {
		if err := log("%s", "a\x00\x1f !~\x7f\u0080\u009f\u00a0\u00a1é"); err != nil {
			t.Error(err)
		}
		text, err := os.ReadFile(filepath.Join(dir, "logs", "thread.log"))
		if want := "] [" + level + `] a\x00\x1f !~\x7f\u0080\u009f` + "\u00a0\u00a1é\n"; err != nil || !strings.HasSuffix(string(text), want) {
			t.Errorf("%q, want %q, %v", text, want, err)
		}
		failure := faults.Fault{At: 1, Errno: syscall.ENOSPC, Only: []string{"write"}}
		failure.Run(t, dir, func() { err = log("x") })
		if !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%s: %v", level, err)
		}
	}
}

// TestLogNote: what run/.thread.log says is a help for counting and no more. A note that
// is not one, or is about more than the file has, counts from the first line.
func TestLogNote(t *testing.T) {
	size := int64(len("[2006-01-02T15:04:05.000Z] [INFO] old\n"))
	for _, tt := range []struct {
		note    string
		rotated bool
	}{
		{"", true}, {"x", true}, {"x y", true}, {"1 x", true}, {"x 1", true}, {"-38 1", true}, {"38 -1", true}, {"38", true}, {"38 1 1", true},
		{"38 x 1", true}, {"0 0", true}, {"38 1", true}, {"38 0", false}, {"0 -1", true}, {"-1 0", true},
		{fmt.Sprint(10*size, " x"), true}, {fmt.Sprint("x ", 10*size), true}, {fmt.Sprint(10*size, " -1"), true}, {fmt.Sprint(10*size, " 10"), true}, {fmt.Sprint(10*size, " 9"), false}, {fmt.Sprint(10*size, " 0"), false},
		{fmt.Sprint((jsonlog.MaxLines+1)*size, " 10001"), true}, {fmt.Sprint((jsonlog.MaxLines+1)*size, " 10000"), false},
		{fmt.Sprint((jsonlog.MaxLines+1)*size+1, " 1"), true},
	} {
		dir, _ := fullLog(t)
		note := filepath.Join(dir, "run", ".thread.log")
		write(t, note, tt.note)
		if err := jsonlog.OpenLog(dir).Info("new"); err != nil {
			t.Fatal(err)
		}
		paths, err := filepath.Glob(filepath.Join(dir, "logs", "*"))
		if err != nil || (len(paths) == 2) != tt.rotated {
			t.Errorf("%q: %q, %v, want rotated: %v", tt.note, paths, err, tt.rotated)
		}
		text, err := os.ReadFile(note)
		fields := strings.Fields(string(text))
		if err != nil || tt.rotated && (len(fields) < 2 || fields[0] != "0" || fields[1] != "0") {
			t.Errorf("%q became %q, %v", tt.note, text, err)
		}
		if !tt.rotated && (len(fields) < 2 || fields[0] != fmt.Sprint((jsonlog.MaxLines+1)*size)) {
			t.Errorf("%q became %q", tt.note, text)
		}
	}
}

// TestLogLimits: a log of exactly 10000 lines, and one too small to be counted, stay.
func TestLogLimits(t *testing.T) {
	const short = "[2006-01-02T15:04:05.000Z] [INFO] \n" // the shortest line there is
	for _, tt := range []struct {
		text    string
		rotated bool
	}{
		{strings.Repeat(short, jsonlog.MaxLines), false},
		{strings.Repeat(short, jsonlog.MaxLines+1), true},
		{strings.Repeat("\n", jsonlog.MaxLines+1), false},
		{strings.Repeat("\n", len(short)*jsonlog.MaxLines-1), false},
		{strings.Repeat("\n", len(short)*jsonlog.MaxLines), true},
		{strings.Repeat("x", len(short)*jsonlog.MaxLines) + "\n", false},
	} {
		dir, _ := fullLog(t)
		write(t, filepath.Join(dir, "logs", "thread.log"), tt.text)
		if err := jsonlog.OpenLog(dir).Info("new"); err != nil {
			t.Fatal(err)
		}
		paths, err := filepath.Glob(filepath.Join(dir, "logs", "*"))
		if err != nil || (len(paths) == 2) != tt.rotated {
			t.Errorf("%d bytes of %.10q: %q, %v, want rotated: %v", len(tt.text), tt.text, paths, err, tt.rotated)
		}
	}
}

// TestLogWithoutRun: without a place for the lock of the rotation, lines go to the full
// log.
func TestLogWithoutRun(t *testing.T) {
	dir, old := fullLog(t)
	if err := os.Remove(filepath.Join(dir, "run")); err != nil {
		t.Fatal(err)
	}
	if err := jsonlog.OpenLog(dir).Info("new"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "logs", "thread.log"))
	if err != nil || strings.Count(string(text), "\n") != old+1 {
		t.Errorf("%d lines, %v", strings.Count(string(text), "\n"), err)
	}
}

// TestDropFailures: each system call fails while rotated files are dropped. The error
// is returned, the files that stay are dropped the next time, and the others never.
func TestDropFailures(t *testing.T) {
	since := time.Now()
	faults.Each(t, syscall.EIO, nil, func(t *testing.T, fault *faults.Fault) {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, "logs", "handlers"), 0o700); err != nil {
			t.Fatal(err)
		}
		old := []string{"events-20260101-000000.jsonl", "events-20260102-000000-1.jsonl", "logs/thread-20260101-000000.log", "logs/handlers/a-2026-01-01T00-00-00.000.log"}
		for _, name := range append(old, "events.jsonl") {
			write(t, filepath.Join(dir, name), `{"id":9,"created_at":"x"}`+"\n")
			if err := os.Chtimes(filepath.Join(dir, name), since, since.Add(-time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		var err error
		fault.Run(t, dir, func() { err = jsonlog.DropRotated(dir, 10, since) })
		if open := faults.Open(t, dir); open != nil {
			t.Errorf("open are %q", open)
		}
		left := 0
		for _, name := range old {
			if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
				left++
			}
		}
		switch {
		case fault.Hit == nil && (err != nil || left > 0):
			t.Errorf("%d are left, %v", left, err)
		case fault.Hit != nil && fault.Hit.Name != "close" && !errors.Is(err, syscall.EIO):
			t.Errorf("%d are left, %v", left, err)
		}
		if err := jsonlog.DropRotated(dir, 10, since); err != nil {
			t.Error(err)
		}
		paths, _ := filepath.Glob(filepath.Join(dir, "*.jsonl"))
		if logs, _ := filepath.Glob(filepath.Join(dir, "logs", "*", "*")); len(paths) != 1 || len(logs) != 0 {
			t.Errorf("%q and %q are left", paths, logs)
		}
	})
}

// TestDropGone: a file that another process has dropped meanwhile is not an error.
func TestDropGone(t *testing.T) {
	for _, call := range []string{"openat", "unlinkat", "newfstatat"} {
		dir := t.TempDir()
		for at := range 4 {
			write(t, filepath.Join(dir, "events-20260101-000000.jsonl"), `{"id":1,"created_at":"x"}`+"\n")
			var err error
			fault := faults.Fault{At: at, Errno: syscall.ENOENT, Only: []string{call}}
			fault.Run(t, dir, func() { err = jsonlog.DropRotated(dir, 0, time.Time{}) })
			if err != nil {
				t.Errorf("%v: %v", fault.Hit, err)
			}
			fault.Run(t, dir, func() { err = jsonlog.DropRotated(dir, 2, time.Time{}) })
			if err != nil {
				t.Errorf("%v: %v", fault.Hit, err)
			}
		}
	}
}

// TestDropLastLine: the last line decides, wherever it begins.
func TestDropLastLine(t *testing.T) {
	line := func(id, bytes int) string {
		text := fmt.Sprintf(`{"id":%d,"created_at":"x","content":"`, id)
		return text + strings.Repeat("x", max(0, bytes-len(text)-3)) + "\"}\n"
	}
	for _, size := range []int{1, piece - 2, piece - 1, piece, piece + 1, piece + 2, 2*piece - 1, 2 * piece, 2*piece + 1, 2*piece + 2} {
		for _, first := range []string{"", line(1, piece-10)} {
			for _, tt := range []struct {
				id   int
				stay bool
			}{{8, false}, {9, true}, {1, false}, {0, true}, {-1, true}} {
				if size > 1 && tt.id < 8 {
					continue
				}
				dir := t.TempDir()
				path := filepath.Join(dir, "events-20260101-000000.jsonl")
				write(t, path, first+line(tt.id, size))
				if err := jsonlog.DropRotated(dir, 9, time.Time{}); err != nil {
					t.Fatal(err)
				}
				if _, err := os.Stat(path); (err == nil) != tt.stay {
					t.Fatalf("a last line of %d bytes with id %d behind %d: %v", size, tt.id, len(first), err)
				}
			}
		}
	}
}

// TestDropNames: only names that a rotation gives.
func TestDropNames(t *testing.T) {
	dir := t.TempDir()
	logs := filepath.Join(dir, "logs")
	if err := os.Mkdir(logs, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, drop := range map[string]bool{
		"a-2026-01-01T00-00-00.000.log": true, "-2026-01-01T00-00-00.000.log": false, "2026-01-01T00-00-00.000.log": false, "a2026-01-01T00-00-00.000.log": false,
		"a-2026-13-01T00-00-00.000.log": false, "a-2026-01-01T00-00-00.000": false, "a-2026-01-01T00-00-00.000-1.log": false,
		"a-20260101-000000.log": true, "-20260101-000000.log": false, "20260101-000000.log": false, "a20260101-000000.log": false, "a-20261301-000000.log": false,
		"a-20260101-000000-1.log": true, "a-20260101-000000-10.log": true, "-20260101-000000-1.log": false, "a-20260101-000000-.log": false, "a-20260101-000000-1-2.log": false,
		"a-20260101-000000-x.log": false, "a-20260101-0000001.log": false, "a-b-20260101-000000.log": true, "a-1.log": false, "a.log": false, "1.log": false, ".log": false,
	} {
		path := filepath.Join(logs, name)
		write(t, path, "x\n")
		if err := jsonlog.DropRotated(dir, 1, time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path); (err != nil) != drop {
			t.Errorf("%s: %v, want dropped: %v", name, err, drop)
		}
	}
}
