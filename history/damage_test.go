package history

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"thread/engine"
	"thread/index"
	"thread/internal/faults"
)

// errStep is damage that shows in one step only.
var errStep = fmt.Errorf("%w: on purpose", index.ErrDamaged)

// TestStepsOfRecover: at each look at a page, and at each write, a recovery meets damage once.
// It returns that, or has done all; each run is recovered as a whole or not at all, and the
// next recovery does what is left.
func TestStepsOfRecover(t *testing.T) {
	ids := []string{"silent", "left", "kept", "doubtful", "retried"}
	want := map[string]string{"silent": Failed, "left": Failed, "kept": Completed, "doubtful": Failed, "retried": Queued}
	begin := func(dir string, c *clock) *History {
		h := abandoned(t, dir, c)
		kept := StepRow{RunID: "kept", StepType: "command", Status: Running}
		r := one[*Run](t)(h.StartRun(ctx, RunRow{ID: "kept"}, Supervised(), With(func(tx *Tx, _ *RunRow) error { return tx.Put(&kept) })))
		one[StepRow](t)(r.Step(ctx, StepRow{StepType: "x", Status: Running}))
		kept.Output = raw(`{"exit_code":0}`)
		ok(t, r.Keep(End{Status: Completed}, &kept))
		r = one[*Run](t)(h.StartRun(ctx, RunRow{ID: "doubtful"}, Supervised()))
		s, _, err := r.BeginStep(ctx, "pay", Once())
		ok(t, err)
		s.leave()
		r.Leave()
		job := RunRow{ID: "retried"}
		ok(t, SetJob(&job, Job{Retries: 3, BackoffMS: 1000}))
		one[RunRow](t)(h.Enqueue(ctx, job))
		r, _, err = h.Claim(ctx, Supervised())
		ok(t, err)
		r.Leave()
		c.add(time.Hour)
		return h
	}
	stride := 1
	if testing.Short() {
		stride = 37
	}
	for at, more := 1, true; more && !t.Failed(); at += stride {
		dir := faults.Dir(t)
		c := newClock()
		h := begin(dir, c)
		n := 0
		back := index.FailSteps(func() error {
			if n++; n == at {
				return errStep
			}
			return nil
		})
		list, err := h.Recover(ctx, RecoverOptions{})
		back()
		more = n >= at
		if err != nil && !errors.Is(err, errStep) && !errors.Is(err, engine.ErrCorrupt) || !more && (err != nil || len(list) != len(ids)) {
			t.Errorf("step %d: %d recovered, %v", at, len(list), err)
		}
		for i := range list {
			if is := row(t, h, list[i].ID); is.Status != want[is.ID] || text(&is) != text(&list[i]) {
				t.Errorf("step %d: %s is returned, %s is stored", at, text(&list[i]), text(&is))
			}
		}
		for _, id := range ids {
			if is := row(t, h, id); is.Status != Running && is.Status != want[id] {
				t.Errorf("step %d: %s", at, text(&is))
			}
		}
		for range 2 { // of a run whose beat was not known, the time counts from then
			one[[]RunRow](t)(h.Recover(ctx, RecoverOptions{}))
			c.add(time.Hour)
		}
		for _, id := range ids {
			if is := row(t, h, id); is.Status != want[id] {
				t.Errorf("step %d, recovered again: %s", at, text(&is))
			}
			for s, err := range h.Steps(ctx, id) {
				if ok(t, err); s.Status == Running {
					t.Errorf("step %d: a step of %s is %s", at, id, text(&s))
				}
			}
		}
		ok(t, h.Close())
	}
}

// TestKeepCannotBeStored: an end that cannot be kept is an error, and the worker stays.
func TestKeepCannotBeStored(t *testing.T) {
	h := inbox(t)
	step := StepRow{RunID: "R", StepType: "command", Status: Running}
	r := one[*Run](t)(h.StartRun(t.Context(), RunRow{ID: "R"}, Supervised(), With(func(tx *Tx, _ *RunRow) error { return tx.Put(&step) })))
	inTheWay(t, h.keptPath("R"))
	if err := r.Keep(End{Status: Completed}, &step); err == nil {
		t.Error("it is kept in place of a directory")
	}
	ok(t, r.End(t.Context(), End{Status: Completed}))
	if is := row(t, h, "R"); is.Status != Completed {
		t.Errorf("%s", text(&is))
	}
}

// inTheWay makes a directory that is not empty.
func inTheWay(t *testing.T, path string) {
	t.Helper()
	ok(t, os.MkdirAll(filepath.Join(path, "full"), 0o700))
}
