package survive

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"thread/engine"
	"thread/history"
)

// recording is a command that writes history. Which counts of history events it may
// leave behind, above those that were there, is in commits: one for each of its
// commits, and 0.
type recording struct {
	name    string
	args    []string
	commits []int
	rows    bool // it may change events as it likes, and no row
	// prepare makes ready what the command finds next to the history.
	prepare func(t *testing.T, s *started)
	// judge looks at what the command was to make next to the history.
	judge func(t *testing.T, s *started) error
}

func recordings() []recording {
	return []recording{
		{name: "message add", args: []string{"message", "add", "--thread", "D", "--session", "one", "--role", "user", "--content", "x", "--id", "M"}, commits: []int{0, 1}},
		{name: "history take", args: []string{"history", "take", "--thread", "D"}, commits: []int{0, 2}, prepare: leaveHandled, judge: takenOnce},
		{name: "history import", args: []string{"history", "import", "--thread", "D", "S"}, commits: []int{0, 3}, prepare: importable, judge: importedWhole},
		{name: "run start", args: []string{"run", "start", "--thread", "D", "--session", "two", "--id", "new"}, commits: []int{0, 2}},
		{name: "run exec", args: []string{"run", "exec", "--thread", "D", "--id", "new", "--no-output", "--", "true"}, commits: []int{0, 2, 4}},
		{name: "run end", args: []string{"run", "end", "--thread", "D", "--status", "completed", "active"}, commits: []int{0, 1}},
		{name: "run next", args: []string{"run", "next", "--thread", "D"}, commits: []int{0, 1}},
		{name: "session delete", args: []string{"session", "delete", "--thread", "D", "two"}, commits: []int{0, 4}},
		{name: "history prune", args: []string{"history", "prune", "--thread", "D", "--keep-last", "5"}, rows: true},
		{name: "history take that retains", args: []string{"history", "take", "--thread", "D"}, rows: true, prepare: limitHistory},
		{name: "history mirror", args: []string{"history", "mirror", "--thread", "D", "--to", "M"}, commits: []int{0}, prepare: noMirror, judge: mirrorCatchesUp},
		{name: "history mirror again", args: []string{"history", "mirror", "--thread", "D", "--to", "M"}, commits: []int{0}, prepare: lateMirror, judge: mirrorCatchesUp},
		{name: "history mirror torn", args: []string{"history", "mirror", "--thread", "D", "--to", "M"}, commits: []int{0}, prepare: tornMirror, judge: mirrorCatchesUp},
		{name: "history rebuild", args: []string{"history", "rebuild", "--thread", "D"}, commits: []int{0}},
	}
}

// recorded makes a thread with two sessions, a run that is active in the first, one
// that waits, and one that has ended in the second.
func recorded(t *testing.T, dir string) {
	thread(t, "", "init", dir)
	for _, args := range [][]string{
		{"session", "start", "--id", "one"}, {"session", "start", "--id", "two"},
		{"run", "start", "--id", "active", "--session", "one"}, {"run", "enqueue", "--id", "waits"},
		{"run", "start", "--id", "ended", "--session", "two"}, {"run", "step", "--id", "P", "ended"},
		{"message", "add", "--session", "two", "--role", "user", "--content", "hi"}, {"run", "end", "--status", "failed", "ended"},
	} {
		verb := args[:2]
		thread(t, "", append(append(slices.Clone(verb), "--thread", dir), args[2:]...)...)
	}
}

// limitHistory lets the next command about the history drop a quarter of its events.
func limitHistory(t *testing.T, s *started) {
	thread(t, "", "history", "retain", "--thread", s.dir, "--max-events", "11")
	if r := run(t, "", program, "history", "retain", "--thread", s.dir, "--json"); !strings.Contains(r.stdout, `"max_events":11,"held_back":null`) {
		t.Fatal(r)
	}
}

// kept is what a history holds.
type kept struct {
	events int    // the newest id
	rows   string // all of them
	tables string // as they are
}

func keptIn(dir string) (k kept, h *history.History, err error) {
	if h, err = history.Open(ctx, dir, history.LeaveRuns()); err != nil {
		return k, h, err
	}
	head, err := h.Head(ctx)
	if err != nil {
		return k, h, err
	}
	k.events = int(head)
	var b []byte
	add := func(r history.Row, err2 error) {
		if err == nil && err2 == nil {
			b, err2 = history.AppendJSON(append(b, '\n'), r)
		}
		if err == nil {
			err = err2
		}
	}
	for s, err := range h.Sessions(ctx, history.Query{}) {
		add(&s, err)
		for m, err := range h.Messages(ctx, history.Query{Session: s.ID}) {
			add(&m, err)
		}
	}
	for r, err := range h.Runs(ctx, history.Query{}) {
		r.HeartbeatAt = r.CreatedAt // the time of a file
		add(&r, err)
		for s, err := range h.Steps(ctx, r.ID) {
			add(&s, err)
		}
	}
	k.rows = string(b)
	if err != nil {
		return k, h, err
	}
	t, err := h.Thread()
	if err != nil || t == nil {
		return k, h, err
	}
	err = t.View(ctx, func(tx *engine.Tx) error {
		for _, name := range []string{"rows", "by"} {
			table, err := tx.Records(name)
			if err != nil {
				return err
			}
			for x, err := range table.Ascend(nil, nil) {
				if err != nil {
					return err
				}
				k.tables += fmt.Sprintf("%s %x %x\n", name, x.Key, x.Value)
			}
		}
		return nil
	})
	return k, h, err
}

// TestCrashHistory kills the program at every system call of what writes history, and
// TestFailureHistory lets every one fail: a commit is then there whole or not at all
// (H-06), the tables are what the log says, and the history can be written again.
func TestCrashHistory(t *testing.T)   { historyMatrix(t, (*calls).killPoints) }
func TestFailureHistory(t *testing.T) { historyMatrix(t, (*calls).failurePoints) }

func historyMatrix(t *testing.T, points func(c *calls, atMost int) []point) {
	needStrace(t)
	template := t.TempDir() + "/template"
	recorded(t, template)
	for i, op := range recordings() {
		if i > 1 && !full && !sample {
			break // the quick run is to stay quick
		}
		t.Run(strings.ReplaceAll(op.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			s := started{operation: operation{name: op.name, args: op.args, atMost: 2}, template: template, dir: t.TempDir() + "/thread"}
			s.renew(t)
			if op.prepare != nil {
				op.prepare(t, &s)
			}
			c := record(t, s.dir, "", s.command()...)
			n := 0
			for _, p := range points(&c, s.density()) {
				if err := op.try(t, &s, p); err != nil {
					t.Errorf("%v: %v", p, err)
					if n++; n == 5 {
						t.Fatal("enough")
					}
				}
			}
			if len(points(&c, 1)) == 0 {
				t.Error("nothing was tried")
			}
		})
	}
}

// try runs the command with one fault and judges what is left.
func (op *recording) try(t *testing.T, s *started, p point) error {
	s.renew(t)
	if op.prepare != nil {
		op.prepare(t, s)
	}
	before, _, err := keptIn(s.dir)
	if err != nil {
		return err
	}
	r, _ := p.inject(t, "", s.command()...)
	if strings.Contains(r.stderr, "netpollBreak") {
		return nil
	}
	// The copy of the template was a directory, and became a separate one
	// workspace when it was opened above: that is not a part of the command.
	after, h, err := keptIn(s.dir)
	if err != nil {
		return fmt.Errorf("%v, and then: %w", r, err)
	}
	switch more := after.events - before.events; {
	case op.rows && after.rows != before.rows:
		return fmt.Errorf("%v changed the rows\n%s to\n%s", r, before.rows, after.rows)
	case !op.rows && !slices.Contains(op.commits, more):
		return fmt.Errorf("%v left %d history events, which is no commit", r, more)
	case more == 0 && r.code == 0 && strings.Contains(r.stderr, "what runs now is not recorded: "):
		// The history cannot be used, which keeps no command from running.
	case r.code == 0 && strings.Contains(r.stderr, "the end of run new is not recorded"):
		// The exit code is the command's. Recovery records the end.
	case !op.rows && r.code == 0 && more != op.commits[len(op.commits)-1]:
		return fmt.Errorf("%v, and %d history events", r, more)
	}
	if op.judge != nil {
		if err := op.judge(t, s); err != nil {
			return fmt.Errorf("%v: %w", r, err)
		}
	}
	if _, err := h.Rebuild(ctx); err != nil {
		return err
	}
	again, _, err := keptIn(s.dir)
	if err != nil {
		return err
	}
	if again.tables != after.tables || again.rows != after.rows {
		return fmt.Errorf("%v: the log says other tables than there are: %s", r, differing(after.tables, again.tables))
	}
	if r := run(t, "", program, "message", "add", "--thread", s.dir, "--session", "one", "--role", "user", "--content", "more"); r.code != 0 {
		return fmt.Errorf("it cannot be written afterwards: %v", r)
	}
	return faultless(h.Dir())
}

// differing returns the lines that only one of the texts has.
func differing(was, is string) string {
	text := ""
	for i, of := range []string{was, is} {
		for l := range strings.Lines(of) {
			if !strings.Contains([]string{is, was}[i], l) {
				text += []string{"- ", "+ "}[i] + l
			}
		}
	}
	return text
}

// TestHistorySoak: writers of history are killed over and over, while others recover;
// nothing that was acknowledged is lost, no run has two workers, and the tables are
// what the log says.
func TestHistorySoak(t *testing.T) {
	dir := t.TempDir() + "/inbox"
	thread(t, "", "init", dir)
	const runs = 12
	for i := range runs {
		thread(t, "", "run", "enqueue", "--thread", dir, "--id", fmt.Sprint("r", i))
	}
	log := t.TempDir() + "/log"
	if err := os.WriteFile(log, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// Every third command kills its worker, at its first attempt.
	command := `echo "$THREAD_RUN_ID $THREAD_RUN_ATTEMPT" >>` + log + `; case $THREAD_RUN_ATTEMPT$THREAD_RUN_ID in 1*[0369]) kill -9 $PPID;; esac`
	for round := 0; ; round++ {
		r := run(t, "", program, "run", "work", "--thread", dir, "--drain", "--strategy", "requeue_all", "--", "sh", "-c", command)
		if r.code == 0 {
			break
		}
		if round == runs {
			t.Fatalf("the workers come to no end: %v", r)
		}
		// A worker that starts recovers after 30 s without the lock; a lock tells at once.
		if r := run(t, "", program, "run", "recover", "--thread", dir, "--strategy", "requeue_all"); r.code != 0 {
			t.Fatal(r)
		}
	}
	k, h, err := keptIn(dir)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for r, err := range h.Runs(ctx, history.Query{Status: history.Completed}) {
		if err != nil {
			t.Fatal(err)
		}
		want := int64(1)
		if strings.ContainsAny(r.ID[len(r.ID)-1:], "0369") {
			want = 2
		}
		if n++; r.Attempt != want {
			t.Errorf("%s: attempt %d, want %d", r.ID, r.Attempt, want)
		}
	}
	text, err := os.ReadFile(log)
	if err != nil || n != runs {
		t.Fatalf("%d of %d runs are completed, %v\n%s", n, runs, err, text)
	}
	started := strings.Fields(string(bytes.ReplaceAll(bytes.TrimSpace(text), []byte(" "), []byte("/"))))
	slices.Sort(started)
	if len(slices.Compact(slices.Clone(started))) != len(started) {
		t.Errorf("an attempt was given out twice: %v", started)
	}
	if _, err := h.Rebuild(ctx); err != nil {
		t.Fatal(err)
	}
	if again, _, err := keptIn(dir); err != nil || again.tables != k.tables {
		t.Errorf("the log says other tables than there are: %v", err)
	}
	if _, err := engine.Open(h.Dir()); err != nil {
		t.Fatal(err)
	}
}
