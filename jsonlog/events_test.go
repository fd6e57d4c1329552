package jsonlog_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"thread/event"
	"thread/jsonlog"
)

var noon = time.Date(2026, 3, 18, 12, 0, 0, 0, time.UTC)

// feed is a database of events and its events.jsonl.
type feed struct {
	dir    string
	events []*event.Event // in id order
	at     jsonlog.Position
	after  int64 // id after which Prepare asked for missing events, -1 when it asked for none
}

func newFeed(t *testing.T) *feed { return &feed{dir: t.TempDir()} }

func (f *feed) path() string { return filepath.Join(f.dir, "events.jsonl") }

// store stores an event that the file does not have yet.
func (f *feed) store(id int64, content string) *event.Event {
	e := &event.Event{ID: id, CreatedAt: "2026-03-18T10:30:00.123Z", Source: "self", Type: "message", Content: content}
	f.events = append(f.events, e)
	return e
}

func line(e *event.Event) string { return string(e.AppendJSON(nil)) + "\n" }

// lines returns the lines of the events up to and including head.
func (f *feed) lines(head int64) string {
	var b strings.Builder
	for _, e := range f.events {
		if e.ID <= head {
			b.WriteString(line(e))
		}
	}
	return b.String()
}

func (f *feed) missing(after int64, emit func(*event.Event) error) error {
	f.after = after
	for _, e := range f.events {
		if e.ID <= after {
			continue
		}
		if err := emit(e); err != nil {
			return err
		}
	}
	return nil
}

// prepare opens the file as a push does before it appends.
func (f *feed) prepare(head int64) (err error) {
	e, err := jsonlog.OpenEvents(f.dir)
	if err != nil {
		return err
	}
	f.after = -1
	f.at, err = e.Prepare(f.at, head, noon, f.missing)
	if cerr := e.Close(); err == nil {
		err = cerr
	}
	return err
}

// push stores an event and appends its line. The position is stored before the line.
func (f *feed) push(id int64, content string) (err error) {
	e, err := jsonlog.OpenEvents(f.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	at, err := e.Prepare(f.at, id-1, noon, f.missing)
	if err != nil {
		return err
	}
	text := line(f.store(id, content))
	at.Add(id, len(text))
	f.at = at
	return e.AppendLine([]byte(text))
}

func (f *feed) mustPush(t *testing.T, id int64, content string) {
	t.Helper()
	if err := f.push(id, content); err != nil {
		t.Fatal(err)
	}
}

func (f *feed) text(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(f.path())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// heal prepares the file for the event after head and compares it with want. The
// position must be the position of the file.
func (f *feed) heal(t *testing.T, head int64, want, what string) {
	t.Helper()
	if err := f.prepare(head); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if got := f.text(t); got != want {
		t.Fatalf("%s: the file is %q, want %q", what, got, want)
	}
	if f.at.Size != int64(len(want)) || f.at.Lines != int64(strings.Count(want, "\n")) {
		t.Fatalf("%s: the position is %+v of %d bytes and %d lines", what, f.at, len(want), strings.Count(want, "\n"))
	}
}

// TestHealCut: the file is cut within every line and next to its ends, behind lines that are not ours and
// behind none. Our lines are complete again, and a foreign line stays unless it was cut.
func TestHealCut(t *testing.T) {
	for _, foreign := range []string{"", "mine\n", "mine", "{\"id\":2,\"created_at\":\"mine\"}\n"} {
		f := newFeed(t)
		write(t, f.path(), foreign)
		for id := int64(3); id <= 5; id++ {
			f.mustPush(t, id, fmt.Sprint("event ", id))
		}
		kept := foreign
		if kept != "" && !strings.HasSuffix(kept, "\n") {
			kept += "\n"
		}
		whole := kept + f.lines(5)
		if got := f.text(t); got != whole {
			t.Fatalf("behind %q: %q, want %q", foreign, got, whole)
		}
		at := f.at
		if want := (jsonlog.Position{Size: int64(len(whole)), Lines: int64(strings.Count(whole, "\n")), Base: int64(len(kept)), First: 3}); at != want {
			t.Fatalf("behind %q: %+v, want %+v", foreign, at, want)
		}
		for cut := 0; cut <= len(whole); cut++ {
			// Most of the places within a line are alike.
			if near := whole[max(0, cut-3):min(cut+3, len(whole))]; !strings.Contains(near, "\n") && cut > 3 && cut%17 != 0 {
				continue
			}
			write(t, f.path(), whole[:cut])
			f.at = at
			want := whole
			if cut < len(kept) {
				want = f.lines(5) // of the foreign line a part is of no use
			}
			what := fmt.Sprintf("behind %q, cut at %d of %d", foreign, cut, len(whole))
			f.heal(t, 5, want, what)
			if rest := strings.TrimPrefix(whole, kept); cut >= len(kept) && cut < len(whole) {
				intact := int64(strings.Count(rest[:cut-len(kept)], "\n")) // lines are not written twice
				if f.after != 2+intact {
					t.Fatalf("%s: events after %d were read again, want after %d", what, f.after, 2+intact)
				}
			}
			if cut == len(whole) && f.after != -1 {
				t.Fatalf("%s: events were read for a file that is whole", what)
			}
			f.mustPush(t, 6, "next")
			if got := f.text(t); got != want+f.lines(6)[len(f.lines(5)):] {
				t.Fatalf("%s: after the next push it is %q", what, got)
			}
			f.events = f.events[:3]
		}
	}
}

// TestHealLong: lines longer than the pieces in which the end is read. The cut is next
// to where a line or a piece begins.
func TestHealLong(t *testing.T) {
	f := newFeed(t)
	const piece = 64 << 10
	f.mustPush(t, 1, strings.Repeat("a", 5*piece))
	f.mustPush(t, 2, "short")
	f.mustPush(t, 3, strings.Repeat("c", piece-len(line(&event.Event{ID: 3, CreatedAt: "2026-03-18T10:30:00.123Z", Source: "self", Type: "message"}))))
	f.mustPush(t, 4, strings.Repeat("d\n", piece))
	whole, at := f.text(t), f.at
	var cuts []int
	end := 0
	for _, l := range strings.SplitAfter(whole, "\n") {
		for _, near := range []int{end, end + piece, end + 5*piece, end + len(l)/2} {
			cuts = append(cuts, near-2, near-1, near, near+1, near+2)
		}
		end += len(l)
	}
	for _, cut := range cuts {
		if cut < 0 || cut > len(whole) {
			continue
		}
		write(t, f.path(), whole[:cut])
		f.at = at
		f.heal(t, 4, whole, fmt.Sprintf("cut at %d", cut))
		if intact := int64(strings.Count(whole[:cut], "\n")); cut < len(whole) && f.after != intact {
			t.Fatalf("cut at %d: events after %d were read again, want after %d", cut, f.after, intact)
		}
	}
}

// TestHealForeignEnd: what others appended stays, with an end of its line.
func TestHealForeignEnd(t *testing.T) {
	for _, more := range []string{"x", "x\n", "\n", "x\ny", `{"id":9,"created_at":"x"}` + "\n", `{"id":9`} {
		f := newFeed(t)
		f.mustPush(t, 1, "one")
		f.mustPush(t, 2, "two")
		write(t, f.path(), f.text(t)+more)
		want := f.lines(2) + more
		if !strings.HasSuffix(want, "\n") {
			want += "\n"
		}
		f.heal(t, 2, want, fmt.Sprintf("behind the lines there is %q", more))
		if f.at.First != 1 || f.at.Base != 0 {
			t.Errorf("the position is %+v", f.at)
		}
	}
}

// TestHealDamagedEnd: below the stored size, lines that are not events and lines of
// events after head are cut off up to the last event.
func TestHealDamagedEnd(t *testing.T) {
	for _, tail := range []string{
		"", "x", "x\n", "\n", "\n\n", "x\ny\n", `{"id":3,"created_at":"x"}` + "\n", `{"id":9,"created_at":"x"}` + "\n" + `{"id":2`, `{"id":2,"created_at":"x` + "\n",
		`{"id":,"created_at":"x"}` + "\n", `{"id":2x,"created_at":"x"}` + "\n", `{"id":2}` + "\n", `{"id":99999999999999999999,"created_at":"x"}` + "\n",
		"x" + `{"id":1,"created_at":"` + strings.Repeat("y", 64<<10-len(`{"id":1,"created_at":""}`)-1) + `"}` + "\n", // read from the brace on
	} {
		f := newFeed(t)
		f.mustPush(t, 1, "one")
		f.mustPush(t, 2, "two")
		write(t, f.path(), f.text(t)+tail)
		f.at.Size += int64(1000 + len(tail)) // of lines that were never written
		f.heal(t, 2, f.lines(2), fmt.Sprintf("the file ends with %.80q", tail))
		if f.after != 2 {
			t.Errorf("%.80q: events after %d were read again", tail, f.after)
		}
	}
}

// TestHealReplaced: a file of another size in the place of ours gets all of our lines.
func TestHealReplaced(t *testing.T) {
	for _, text := range []string{"", "\n", "x", "x\n", "\n\n\n", "x\ny\nz\n"} {
		f := newFeed(t)
		f.mustPush(t, 4, "four")
		f.mustPush(t, 5, "five")
		write(t, f.path(), text)
		f.heal(t, 5, f.lines(5), fmt.Sprintf("replaced by %q", text))
		if f.after != 3 {
			t.Errorf("%q: events after %d were read again, want after 3", text, f.after)
		}
	}
	f := newFeed(t)
	f.mustPush(t, 1, "one")
	if err := os.Remove(f.path()); err != nil {
		t.Fatal(err)
	}
	f.heal(t, 1, f.lines(1), "removed")
}

// TestHealUpTo: events after head have no line yet.
func TestHealUpTo(t *testing.T) {
	f := newFeed(t)
	for id := int64(1); id <= 3; id++ {
		f.mustPush(t, id, "x")
	}
	f.store(4, "not visible yet")
	write(t, f.path(), f.lines(1))
	f.heal(t, 3, f.lines(3), "an event after head is stored")
}

// TestHealNothingYet: before the first event of ours the lines of others stay, whatever
// the position says of them.
func TestHealNothingYet(t *testing.T) {
	for _, text := range []string{"", "x\n", "x", `{"id":1,"created_at":"x"}` + "\n"} {
		for _, size := range []int64{0, 1, 1000} {
			f := newFeed(t)
			write(t, f.path(), text)
			f.at.Size = size
			want := text
			if want != "" && !strings.HasSuffix(want, "\n") {
				want += "\n"
			}
			f.heal(t, 0, want, fmt.Sprintf("%q at %d", text, size))
		}
	}
}

// TestRotate: a file that holds more than MaxLines lines is set aside, one with fewer
// is not, and a rotation that was not recorded is finished.
func TestRotate(t *testing.T) {
	text := strings.Repeat("x\n", 10)
	for _, tt := range []struct {
		text    string
		at      jsonlog.Position
		rotated bool
		want    jsonlog.Position
	}{
		{text, jsonlog.Position{Size: 20, Lines: jsonlog.MaxLines - 1, First: 1}, false, jsonlog.Position{Size: 20, Lines: jsonlog.MaxLines - 1, First: 1}},
		{text, jsonlog.Position{Size: 20, Lines: jsonlog.MaxLines, First: 1}, false, jsonlog.Position{Size: 20, Lines: jsonlog.MaxLines, First: 1}},
		{text, jsonlog.Position{Size: 20, Lines: jsonlog.MaxLines + 1, First: 1, Base: 4}, true, jsonlog.Position{}},
		{"", jsonlog.Position{Size: 20, Lines: jsonlog.MaxLines + 1, First: 1}, false, jsonlog.Position{}},
		{"", jsonlog.Position{Size: 0, Lines: jsonlog.MaxLines + 1, First: 1}, false, jsonlog.Position{}},
	} {
		f := newFeed(t)
		write(t, f.path(), tt.text)
		f.at = tt.at
		if err := f.prepare(9); err != nil {
			t.Fatal(err)
		}
		rotated, err := os.ReadFile(filepath.Join(f.dir, "events-20260318-120000.jsonl"))
		if (err == nil) != tt.rotated || tt.rotated && string(rotated) != tt.text || f.at != tt.want {
			t.Errorf("%+v became %+v, want %+v; rotated is %q, %v", tt.at, f.at, tt.want, rotated, err)
		}
		left := tt.text
		if tt.rotated {
			left = ""
		}
		if got := f.text(t); got != left {
			t.Errorf("%+v: the file holds %q, want %q", tt.at, got, left)
		}
	}
	// An empty file of a thread with as many lines as fit was not rotated but emptied.
	f := newFeed(t)
	f.mustPush(t, 1, "one")
	write(t, f.path(), "")
	f.at.Lines = jsonlog.MaxLines
	f.heal(t, 1, f.lines(1), "emptied")
	// So was a file of one byte.
	write(t, f.path(), "\n")
	f.at.Lines = jsonlog.MaxLines + 1
	f.at.Base = 1
	f.heal(t, 1, "\n"+f.lines(1), "cut to a byte")
}

// TestAppend: what is written is at the end, however long, and behind it the next.
func TestAppend(t *testing.T) {
	dir := t.TempDir()
	e, err := jsonlog.OpenEvents(dir)
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("y", 600<<10)
	for _, text := range []string{"a\n", long, "b\n"} {
		if err := e.Append(func(w io.Writer) error {
			_, err := io.WriteString(w, text)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.AppendLine([]byte("c\n")); err != nil {
		t.Fatal(err)
	}
	// An error of the one who writes leaves the file as it was.
	failure := fmt.Errorf("failure")
	if err := e.Append(func(w io.Writer) error {
		io.WriteString(w, long)
		return failure
	}); err != failure && !strings.Contains(err.Error(), "failure") {
		t.Error(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err == nil {
		t.Error("the file was not closed")
	}
	got, err := os.ReadFile(filepath.Join(dir, "events.jsonl"))
	if want := "a\n" + long + "b\nc\n"; err != nil || string(got) != want {
		t.Errorf("%d bytes, want %d, %v", len(got), len(want), err)
	}
	// Every use of a closed file is an error.
	for name, use := range map[string]func() error{
		"append": func() error { return e.Append(func(io.Writer) error { return nil }) },
		"line":   func() error { return e.AppendLine([]byte("x\n")) },
		"prepare": func() error {
			_, err := e.Prepare(jsonlog.Position{}, 1, noon, func(int64, func(*event.Event) error) error { return nil })
			return err
		},
	} {
		if err := use(); err == nil {
			t.Errorf("%s: a closed file is in use", name)
		}
	}
}

// TestPrepareErrors: the error of the database is returned, and the old position with
// it.
func TestPrepareErrors(t *testing.T) {
	f := newFeed(t)
	f.mustPush(t, 1, "one")
	f.mustPush(t, 2, "two")
	write(t, f.path(), f.lines(1))
	e, err := jsonlog.OpenEvents(f.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	failure := fmt.Errorf("failure")
	for _, missing := range []func(int64, func(*event.Event) error) error{
		func(int64, func(*event.Event) error) error { return failure },
		func(_ int64, emit func(*event.Event) error) error {
			if err := emit(f.events[1]); err != nil {
				return err
			}
			return failure
		},
	} {
		if at, err := e.Prepare(f.at, 2, noon, missing); err == nil || !strings.Contains(err.Error(), "failure") || at != f.at {
			t.Errorf("%+v, %v; want %+v and the error of the database", at, err, f.at)
		}
		if got := f.text(t); got != f.lines(1) {
			t.Errorf("the file is %q", got)
		}
	}
	f.heal(t, 2, f.lines(2), "the next time")
}

// TestNotAFile: what has the name of the file and cannot be appended to is refused.
func TestNotAFile(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"link":      func(path string) error { return os.Symlink("elsewhere", path) },
		"pipe":      mkfifo,
	} {
		f := newFeed(t)
		if err := make(f.path()); err != nil {
			t.Skip(err)
		}
		if e, err := jsonlog.OpenEvents(f.dir); err == nil {
			e.Close()
			t.Errorf("a %s was opened", name)
		}
		if err := os.Mkdir(filepath.Join(f.dir, "logs"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := make(filepath.Join(f.dir, "logs", "thread.log")); err != nil {
			t.Fatal(err)
		}
		l := jsonlog.OpenLog(f.dir)
		for level, log := range map[string]func(string, ...any) error{"debug": l.Debug, "info": l.Info, "warn": l.Warn, "error": l.Error} {
			if err := log("x"); err == nil {
				t.Errorf("%s: a line went to a %s", level, name)
			}
		}
		if _, err := os.Stat(filepath.Join(f.dir, "elsewhere")); err == nil {
			t.Error("a link was followed")
		}
	}
}

func TestLineID(t *testing.T) {
	for _, tt := range []struct {
		line string
		id   int64
	}{
		{`{"id":7,"created_at":"x"}`, 7}, {`{"id":9223372036854775807,"created_at":""}`, 9223372036854775807}, {`{"id":-3,"created_at":"x"}`, -3},
		{``, 0}, {`{"id":7`, 0}, {`{"id":7,"created_at":"x"`, 0}, {`{"id":7,"x":"y"}`, 0}, {`{"id":x,"created_at":"x"}`, 0}, {` {"id":7,"created_at":"x"}`, 0},
		{`{"id":9223372036854775808,"created_at":"x"}`, 0}, {`"id":7,"created_at":"x"}`, 0},
	} {
		id, ok := jsonlog.LineID([]byte(tt.line))
		if ok != (tt.id != 0) || ok && id != tt.id {
			t.Errorf("%s: %d, %v; want %d", tt.line, id, ok, tt.id)
		}
	}
	if e := (&event.Event{ID: 12, CreatedAt: "2026"}); true {
		if id, ok := jsonlog.LineID(bytes.TrimSuffix([]byte(line(e)), []byte("\n"))); !ok || id != 12 {
			t.Errorf("%s: %d, %v", line(e), id, ok)
		}
	}
}

// TestFull: a file is full with one line, or one byte, more than its bounds.
func TestFull(t *testing.T) {
	for lines, want := range map[int64]bool{0: false, jsonlog.MaxLines: false, jsonlog.MaxLines + 1: true} {
		if p := (jsonlog.Position{Lines: lines}); p.Full() != want {
			t.Errorf("with %d lines it is full: %v", lines, p.Full())
		}
	}
	for size, want := range map[int64]bool{16<<20 + 5: false, 16<<20 + 6: true} { // 5 were there before
		if p := (jsonlog.Position{Size: size, Base: 5}); p.Full() != want {
			t.Errorf("with %d bytes behind 5 it is full: %v", size, p.Full())
		}
	}
}
