package history

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"thread/internal/faults"
	"thread/lock"
)

// locked reports whether something has the lock of that file; it is not made.
func locked(path string) bool { return errors.Is(ask(path), lock.ErrHeld) }

// TestFailuresOfKeep: an end is kept as a whole and on the disk, and its run is left; or there
// is an error and the worker has the run still.
func TestFailuresOfKeep(t *testing.T) {
	faults.Each(t, syscall.EIO, nil, func(t *testing.T, f *faults.Fault) {
		dir := faults.Dir(t)
		h := openIn(t, dir)
		step := StepRow{RunID: "r", StepType: "command", Status: Running}
		r := one[*Run](t)(h.StartRun(ctx, RunRow{ID: "r"}, Supervised(), With(func(tx *Tx, _ *RunRow) error { return tx.Put(&step) })))
		step.Output = raw(`{"exit_code":3}`)
		var err error
		f.Run(t, dir, func() { err = r.Keep(End{Status: Failed, ErrorCode: "kept"}, &step) })
		switch {
		case f.Hit == nil && err != nil:
			t.Error(err)
		case err == nil && len(f.Names("fsync")) == 0:
			t.Errorf("it is not on the disk: %v", f.Calls)
		case (err != nil) != locked(h.beatPath("r")), (err != nil) != locked(h.treePath("r")):
			t.Errorf("after %v, locked: %v and %v", err, locked(h.beatPath("r")), locked(h.treePath("r")))
		}
		r.Leave()
		one[[]RunRow](t)(h.Recover(ctx, RecoverOptions{}))
		if is := row(t, h, "r"); err == nil && is.ErrorCode != "kept" || is.Status != Failed {
			t.Errorf("kept: %v: %s", err, text(&is))
		}
		ends(t, h, dir)
	})
	h := inbox(t)
	r := one[*Run](t)(h.StartRun(ctx, RunRow{ID: "r"}, Supervised()))
	h.now = func() time.Time { return time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }
	if r.Keep(End{Status: Failed}, &StepRow{}) == nil || exists(h.keptPath("r")) || !locked(h.beatPath("r")) {
		t.Error("an end in a year of five digits is kept")
	}
}

func exists(path string) bool { _, err := os.Lstat(path); return !errors.Is(err, fs.ErrNotExist) }

// TestFailuresOfSupervise: the locks of a run are had, or there is an error and none of them is.
func TestFailuresOfSupervise(t *testing.T) {
	for _, alone := range []bool{false, true} {
		faults.Each(t, syscall.EIO, nil, func(t *testing.T, f *faults.Fault) {
			dir := faults.Dir(t)
			h := openIn(t, dir)
			ok(t, h.Update(ctx, func(*Tx) error { return nil })) // makes it
			var own, tree *lock.File
			var err error
			f.Run(t, dir, func() { own, tree, err = h.supervise("r", alone) })
			switch {
			case f.Hit == nil && err != nil:
				t.Error(err)
			case f.Hit != nil && f.Hit.Name == "openat" && err == nil:
				t.Errorf("%v has failed, and it is supervised", f.Hit)
			case (err == nil) != (own != nil), (err == nil && !alone) != (tree != nil):
				t.Errorf("locks %v and %v, %v", own, tree, err)
			case (err == nil) != locked(h.beatPath("r")), (err == nil && !alone) != locked(h.treePath("r")):
				t.Errorf("locked: %v and %v, after %v", locked(h.beatPath("r")), locked(h.treePath("r")), err)
			}
			for _, l := range []*lock.File{own, tree} {
				if l != nil {
					ok(t, l.Close())
				}
			}
			ends(t, h, dir)
		})
	}
	// With locks that others have.
	h := inbox(t)
	ok(t, h.Update(ctx, func(*Tx) error { return nil })) // makes it
	ok(t, h.makeBeatDir())
	worker := one[*lock.File](t)(lock.Try(h.beatPath("r"), lock.Exclusive))
	for _, alone := range []bool{false, true} {
		if own, _, err := h.supervise("r", alone); own != nil || !errors.Is(err, lock.ErrHeld) {
			t.Errorf("alone: %v, beside a worker: %v, %v", alone, own, err)
		}
	}
	ok(t, worker.Close())
	command := one[*lock.File](t)(lock.Try(h.treePath("r"), lock.Exclusive))
	for _, alone := range []bool{false, true} {
		var left *leftError
		if own, _, err := h.supervise("r", alone); own != nil || !errors.As(err, &left) || locked(h.beatPath("r")) {
			t.Errorf("alone: %v, beside a command: %v, %v", alone, own, err)
		}
	}
	ok(t, command.Close())
}

// TestBeatAfterRunIsDeleted: a worker takes its locks again when run/ was deleted, those that it
// had before and no other, and keeps none of the files that have no name any more. Where that
// cannot be done, it is told.
func TestBeatAfterRunIsDeleted(t *testing.T) {
	for _, alone := range []bool{false, true} {
		dir := faults.Dir(t)
		h := openIn(t, dir)
		r := one[*Run](t)(h.StartRun(ctx, RunRow{ID: "r"}, Supervised()))
		if alone { // as run do has it
			ok(t, r.tree.Close())
			r.tree = nil
		}
		ok(t, r.BeatOnce(ctx))
		first := r.lock
		ok(t, os.RemoveAll(filepath.Join(h.Dir(), "run")))
		ok(t, r.BeatOnce(ctx))
		if r.lock == first || !locked(h.beatPath("r")) || (r.tree == nil) != alone || locked(h.treePath("r")) == alone {
			t.Errorf("alone: %v; locked: %v and %v", alone, locked(h.beatPath("r")), locked(h.treePath("r")))
		}
		for _, name := range faults.Open(t, dir) {
			if strings.HasSuffix(name, "(deleted)") && strings.Contains(name, ".beat") {
				t.Errorf("alone: %v; open is %q", alone, name)
			}
		}
		again := r.lock
		ok(t, r.BeatOnce(ctx))
		if r.lock != again {
			t.Error("it takes another lock, and nothing was deleted")
		}
		// Another process has the run by now.
		ok(t, os.RemoveAll(filepath.Join(h.Dir(), "run")))
		ok(t, h.makeBeatDir())
		other := one[*lock.File](t)(lock.Try(h.beatPath("r"), lock.Exclusive))
		for range 2 {
			if err := r.BeatOnce(ctx); !errors.Is(err, lock.ErrHeld) {
				t.Errorf("alone: %v; beside another worker: %v", alone, err)
			}
		}
		ok(t, other.Close())
		ok(t, r.BeatOnce(ctx))
		ok(t, r.End(ctx, End{Status: Completed}))
		ends(t, h, dir)
	}
}

// TestBeatsAsOftenAsTold: a run beats again after the interval that it was given, after five
// seconds where that is none, and not more often than is allowed.
func TestBeatsAsOftenAsTold(t *testing.T) {
	for every, often := range map[time.Duration]bool{0: false, -1: false, time.Hour: false, 1: true, MinBeat: true} {
		t.Run(every.String(), func(t *testing.T) {
			t.Parallel()
			c := newClock()
			h := inbox(t, WithClock(c.Now))
			r := one[*Run](t)(h.StartRun(ctx, RunRow{ID: "r"}))
			beats := func(expected bool) bool {
				c.add(time.Minute)
				want, within := c.Now(), 5*MinBeat
				if expected {
					within = time.Minute
				}
				for late := time.Now().Add(within); time.Now().Before(late); time.Sleep(time.Millisecond) {
					if h.beatOf("r").Equal(want) {
						return true
					}
				}
				return false
			}
			_, stop := r.Beat(ctx, every)
			if !beats(true) {
				t.Errorf("every %v: it has not beaten", every)
			}
			if got := beats(often); got != often {
				t.Errorf("every %v: it has beaten again: %v", every, got)
			}
			stop()
			if beats(false) {
				t.Errorf("every %v: it beats, and was stopped", every)
			}
			ok(t, h.Close())
		})
	}
}

// TestLeaveGivesTheTreeLockFirst: while a worker leaves its run, its command's lock is never held
// without its own: recovery would end the worker.
func TestLeaveGivesTheTreeLockFirst(t *testing.T) {
	dir := faults.Dir(t)
	h := openIn(t, dir)
	r := one[*Run](t)(h.StartRun(ctx, RunRow{ID: "r"}, Supervised()))
	met := 0
	f := faults.Fault{Before: func(c faults.Call, _ int) {
		if c.Name == "close" && strings.HasSuffix(c.Path, "/.beat/r") {
			if met++; locked(h.treePath("r")) || !locked(h.beatPath("r")) {
				t.Errorf("locked: %v and %v", locked(h.beatPath("r")), locked(h.treePath("r")))
			}
		}
	}}
	f.Run(t, dir, r.Leave)
	if met != 1 || locked(h.beatPath("r")) {
		t.Errorf("closed %d times; it is locked: %v", met, locked(h.beatPath("r")))
	}
}
