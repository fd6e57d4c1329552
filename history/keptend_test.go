package history

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"thread/engine"
	"thread/internal/faults"
)

// TestKeptEndLeavesOtherSteps: an end that was kept changes the run's own running step, and
// no step that has ended or is another run's.
func TestKeptEndLeavesOtherSteps(t *testing.T) {
	for what, change := range map[string]func(s *StepRow){
		"running": func(*StepRow) {}, "ended": func(s *StepRow) { s.Status = Cancelled }, "of another run": func(s *StepRow) { s.RunID = "other" },
	} {
		c := newClock()
		h := inbox(t, WithClock(c.Now))
		one[*Run](t)(h.StartRun(ctx, RunRow{ID: "other"}, Supervised()))
		step := StepRow{RunID: "r", StepType: "command", Status: Running}
		change(&step)
		r := one[*Run](t)(h.StartRun(ctx, RunRow{ID: "r"}, Supervised(), With(func(tx *Tx, _ *RunRow) error { return tx.Put(&step) })))
		kept := step
		kept.Output = raw(`{"exit_code":0}`)
		ok(t, r.Keep(End{Status: Completed}, &kept))
		c.add(time.Hour)
		one[[]RunRow](t)(h.Recover(ctx, RecoverOptions{Only: func(r *RunRow) bool { return r.ID == "r" }}))
		if is := row(t, h, "r"); is.Status != Completed {
			t.Errorf("%s: %s", what, text(&is))
		}
		for s := range h.Steps(ctx, step.RunID) {
			if changed := s.Output != nil; changed != (what == "running") {
				t.Errorf("%s: its step is %s", what, text(&s))
			}
		}
	}
}

// TestRecoverBesideADamagedRun: a run that cannot be read is an error of Recover.
func TestRecoverBesideADamagedRun(t *testing.T) {
	c := newClock()
	h := inbox(t, WithClock(c.Now))
	one[*Run](t)(h.StartRun(ctx, RunRow{ID: "r"})).Leave()
	ok(t, h.Update(ctx, func(tx *Tx) error {
		key := rowKey(RunEntity, "r")
		return tx.rows.Put(key, append(append([]byte{}, tx.rows.Get(key)...), 'x'))
	}))
	c.add(time.Hour)
	if list, err := h.Recover(ctx, RecoverOptions{}); len(list) != 0 || !errors.Is(err, engine.ErrCorrupt) {
		t.Errorf("%d recovered, %v", len(list), err)
	}
}

// TestKeptEndOfAnotherAttempt: an end that an attempt before has kept, or that is none, is not the
// end of this one.
func TestKeptEndOfAnotherAttempt(t *testing.T) {
	for what, spoil := range map[string]func(text string) string{
		"of the attempt before": func(text string) string { return strings.Replace(text, `"attempt":1`, `"attempt":0`, 1) },
		"cut":                   func(text string) string { return text[:len(text)-1] },
		"of no status":          func(text string) string { return strings.Replace(text, Completed, "done", 1) },
		"of a run that runs":    func(text string) string { return strings.Replace(text, Completed, Running, 1) },
		"of this attempt":       func(text string) string { return text },
	} {
		h := inbox(t)
		r := one[*Run](t)(h.StartRun(ctx, RunRow{ID: "r"}, Supervised()))
		ok(t, r.Keep(End{Status: Completed}, &StepRow{}))
		text := string(one[[]byte](t)(os.ReadFile(h.keptPath("r"))))
		ok(t, os.WriteFile(h.keptPath("r"), []byte(spoil(text)), 0o600))
		one[[]RunRow](t)(h.Recover(ctx, RecoverOptions{}))
		want := Failed
		if spoil(text) == text {
			want = Completed
		}
		if is := row(t, h, "r"); is.Status != want {
			t.Errorf("%s: %s", what, text)
		}
	}
}

// TestRecoverOneOfBefore: a run that has another attempt or status than when it was judged is not
// recovered, whatever it was judged to be.
func TestRecoverOneOfBefore(t *testing.T) {
	h := inbox(t)
	one[*Run](t)(h.StartRun(ctx, RunRow{ID: "r"}, Supervised())).Leave()
	now := row(t, h, "r")
	for what, change := range map[string]func(r *RunRow){
		"its attempt": func(r *RunRow) { r.Attempt++ }, "its status": func(r *RunRow) { r.Status = Waiting }, "its id": func(r *RunRow) { r.ID = "none" },
	} {
		before := now
		change(&before)
		if done, err := h.recoverOne(ctx, &before, &RecoverOptions{Strategy: Fail}); done || err != nil {
			t.Errorf("%s has changed: %v, %v", what, done, err)
		}
	}
	if done, err := h.recoverOne(ctx, &now, &RecoverOptions{Strategy: Fail}); !done || err != nil {
		t.Errorf("nothing has changed: %v, %v", done, err)
	}
}

// TestEndLeftKeepsNothingOpen: who looks for what a worker has left has nothing open afterwards.
func TestEndLeftKeepsNothingOpen(t *testing.T) {
	dir := faults.Dir(t)
	h := openIn(t, dir)
	one[*Run](t)(h.StartRun(ctx, RunRow{ID: "r"}, Supervised())).Leave()
	for range 2 {
		if done, err := h.endLeft(ctx, "r"); !done || err != nil {
			t.Errorf("%v, %v", done, err)
		}
	}
	busy := filepath.Join(h.parent, "run", "a.busy")
	ok(t, errors.Join(os.MkdirAll(filepath.Dir(busy), 0o700), os.WriteFile(busy, nil, 0o600)))
	h.handlerRuns(&RunRow{ID: "r", AgentName: "a"})
	ends(t, h, dir)
}
