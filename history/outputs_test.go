package history

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// historyBytes returns how long the files of a history are.
func historyBytes(t *testing.T, h *History) (n int64) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(h.Dir(), "events*"))
	ok(t, err)
	for _, f := range files {
		info, err := os.Stat(f)
		ok(t, err)
		n += info.Size()
	}
	return n
}

// failures leaves n failed runs, a minute apart, and takes them. The first one is number
// from, and each prints what output returns.
func failures(t *testing.T, h *History, c *clock, from, n int, output func(i int) string) {
	t.Helper()
	for i := from; i < from+n; i++ {
		c.add(time.Minute)
		f := ended(fmt.Sprintf("%032x", i), c.Now(), Failed)
		f.Output = output(i)
		f.OutputBytes = int64(len(f.Output))
		leave(t, h, f)
	}
	one[int64](t)(h.TakeRuns(ctx))
}

// Of a consumer's failed runs the newest 20 outputs are kept, another consumer's
// do not count, and every run keeps its row.
func TestNewestOutputs(t *testing.T) {
	c := newClock()
	h := inbox(t, WithClock(c.Now))
	first := ended("first", c.Now(), Failed)
	first.Consumer = "other"
	leave(t, h, first)
	print := func(i int) string { return fmt.Sprintf("no table %d\n", i) }
	failures(t, h, c, 0, 15, print)
	failures(t, h, c, 15, 10, print)
	for i := range 25 {
		id, want := fmt.Sprintf("%032x", i), print(i)
		if i < 5 {
			want = ""
		}
		out := one[CommandOutput](t)(h.Command(ctx, id))
		if out.Output != want || out.Bytes != int64(len(print(i))) || out.Truncated != (i < 5) || *out.ExitCode != 3 {
			t.Errorf("%d: %+v", i, out)
		}
		ok(t, h.Get(ctx, &RunRow{}, id))
	}
	if out := one[CommandOutput](t)(h.Command(ctx, "first")); out.Output != first.Output {
		t.Errorf("of another consumer: %+v", out)
	}
	rebuilt(t, h)
}

// An output that equals the output of the previous failed run is stored once, for an eighth of
// the retention, so that the run that stores it is not let go long before the others.
func TestSameOutput(t *testing.T) {
	c := newClock()
	h := inbox(t, WithClock(c.Now))
	same := func(int) string { return "no such table\n" }
	id := func(i int) string { return fmt.Sprintf("%032x", i) }
	failures(t, h, c, 0, 50, same)
	c.add(DefaultRunRetention.Failed/sharedPart - 49*time.Minute)
	failures(t, h, c, 50, 2, same)
	failures(t, h, c, 52, 1, func(int) string { return "another\n" })
	failures(t, h, c, 53, 1, same)
	for i := range 54 {
		out := one[CommandOutput](t)(h.Command(ctx, id(i)))
		want, by := same(i), ""
		switch {
		case i == 52:
			want = "another\n"
		case i > 0 && i < 50:
			by = id(0)
		case i == 51:
			by = id(50)
		}
		if out.Output != want || out.SameAs != by || out.Truncated || out.Bytes != int64(len(want)) {
			t.Errorf("%d: %+v", i, out)
		}
	}
	rebuilt(t, h)
	ok(t, h.Update(ctx, func(tx *Tx) error { return tx.dropOutput(handlerStep(id(0))) }))
	if out := one[CommandOutput](t)(h.Command(ctx, id(1))); out.Output != "" || !out.Truncated || out.Bytes != 14 {
		t.Errorf("of a run whose output is gone: %+v", out)
	}
}

// A program without the index of outputs deletes steps and leaves their keys: the runs that
// end later are taken all the same.
func TestOutputsOfOlderProgram(t *testing.T) {
	c := newClock()
	h := inbox(t, WithClock(c.Now))
	print := func(i int) string { return fmt.Sprintf("no table %d\n", i) }
	failures(t, h, c, 0, 1, print)
	ok(t, h.Update(ctx, func(tx *Tx) error {
		for i := range int64(30) {
			if err := tx.by.Put(indexKey(byHandlerOutput, 1000+i, "mail"), []byte("handler_gone")); err != nil {
				return err
			}
		}
		return nil
	}))
	failures(t, h, c, 1, 3, print)
	for i := range 4 {
		ok(t, h.Get(ctx, &RunRow{}, fmt.Sprintf("%032x", i)))
	}
}

// What HTML would escape stands in the history as it was printed.
func TestPlainOutput(t *testing.T) {
	c := newClock()
	h := inbox(t, WithClock(c.Now))
	const text = "<a href='x'>&</a>"
	failures(t, h, c, 0, 1, func(int) string { return text })
	for s, err := range h.Steps(ctx, fmt.Sprintf("%032x", 0)) {
		ok(t, err)
		if !strings.Contains(string(s.Output), text) {
			t.Errorf("%s", s.Output)
		}
	}
}

// A handler that prints 16 KiB and fails, once a minute: what its history takes is
// bounded, with outputs that are equal and that differ, and the rows stay.
func TestFailingBytes(t *testing.T) {
	defer func(n, m int64) { pruneBytes, pruneEvery = n, m }(pruneBytes, pruneEvery)
	pruneBytes, pruneEvery = 1<<20, 50
	const runs = 400
	line := `{"at":"x","error":"<no such \"table\">"}` + "\n"
	text := strings.Repeat(line, 16<<10/len(line))
	for name, tt := range map[string]struct {
		output func(i int) string
		most   int64
	}{
		"equal":  {func(int) string { return text }, 8000 * runs},
		"differ": {func(i int) string { return fmt.Sprint(i, text) }, 10 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClock()
			h := inbox(t, WithClock(c.Now))
			for i := 0; i < runs; i += 20 {
				failures(t, h, c, i, 20, tt.output)
			}
			n := historyBytes(t, h)
			t.Logf("%d bytes, %d a run", n, n/runs)
			if n > tt.most {
				t.Errorf("%d runs take %d bytes, want at most %d", runs, n, tt.most)
			}
			if n := len(all(t, h.HandlerRuns(ctx, HandlerQuery{}))); n != runs {
				t.Errorf("%d runs are left", n)
			}
			rebuilt(t, h)
		})
	}
}
