package survive

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"thread/compat"
	"thread/engine"
	"thread/event"
	"thread/internal/fsck"
	"thread/internal/store"
	"thread/jsonlog"
)

// content is what a thread directory holds, without the moments at which things
// were written: two runs of a command come to the same content.
type content struct {
	none   bool // there is no thread yet
	sqlite bool // but a SQLite thread directory
	events []string
	ids    []int64
	rest   string // subscriptions, progress, what is scheduled, the ids given and the number stored
	lastID int64
	due    int64 // events whose time has ended, which the next command pushes
}

// stopped is a clock at which nothing that is scheduled falls due: who looks by it
// sees the directory as it is.
func stopped() time.Time { return time.Unix(0, 0) }

var ofOneRun = regexp.MustCompile(`,"(occurred_at|run_id|content_preview)":(null|"(\\.|[^"\\])*")`)

func describe(e *event.Event) string {
	c := *e
	c.CreatedAt = ""
	if c.Type == "agent.action.feedback" { // the relay's own, which says when, in which run and why
		c.Content = ofOneRun.ReplaceAllString(c.Content, "")
	}
	return string(c.AppendJSON(nil))
}

// read opens the directory as a clean process would and reads all of it.
func read(dir string) (c content, err error) {
	th, err := engine.Open(dir, engine.WithClock(stopped))
	switch {
	case errors.Is(err, engine.ErrNotThread):
		return content{none: true}, nil
	case errors.Is(err, engine.ErrSQLite):
		return readSQLite(dir)
	}
	if err != nil {
		return c, err
	}
	defer th.Close()
	for e, err := range th.Events(ctx, engine.Query{}) {
		if err != nil {
			return c, err
		}
		if n := len(c.ids); n > 0 && e.ID <= c.ids[n-1] {
			return c, fmt.Errorf("id %d after %d", e.ID, c.ids[n-1])
		}
		c.ids = append(c.ids, e.ID)
		c.events = append(c.events, describe(&e))
	}
	s, err := store.TakeSnapshot(ctx, th.Store())
	if err != nil {
		return c, err
	}
	c.lastID = s.LastID
	c.rest = fmt.Sprintf("last %d stored %d pruned %d", s.LastID, s.Stored, s.Pruned)
	for _, sub := range s.Subscriptions {
		c.rest += fmt.Sprintf("\n%q %q %q %v", sub.Consumer, sub.Handler, sub.Where(), sub.Paused)
	}
	for _, p := range s.Progress {
		c.rest += fmt.Sprintf("\n%q %d", p.Consumer, p.LastAcked)
	}
	info, err := th.Info(ctx)
	if err != nil {
		return c, err
	}
	for i := range info.Subscriptions {
		// Of a lease not when it ends, which is never the same.
		if s := &info.Subscriptions[i]; s.Lease.Number != 0 || s.Failing != 0 {
			c.rest += fmt.Sprintf("\n%q has out %d: [%d, %d] %d; failing %d %d", s.Consumer, s.Lease.Number, s.Lease.First, s.Lease.Last, s.Lease.Count, s.Failing, s.Attempts)
		}
	}
	outboxed, err := readOutbox(th)
	if err != nil {
		return c, err
	}
	c.rest += outboxed
	delayed, err := th.Delayed(ctx, 0)
	if err != nil {
		return c, err
	}
	for _, d := range delayed {
		c.rest += fmt.Sprintf("\nlater %q", d.Draft.Content)
		if d.At.Before(time.Now()) {
			c.due++
		}
	}
	schedules, err := th.Schedules(ctx)
	if err != nil {
		return c, err
	}
	for _, d := range schedules {
		c.rest += fmt.Sprintf("\nschedule %q %q %q", d.Name, d.Spec, d.Draft.Source)
		if d.Next.Before(time.Now()) {
			c.due++
		}
	}
	for _, x := range s.Extras {
		// The keys of dead letters and of pushes; their records have times in them.
		if name := x.Bucket[0]; name == "dead" || name == "retries" || name == "dedupe" {
			c.rest += fmt.Sprintf("\n%s %x", name, x.Key)
		}
	}
	if s.Stored != int64(len(c.ids)) {
		return c, fmt.Errorf("%d events, %d expected", len(c.ids), s.Stored)
	}
	return c, nil
}

// readSQLite reads a SQLite thread directory through an import of it.
func readSQLite(dir string) (c content, err error) {
	to, err := os.MkdirTemp("", "survive-import-*")
	if err != nil {
		return c, err
	}
	defer os.RemoveAll(to)
	if _, err := compat.Import(ctx, dir, compat.ImportOptions{To: to}); err != nil {
		return c, err
	}
	c, err = read(to)
	c.sqlite = true
	return c, err
}

func (c content) same(d content) bool {
	return c.none == d.none && c.sqlite == d.sqlite && slices.Equal(c.events, d.events) && c.rest == d.rest
}

func (c content) String() string {
	if c.none {
		return "no thread"
	}
	if c.sqlite {
		return fmt.Sprintf("a SQLite directory of %d events", len(c.events))
	}
	if len(c.events) > 8 {
		return fmt.Sprintf("%d events … %v, %s", len(c.events), c.events[len(c.events)-3:], c.rest)
	}
	return fmt.Sprintf("%v, %s", c.events, c.rest)
}

// faultless lets the program's own check look at the directory.
func faultless(dir string) error {
	th, err := engine.Open(dir)
	if err != nil {
		return err
	}
	defer th.Close()
	report, err := fsck.Check(ctx, th)
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range report.Faults[:min(5, len(report.Faults))] {
		errs = append(errs, fmt.Errorf("check: %s: %s", f.Place, f.What))
	}
	return errors.Join(errs...)
}

// lineFiles returns the lines of all events*.jsonl, the oldest first.
func lineFiles(t testing.TB, dir string) (lines [][]byte) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "events-*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	for _, name := range append(names, filepath.Join(dir, "events.jsonl")) {
		text, err := os.ReadFile(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		for line := range bytes.Lines(text) {
			lines = append(lines, bytes.TrimSuffix(line, []byte("\n")))
		}
	}
	return lines
}

// works pushes one more event and requires that it is stored, that its id is new,
// and that the line files then hold each event that was ever pushed, once, in
// order: the events of earlier, which were pushed before, and those that c holds now. With
// lines off they hold at most the earlier ones.
func works(t testing.TB, dir string, earlier [][]byte, c content) error {
	t.Helper()
	r := run(t, "", program, "push", "--thread", dir, "--source", "next", "--type", "message", "--content", "one more", "--json")
	next := strings.TrimSuffix(r.stdout, "\n")
	if id, ok := jsonlog.LineID([]byte(next)); r.code != 0 || !ok || id != c.lastID+c.due+1 {
		return fmt.Errorf("the next push after event %d and %d that are due: %v", c.lastID, c.due, r)
	}
	th, err := engine.Open(dir)
	if err != nil {
		return err
	}
	defer th.Close()
	want := slices.Clone(earlier)
	last := int64(0)
	if len(want) > 0 {
		last, _ = jsonlog.LineID(want[len(want)-1])
	}
	for e, err := range th.Events(ctx, engine.Query{After: last}) {
		if err != nil {
			return err
		}
		want = append(want, e.AppendJSON(nil))
	}
	if string(want[len(want)-1]) != next {
		return fmt.Errorf("the next push is not the last event")
	}
	got := lineFiles(t, dir)
	if info, err := th.Info(ctx); err != nil {
		return err
	} else if info.LinesOff {
		if want = earlier; len(got) == 0 { // they were off when those were pushed
			want = nil
		}
	}
	if len(got) != len(want) {
		return fmt.Errorf("%d lines of JSON, want %d", len(got), len(want))
	}
	for i := range got {
		if !bytes.Equal(got[i], want[i]) {
			return fmt.Errorf("line %d is %s, want %s", i+1, got[i], want[i])
		}
	}
	return nil
}
