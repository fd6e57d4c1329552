package survive

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"thread/engine"
)

// operation is one command whose every step is made to fail. D in the arguments
// stands for the thread directory.
type operation struct {
	name   string
	from   func(t *testing.T, dir string) // makes the directory it starts from
	args   []string
	stdin  string
	atMost int // ordinals tried of one system call in a quick run
	dense  int // the same in a full run
}

func batch(n int, content string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"source":"s%d","type":"message","content":"%s %d"}`+"\n", i%7, content, i)
	}
	return b.String()
}

// fresh makes a thread with three events, two consumers and some progress.
func fresh(t *testing.T, dir string) {
	thread(t, "", "init", dir)
	thread(t, batch(3, "old"), "push", "--thread", dir, "--batch")
	thread(t, "", "subscribe", "--thread", dir, "--consumer", "c", "--handler", "true")
	thread(t, "", "subscribe", "--thread", dir, "--consumer", "d", "--handler", "true", "--filter", "type = 'message'")
	thread(t, "", "pop", "--thread", dir, "--consumer", "c", "--last-event-id", "1")
}

// holding is fresh with so many events.
func holding(n int) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		fresh(t, dir)
		thread(t, batch(n-3, "more"), "push", "--thread", dir, "--batch")
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
		report, err := th.Check(ctx)
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

func half(t *testing.T, dir string) {
	holding(2500)(t, dir)
	for _, c := range []string{"c", "d"} {
		thread(t, "", "ack", "--thread", dir, "--consumer", c, "--event-id", "2000")
	}
}

func nothing(*testing.T, string) {}

func operations() []operation {
	push := []string{"push", "--thread", "D", "--source", "self", "--type", "message", "--content", "new"}
	pushBatch := []string{"push", "--thread", "D", "--batch"}
	return []operation{
		{name: "init", from: nothing, args: []string{"init", "D"}},
		{name: "push", from: fresh, args: push},
		{name: "push that completes a block", from: holding(1023), args: push},
		{name: "push that rotates", from: holding(10001), args: push},
		{name: "push that heals", from: torn, args: push},
		{name: "push that clears half a batch", from: halfBatch, args: push, dense: 60},
		{name: "batch", from: fresh, args: pushBatch, stdin: batch(20, "new")},
		{name: "long batch", from: fresh, args: pushBatch, stdin: batch(10050, "new"), atMost: 3, dense: 30},
		{name: "pop", from: fresh, args: []string{"pop", "--thread", "D", "--consumer", "c", "--last-event-id", "2"}},
		{name: "ack", from: fresh, args: []string{"ack", "--thread", "D", "--consumer", "c", "--event-id", "3"}},
		{name: "subscribe", from: fresh, args: []string{"subscribe", "--thread", "D", "--consumer", "e", "--handler", "true"}},
		{name: "unsubscribe", from: fresh, args: []string{"unsubscribe", "--thread", "D", "--consumer", "c"}},
		{name: "compact", from: half, args: []string{"compact", "--thread", "D"}, dense: 60},
		{name: "prune", from: half, args: []string{"prune", "--thread", "D", "--acked"}, dense: 60},
	}
}

// started is an operation made ready.
type started struct {
	operation
	template      string   // the directory it starts from
	dir           string   // the copy that is worked on
	before, after content  // of the directory
	lines         [][]byte // of the events before
	calls         calls
}

// start prepares the directory, runs the operation once on a copy, and records
// its system calls on another.
func (op operation) start(t *testing.T) *started {
	t.Helper()
	s := &started{operation: op, template: filepath.Join(t.TempDir(), "template"), dir: filepath.Join(t.TempDir(), "thread")}
	op.from(t, s.template)
	s.before = s.look(t, s.template)
	if !s.before.none {
		th, err := engine.Open(s.template)
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
	s.after = s.look(t, s.dir)
	if op.name != "compact" && s.after.same(s.before) {
		t.Fatalf("%s changes nothing", op.name)
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
	if !s.before.none {
		copyDir(t, s.template, s.dir)
	}
}

// command returns the arguments with the directory put in.
func (s *started) command() []string {
	args := slices.Clone(s.args)
	if i := slices.Index(args, "D"); i >= 0 {
		args[i] = s.dir
	}
	return args
}

// density is how many ordinals of one call are tried.
func (s *started) density() int {
	switch {
	case full && s.dense > 0:
		return s.dense
	case full:
		return 1 << 30
	case s.atMost > 0:
		return s.atMost
	}
	return 3
}
