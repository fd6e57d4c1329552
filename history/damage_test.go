package history

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
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

// TestStepsOfWhatWasQueued: where only runs that were never queued are recovered, damage of what
// was queued is an error.
func TestStepsOfWhatWasQueued(t *testing.T) {
	for at, more := 1, true; more && !t.Failed(); at++ {
		c := newClock()
		h := abandoned(t, faults.Dir(t), c)
		n := 0
		back := index.FailSteps(func() error {
			if n++; n == at {
				return errStep
			}
			return nil
		})
		list, err := h.Recover(ctx, RecoverOptions{NeverQueued: true})
		back()
		if more = n >= at; (err == nil) != (len(list) == 2) && !more {
			t.Errorf("step %d: %d recovered, %v", at, len(list), err)
		}
		for range 2 {
			one[[]RunRow](t)(h.Recover(ctx, RecoverOptions{NeverQueued: true}))
			c.add(time.Hour)
		}
		for _, id := range []string{"silent", "left"} {
			if is := row(t, h, id); is.Status != Failed {
				t.Errorf("step %d: %s", at, text(&is))
			}
		}
		ok(t, h.Close())
	}
}

// TestDamagedRowOfAKeptEnd: an end whose step cannot be read is not stored.
func TestDamagedRowOfAKeptEnd(t *testing.T) {
	h := inbox(t)
	step := StepRow{RunID: "R", StepType: "command", Status: Running}
	r := one[*Run](t)(h.StartRun(t.Context(), RunRow{ID: "R", TriggerType: "message"}, Supervised(), With(func(tx *Tx, _ *RunRow) error { return tx.Put(&step) })))
	ok(t, r.Keep(End{Status: Completed}, &step))
	ok(t, h.Update(ctx, func(tx *Tx) error { return tx.rows.Put(rowKey(step.Entity(), step.ID), []byte("{")) }))
	if list, err := h.Recover(ctx, RecoverOptions{}); err == nil {
		t.Errorf("recovered %d", len(list))
	}
	if is := row(t, h, "R"); is.Status != Running {
		t.Errorf("%s", text(&is))
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

// TestRateClock: the time line of a limit of starts never goes back, and continues with the
// uptime as long as that is of the same boot.
func TestRateClock(t *testing.T) {
	at := time.UnixMilli(1_773_829_800_000)
	for name, tt := range map[string]struct {
		was  rateState
		boot string
		up   time.Duration
		wall time.Time
		want int64
		back bool
	}{
		"the first start":                 {rateState{NowMS: 7}, "b", time.Hour, at, 7, false},
		"the same boot":                   {rateState{NowMS: 7, Boot: "b", UpMS: 1000, WallMS: 1}, "b", 3 * time.Second, at, 2007, false},
		"the same boot, clock set back":   {rateState{NowMS: 7, Boot: "b", UpMS: 1000, WallMS: at.UnixMilli() + 5}, "b", 3 * time.Second, at, 2007, false},
		"another boot":                    {rateState{NowMS: 7, Boot: "a", UpMS: 9000, WallMS: 1}, "b", 3 * time.Second, at, 3007, false},
		"no uptime":                       {rateState{NowMS: 7, WallMS: at.UnixMilli() - 5}, "", 0, at, 12, false},
		"no uptime, the same time":        {rateState{NowMS: 7, WallMS: at.UnixMilli()}, "", 0, at, 7, false},
		"no uptime, clock set back":       {rateState{NowMS: 7, WallMS: at.UnixMilli() + 5}, "", 0, at, 7, true},
		"no uptime now, and one before":   {rateState{NowMS: 7, Boot: "b", UpMS: 1000, WallMS: at.UnixMilli() - 5}, "", 0, at, 12, false},
		"no uptime before, and one now":   {rateState{NowMS: 7, WallMS: at.UnixMilli() - 5}, "b", time.Minute, at, 60_007, false},
		"the same boot, at the same time": {rateState{NowMS: 7, Boot: "b", UpMS: 3000, WallMS: at.UnixMilli()}, "b", 3 * time.Second, at, 7, false},
	} {
		s := tt.was
		s.advance(tt.boot, tt.up, tt.wall)
		if s.NowMS != tt.want || s.back != tt.back || s.Boot != tt.boot || s.UpMS != tt.up.Milliseconds() || s.WallMS != tt.wall.UnixMilli() {
			t.Errorf("%s: %+v, want %d, %v", name, s, tt.want, tt.back)
		}
	}
}

// TestLongestQuestions: a question, a filter and an answer have at most MaxAnswer bytes.
func TestLongestQuestions(t *testing.T) {
	text := strings.Repeat("x", MaxAnswer+1)
	for _, tt := range []struct {
		w  Wait
		ok bool
	}{
		{Wait{Ask: text[1:]}, true}, {Wait{Ask: text}, false}, {Wait{Filter: text[1:]}, true}, {Wait{Filter: text}, false},
		{Wait{For: ForTime}, false}, {Wait{For: ForTime, Until: time.Now()}, true}, {Wait{For: ForRun}, false}, {Wait{For: ForRun, Run: "r"}, false},
		{Wait{For: ForRun, Run: "other"}, true}, {Wait{For: "what"}, false},
	} {
		w := tt.w
		w.Key, w.For = "k", cmp.Or(w.For, ForApproval)
		if err := w.valid("r"); (err == nil) != tt.ok {
			t.Errorf("%s of %d and %d bytes: %v", w.For, len(w.Ask), len(w.Filter), err)
		}
	}
}

// TestStepsOfAnswers: at each look at a page, and at each write, an answer meets damage once. It
// returns that and nothing is answered, or it has done all: the run continues.
func TestStepsOfAnswers(t *testing.T) {
	for at, more := 1, true; more && !t.Failed(); at++ {
		h := openIn(t, faults.Dir(t))
		one[RunRow](t)(h.Enqueue(ctx, RunRow{ID: "r"}))
		r, _, err := h.Claim(ctx)
		ok(t, err)
		if _, err := r.Wait(ctx, "k", Wait{For: ForApproval}); !errors.Is(err, ErrWaiting) {
			t.Fatal(err)
		}
		ok(t, r.End(ctx, End{Status: Waiting}))
		n := 0
		back := index.FailSteps(func() error {
			if n++; n == at {
				return errStep
			}
			return nil
		})
		err = h.Answer(ctx, "r", "k", Answer{Result: Approved})
		back()
		more = n >= at
		is := row(t, h, "r")
		if want := map[bool]string{true: Queued, false: Waiting}[err == nil]; is.Status != want || !more && err != nil {
			t.Errorf("step %d: %s, and the error %v", at, text(&is), err)
		}
		if err != nil {
			ok(t, h.Answer(ctx, "r", "k", Answer{Result: Approved}))
		}
		if err := h.Answer(ctx, "r", "k", Answer{Result: Denied}); !errors.Is(err, ErrState) {
			t.Errorf("step %d: answered twice: %v", at, err)
		}
		ok(t, h.Close())
	}
}
