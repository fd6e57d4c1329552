package history

import (
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"thread/engine"
	"thread/internal/faults"
)

// ofFiles are the system calls that fail in tests of this file.
var ofFiles = []string{"openat", "write", "pread64", "pwrite64", "fsync", "fdatasync", "ftruncate", "flock", "unlinkat", "mkdirat", "newfstatat", "fstat"}

// ends closes a history. Nothing below dir is open then.
func ends(t *testing.T, h *History, dir string) {
	t.Helper()
	ok(t, h.Close())
	if open := faults.Open(t, dir); open != nil {
		t.Errorf("open are %q", open)
	}
}

// abandoned makes a history in dir with two runs whose workers are gone, one of them
// supervised, in the midst of two steps.
func abandoned(t *testing.T, dir string, c *clock) *History {
	t.Helper()
	h := openIn(t, dir, WithClock(c.Now))
	for _, id := range []string{"silent", "left"} {
		var o []RunOption
		if id == "left" {
			o = append(o, Supervised())
		}
		r := one[*Run](t)(h.StartRun(ctx, RunRow{ID: id}, o...))
		for range 2 {
			one[StepRow](t)(r.Step(ctx, StepRow{StepType: "x", Status: Running}))
		}
		ok(t, r.BeatOnce(ctx))
		r.Leave()
	}
	c.add(time.Hour)
	return h
}

// TestFailuresOfRecover: when a system call of a recovery fails, a run is recovered as a whole
// or not at all, and the next recovery does what is left. Nothing stays open or locked.
func TestFailuresOfRecover(t *testing.T) {
	faults.Each(t, syscall.EIO, ofFiles, func(t *testing.T, f *faults.Fault) {
		dir := faults.Dir(t)
		c := newClock()
		h := abandoned(t, dir, c)
		var failed error
		var list []RunRow
		f.Run(t, dir, func() { list, failed = h.Recover(ctx, RecoverOptions{}) })
		if f.Hit == nil && (failed != nil || len(list) != 2) {
			t.Errorf("%d recovered, %v", len(list), failed)
		}
		if f.Hit != nil && f.Hit.Name != "newfstatat" && strings.HasSuffix(f.Hit.Path, "events.db") && failed == nil && len(list) != 2 {
			t.Errorf("%d recovered without an error", len(list))
		}
		if f.Hit == nil {
			left, err := filepath.Glob(filepath.Join(h.Dir(), "run", ".beat", "*"))
			if ok(t, err); len(left) > 0 {
				t.Errorf("left are %q", left)
			}
		}
		for i := range list {
			if is := row(t, h, list[i].ID); is.Status != Failed || text(&is) != text(&list[i]) {
				t.Errorf("%s is returned, %s is stored", text(&list[i]), text(&is))
			}
		}
		for _, id := range []string{"silent", "left"} {
			is := row(t, h, id)
			if recovered := recoveredBy(&is); recovered == (is.Status == Running) {
				t.Errorf("%s", text(&is))
			}
		}
		// Of a run of which no beat could be seen, the time counts from now.
		for range 2 {
			one[[]RunRow](t)(h.Recover(ctx, RecoverOptions{}))
			c.add(time.Hour)
		}
		for _, id := range []string{"silent", "left"} {
			if is := row(t, h, id); is.Status != Failed || is.ErrorCode != CodeRecovery || is.EndedAt.IsZero() {
				t.Errorf("%s", text(&is))
			}
			for s, err := range h.Steps(ctx, id) {
				if ok(t, err); s.Status != Failed || s.EndedAt.IsZero() {
					t.Errorf("its step is %s", text(&s))
				}
			}
		}
		if list := one[[]RunRow](t)(h.Recover(ctx, RecoverOptions{})); len(list) != 0 {
			t.Errorf("recovered again: %d", len(list))
		}
		ends(t, h, dir)
	})
}

// TestFailuresOfAWorker: when a system call of a supervised worker fails, its run is as it
// says or it returns an error, and a worker that has left holds no lock.
func TestFailuresOfAWorker(t *testing.T) {
	faults.Each(t, syscall.EIO, ofFiles, func(t *testing.T, f *faults.Fault) {
		dir := faults.Dir(t)
		c := newClock()
		h := openIn(t, dir, WithClock(c.Now))
		var failed error
		var r *Run
		f.Run(t, dir, func() {
			if r, failed = h.StartRun(ctx, RunRow{ID: "r"}, Supervised()); failed == nil {
				failed = r.BeatOnce(ctx)
			}
			if failed == nil {
				failed = r.End(ctx, End{Status: Completed})
			}
		})
		if f.Hit == nil && failed != nil {
			t.Error(failed)
		}
		if r != nil {
			r.Leave()
		}
		for range 2 { // without a beat, the time counts from now
			c.add(time.Hour)
			one[[]RunRow](t)(h.Recover(ctx, RecoverOptions{}))
		}
		var is RunRow
		switch err := h.Get(ctx, &is, "r"); {
		case errors.Is(err, ErrNotFound):
			if failed == nil {
				t.Error("the run is not there")
			}
		case err != nil:
			t.Error(err)
		case failed == nil && is.Status != Completed, is.Status == Running:
			t.Errorf("%s, after %v", text(&is), failed)
		}
		ends(t, h, dir)
	})
}

// TestEndedBesideRecover: a worker that ends its run while that is recovered has ended it, or
// is told that it was recovered; whenever that is.
func TestEndedBesideRecover(t *testing.T) {
	for at, more := 1, true; more && !t.Failed(); at += 2 {
		dir := faults.Dir(t)
		c := newClock()
		h := abandoned(t, dir, c)
		other := reopen(t, filepath.Join(dir, "inbox"), WithClock(c.Now), WithEngine(engine.WithLockWait(time.Millisecond)))
		more = false
		err := errors.New("not yet")
		f := faults.Fault{Before: func(_ faults.Call, n int) {
			if n < at || err == nil || errors.Is(err, ErrRecovered) {
				return
			}
			more = true
			err = other.Attach("silent", 1).End(ctx, End{Status: Completed}) // at the next call when it is busy
		}}
		var failed error
		f.Run(t, dir, func() { _, failed = h.Recover(ctx, RecoverOptions{}) })
		ok(t, failed)
		want := map[bool]string{true: Completed, false: Failed}[err == nil]
		if is := row(t, h, "silent"); is.Status != want {
			t.Errorf("at call %d the end returned %v: %s", at, err, text(&is))
		}
		if is := row(t, h, "left"); is.Status != Failed {
			t.Errorf("at call %d: %s", at, text(&is))
		}
		ok(t, errors.Join(h.Close(), other.Close()))
	}
}
