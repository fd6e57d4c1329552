package survive

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/fsck"
	"thread/internal/store/bolt"
)

// operation is one command whose every step is made to fail. In the arguments D
// stands for the thread directory, sqlite:D for the database app.db in it, and S for another one, its source, which from
// makes when dir is that.
type operation struct {
	name  string
	from  func(t *testing.T, dir string) // makes the directory it starts from
	args  []string
	stdin string

	source func(t *testing.T, dir string) // makes S
	rare   bool                           // not in a quick run
	atMost int                            // ordinals tried of one system call in a quick run

	same  bool // it changes nothing that content knows
	reads bool // what it is for changes nothing, and may fail after what does
	again bool // a clean run after an interrupted one must come to the end
	// With exit code 1 it says that what it could not read is missing, and saves the rest.
	saves bool
	// Its last part is not necessary: without it, it has come so far as halfway makes the directory.
	halfway func(t *testing.T, dir string)
	// complete does what is left of it, where no command does it.
	complete func(t *testing.T, dir string)
	drops    bool // rotated lines, with their events
}

func batch(n int, content string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"source":"s%d","type":"message","content":"%s %d"}`+"\n", i%7, content, i)
	}
	return b.String()
}

// fresh makes a thread with three events, two consumers and some progress.
func fresh(t *testing.T, dir string) { made(t, dir) }

// unlined is fresh without events.jsonl.
func unlined(t *testing.T, dir string) { made(t, dir, "--lines", "off") }

func made(t *testing.T, dir string, flags ...string) {
	thread(t, "", append([]string{"init", dir}, flags...)...)
	thread(t, batch(3, "old"), "push", "--thread", dir, "--batch")
	thread(t, "", "subscribe", "--thread", dir, "--consumer", "c", "--handler", "true")
	thread(t, "", "subscribe", "--thread", dir, "--consumer", "d", "--handler", "true", "--filter", "type = 'message'")
	thread(t, "", "pop", "--thread", dir, "--consumer", "c", "--last-event-id", "1")
}

// holding is fresh with that many events.
func holding(n int) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		fresh(t, dir)
		thread(t, batch(n-3, "more"), "push", "--thread", dir, "--batch")
	}
}

// fold puts what the journal has into events.db.
func fold(t *testing.T, dir string) {
	t.Helper()
	s, err := bolt.Open(dir, bolt.Options{LockTimeout: time.Minute})
	if err == nil {
		err = errors.Join(bolt.Fold(ctx, s), s.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// folding is a thread whose journal has no room for another record.
func folding(t *testing.T, dir string) { journalled(64)(t, dir) }

// journalled is fresh with that many records in its journal.
func journalled(n int) func(t *testing.T, dir string) { return journalledOn(fresh, n) }

func journalledOn(from func(t *testing.T, dir string), n int) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		from(t, dir)
		th, err := engine.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer th.Close()
		fold(t, dir)
		for range n {
			if _, err := th.Push(ctx, event.Draft{Source: "s", Type: "message", Content: "journalled"}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// long is a thread of which every other event is kept in pieces.
func long(t *testing.T, dir string) {
	fresh(t, dir)
	for i := range 8 {
		thread(t, "", "push", "--thread", dir, "--source", "s", "--type", "t", "--content", strings.Repeat("text ", 1+i%2*20_000))
	}
}

// crowded is fresh with that many series in all, one of an event each.
func crowded(n int) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		fresh(t, dir)
		var b strings.Builder
		for i := range n - 3 {
			fmt.Fprintf(&b, `{"source":"mail:%x:a","type":"%s","content":"%d"}`+"\n", i*40503, []string{"message", "record"}[i%2], i)
		}
		thread(t, b.String(), "push", "--thread", dir, "--batch")
	}
}

// halfBatch is a thread in which a long batch was killed between two of its
// transactions. Which thread of the process makes the calls that are counted
// varies, so it is tried until the check says so.
func halfBatch(t *testing.T, dir string) {
	template := filepath.Join(t.TempDir(), "fresh")
	fresh(t, template)
	for when := 3; when < 30; when++ {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		copyDir(t, template, dir)
		p := point{call: "fdatasync", when: fmt.Sprint(1 + when%5), effect: "signal=KILL"}
		p.inject(t, batch(10050, "long"), "push", "--thread", dir, "--batch")
		th, err := engine.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		report, err := fsck.Check(ctx, th)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range report.Notes {
			if strings.Contains(n.What, "left by a batch") {
				return
			}
		}
	}
	t.Fatal("the batch was never killed half way")
}

// torn is a thread whose events.jsonl was cut in the middle of a line.
func torn(t *testing.T, dir string) {
	fresh(t, dir)
	path := filepath.Join(dir, "events.jsonl")
	info, err := os.Stat(path)
	if err == nil {
		err = os.Truncate(path, info.Size()-30)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// half is a thread of 2000 events, of which every consumer has acked 400.
func half(t *testing.T, dir string) {
	fresh(t, dir)
	thread(t, batch(1997, strings.Repeat("text ", 60)), "push", "--thread", dir, "--batch")
	for _, c := range []string{"c", "d"} {
		thread(t, "", "ack", "--thread", dir, "--consumer", c, "--event-id", "400")
	}
}

// lettered is fresh with a consumer of whose events two are dead letters, and with
// a dedupe key.
func lettered(t *testing.T, dir string) {
	fresh(t, dir)
	thread(t, "", "consume", "--thread", dir, "--consumer", "d", "--once", "--", "sh", "-c", "exit 65")
	thread(t, "", "consume", "--thread", dir, "--consumer", "d", "--once", "--", "sh", "-c", "exit 65")
	thread(t, "", "push", "--thread", dir, "--source", "s", "--type", "keyed", "--content", "one", "--dedupe-key", "known")
}

// pulled is fresh with a consumer without a handler.
func pulled(t *testing.T, dir string) {
	fresh(t, dir)
	thread(t, "", "subscribe", "--thread", dir, "--consumer", "p", "--pull")
}

// leased is pulled with two events out, for as long as the tests take.
func leased(t *testing.T, dir string) {
	pulled(t, dir)
	thread(t, "", "next", "--thread", dir, "--consumer", "p", "--limit", "2", "--lease", "1000h")
}

// expired is pulled with an event whose lease has ended.
func expired(t *testing.T, dir string) {
	pulled(t, dir)
	th, err := engine.Open(dir, engine.WithClock(stopped))
	if err == nil {
		_, err = th.Next(ctx, "p", engine.NextOptions{Limit: 1, Lease: time.Hour})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func paused(t *testing.T, dir string) {
	fresh(t, dir)
	thread(t, "", "pause", "--thread", dir, "--consumer", "c")
}

// bare is fresh without what may be deleted at any time.
func bare(t *testing.T, dir string) {
	fresh(t, dir)
	for _, name := range []string{"run", "logs", "events.jsonl"} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// fullLog is fresh with a logs/thread.log that is to be rotated.
func fullLog(t *testing.T, dir string) {
	fresh(t, dir)
	if err := os.WriteFile(filepath.Join(dir, "logs", "thread.log"), []byte(strings.Repeat("[2026-03-18T10:30:00.000Z] [INFO] a line\n", 10001)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// sqlite is a SQLite thread directory of that many events.
func sqlite(n int) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		from := filepath.Join(t.TempDir(), "exported")
		fresh(t, from)
		thread(t, batch(n-3, strings.Repeat("text ", 60)), "push", "--thread", from, "--batch")
		thread(t, "", "export", "--thread", from, "--to", dir)
	}
}

// broken is a thread with one event that only events.jsonl still has whole.
func broken(t *testing.T, dir string) {
	holding(200)(t, dir)
	fold(t, dir)
	path := filepath.Join(dir, "events.db")
	db, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if db = bytes.ReplaceAll(db, []byte("more 150"), []byte("MORE 150")); err == nil {
		err = os.WriteFile(path, db, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// spoiledLines is a thread of which a rotated file has a line that was changed, and
// events.jsonl has lost its first one.
func spoiledLines(t *testing.T, dir string) {
	holding(10050)(t, dir)
	thread(t, batch(3, "newest"), "push", "--thread", dir, "--batch")
	names, err := filepath.Glob(filepath.Join(dir, "events-*.jsonl"))
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	for name, change := range map[string]func(b []byte) []byte{
		names[0]:                           func(b []byte) []byte { return bytes.Replace(b, []byte("more 150"), []byte("MORE 150"), 1) },
		filepath.Join(dir, "events.jsonl"): func(b []byte) []byte { return b[bytes.IndexByte(b, '\n')+1:] },
	} {
		b, err := os.ReadFile(name)
		if err == nil {
			err = os.WriteFile(name, change(b), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// files is a directory that is not a thread, and not empty.
func files(t *testing.T, dir string) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("mine\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// withDueEvents makes a thread with two delayed events whose time has ended, and a schedule
// of which a time is.
func withDueEvents(t *testing.T, dir string) {
	fresh(t, dir)
	late(t, dir)
}

func late(t *testing.T, dir string) {
	th, err := engine.Open(dir, engine.WithClock(stopped))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		d := event.Draft{Source: "later", Type: "message", Content: fmt.Sprint("late ", i)}
		if _, err := th.PushAt(ctx, d, stopped().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	d := event.Draft{Source: "clock", Type: "message", Content: "tick"}
	if _, err := th.AddSchedule(ctx, engine.Schedule{Name: "tick", Spec: "@every 1000h", Draft: d}); err != nil {
		t.Fatal(err)
	}
}

func nothing(*testing.T, string) {}

// started is an operation made ready.
type started struct {
	operation
	template      string   // the directory it starts from
	source        string   // S
	dir           string   // the copy that is worked on
	before, after content  // of the directory
	between       *content // as halfway makes it
	lines         [][]byte // of the events before
	calls         calls
}

// start prepares the directory, runs the operation once on a copy, and records
// its system calls on another.
func (op operation) start(t *testing.T) *started {
	t.Helper()
	s := &started{operation: op, template: filepath.Join(t.TempDir(), "template"), dir: filepath.Join(t.TempDir(), "thread")}
	op.from(t, s.template)
	if op.source != nil {
		s.source = filepath.Join(t.TempDir(), "source")
		op.source(t, s.source)
	}
	s.before = s.look(t, s.template)
	if !s.before.none && !s.before.sqlite {
		th, err := engine.Open(s.template, engine.WithClock(stopped))
		if err != nil {
			t.Fatal(err)
		}
		for e, err := range th.Events(ctx, engine.Query{}) {
			if err != nil {
				t.Fatal(err)
			}
			s.lines = append(s.lines, e.AppendJSON(nil))
		}
	}
	s.renew(t)
	if r := run(t, op.stdin, program, s.command()...); r.code != 0 {
		t.Fatalf("%s without a fault: %v", op.name, r)
	}
	if op.complete != nil {
		op.complete(t, s.dir)
	}
	s.after = s.look(t, s.dir)
	if op.halfway != nil {
		s.renew(t)
		op.halfway(t, s.dir)
		c := s.look(t, s.dir)
		s.between = &c
	}
	if s.after.same(s.before) != op.same {
		t.Fatalf("%s makes %v out of %v", op.name, s.after, s.before)
	}
	s.renew(t)
	s.calls = record(t, s.dir, op.stdin, s.command()...)
	return s
}

func (s *started) look(t *testing.T, dir string) content {
	t.Helper()
	c, err := read(dir)
	if err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
	return c
}

// renew makes the directory what the operation starts from.
func (s *started) renew(t *testing.T) {
	t.Helper()
	if err := os.RemoveAll(s.dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(s.template); err == nil {
		copyDir(t, s.template, s.dir)
	}
}

// command returns the arguments with the directory put in.
func (s *started) command() []string {
	args := slices.Clone(s.args)
	for i, arg := range args {
		switch arg {
		case "D":
			args[i] = s.dir
		case "S":
			args[i] = s.source
		case "M":
			args[i] = s.mirror()
		case "sqlite:D":
			args[i] = "sqlite:" + filepath.Join(s.dir, "app.db")
		}
	}
	return args
}

// density is how many ordinals of one call are tried.
func (s *started) density() int {
	switch {
	case full:
		return 1 << 30
	case sample:
		return 6
	case s.atMost > 0:
		return s.atMost
	}
	return 2
}
