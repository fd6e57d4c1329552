package history

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"thread/engine"
	"thread/event"
)

// waitModel is a run that waits once, by simple rules: the first of answer, event, end of the
// other run and timeout that comes while it waits is the answer, for good.
type waitModel struct {
	id     string
	status string // of the run
	asked  bool   // Wait was called
	until  time.Time
	came   bool   // an event that is the answer, in time
	result string // of the answer, "" before
	kind   string
}

// TestWaits compares runs that wait with the model: exactly one answer counts, a run with an
// answer is started again, and one without is not.
func TestWaits(t *testing.T) {
	base := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		clock := newClock()
		dir := one[string](t)(os.MkdirTemp(base, ""))
		h := openIn(t, dir, WithClock(clock.Now), WithEngine(engine.WithClock(clock.Now)))
		th := one[*engine.Thread](t)(engine.Open(h.parent, engine.WithClock(clock.Now)))
		one[RunRow](t)(h.Enqueue(ctx, RunRow{ID: "dep", AgentName: "never"}))
		depEnded := false
		var all []*waitModel
		active := map[string]*Run{}
		pick := func() *waitModel {
			if len(all) == 0 {
				return nil
			}
			return all[rapid.IntRange(0, len(all)-1).Draw(t, "run")]
		}
		answered := func(m *waitModel, result string) {
			if m.result = result; m.status == Waiting {
				m.status = Queued
			}
		}
		release := func() { // what a worker looks at before it claims: events, then times
			for _, m := range all {
				switch {
				case m.status != Waiting || m.result != "":
				case m.came:
					answered(m, Happened)
				case m.until.IsZero() || m.until.After(clock.Now()):
				case m.kind == ForTime:
					answered(m, TimeCame)
				default:
					answered(m, TimedOutWait)
				}
			}
		}
		wait := func(m *waitModel) {
			w := Wait{For: m.kind}
			switch m.kind {
			case ForRun:
				w.Run = "dep"
			case ForEvent:
				w.Filter = "type = 'go'"
			}
			if w.Until = m.until; !m.asked && (m.kind == ForTime || rapid.Bool().Draw(t, "timeout")) {
				w.Until = clock.Now().Add(time.Duration(rapid.IntRange(1, 20).Draw(t, "until")) * time.Second)
			}
			if m.asked {
				w.Until = clock.Now().Add(time.Hour) // the first call decides
			} else {
				m.until = w.Until
			}
			a, err := active[m.id].Wait(ctx, "k", w)
			if !m.asked && m.kind == ForRun && depEnded {
				m.result = HasEnded
			}
			m.asked = true
			switch {
			case m.result == "" && !errors.Is(err, ErrWaiting), m.result != "" && (err != nil || a.Result != m.result):
				t.Fatalf("%s waits: %v, %v, want %q", m.id, a, err, m.result)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"enqueue": func(t *rapid.T) {
				m := &waitModel{id: fmt.Sprint("r", len(all)), status: Queued, kind: rapid.SampledFrom(waitKinds).Draw(t, "kind")}
				one[RunRow](t)(h.Enqueue(ctx, RunRow{ID: m.id, AgentName: "a"}))
				all = append(all, m)
			},
			"claim": func(t *rapid.T) {
				release()
				want := ""
				for _, m := range all {
					if m.status == Queued {
						want = m.id
						break
					}
				}
				r := claims(t, h, want, ForAgents("a"))
				if r == nil {
					return
				}
				active[want] = r
				for _, m := range all {
					if m.id == want {
						m.status = Running
					}
				}
			},
			"wait": func(t *rapid.T) {
				if m := pick(); m != nil && m.status == Running {
					wait(m)
				}
			},
			"park": func(t *rapid.T) {
				m := pick()
				if m == nil || m.status != Running {
					return
				}
				ok(t, active[m.id].End(ctx, End{Status: Waiting, ErrorMessage: "x"}))
				switch {
				case !m.asked:
					m.status = Failed
				case m.result != "":
					// With the answer, the run may not wait any more: it depends on whether it asked in this attempt.
					var row RunRow
					ok(t, h.Get(ctx, &row, m.id))
					if m.status = row.Status; m.status != Queued && m.status != Failed {
						t.Fatalf("%s is %s after its answer", m.id, m.status)
					}
				default:
					m.status = Waiting
					if m.kind == ForRun && depEnded {
						answered(m, HasEnded)
					}
				}
			},
			"answer": func(t *rapid.T) {
				m := pick()
				if m == nil {
					return
				}
				result := rapid.SampledFrom([]string{Approved, Denied}).Draw(t, "result")
				err := h.Answer(ctx, m.id, "", Answer{Result: result})
				if m.kind != ForApproval || !m.asked || m.result != "" || hasEnded(m.status) {
					if !errors.Is(err, ErrState) {
						t.Fatalf("an answer to %+v: %v", *m, err)
					}
					return
				}
				ok(t, err)
				answered(m, result)
			},
			"cancel": func(t *rapid.T) {
				if m := pick(); m != nil && (m.status == Queued || m.status == Waiting) && rapid.IntRange(0, 3).Draw(t, "rarely") == 0 {
					one[RunRow](t)(h.Cancel(ctx, m.id))
					m.status = Cancelled
				}
			},
			"crash": func(t *rapid.T) {
				m := pick()
				if m == nil || m.status != Running {
					return
				}
				active[m.id].Leave()
				clock.add(time.Minute)
				one[[]RunRow](t)(h.Recover(ctx, RecoverOptions{Strategy: RequeueAll, MaxAttempts: 1000, Only: func(r *RunRow) bool { return r.ID == m.id }}))
				m.status = Queued
			},
			"end": func(t *rapid.T) {
				if m := pick(); m != nil && m.status == Running {
					ok(t, active[m.id].End(ctx, End{Status: Completed}))
					m.status = Completed
				}
			},
			"dep ends": func(t *rapid.T) {
				if depEnded || rapid.IntRange(0, 4).Draw(t, "rarely") > 0 {
					return
				}
				one[RunRow](t)(h.Cancel(ctx, "dep"))
				depEnded = true
				for _, m := range all {
					if m.kind == ForRun && m.status == Waiting && m.result == "" {
						answered(m, HasEnded)
					}
				}
			},
			"time": func(t *rapid.T) { clock.add(time.Duration(rapid.IntRange(1, 10).Draw(t, "s")) * time.Second) },
			"other": func(t *rapid.T) {
				one[event.Event](t)(th.Push(ctx, event.Draft{Source: "s", Type: "other", Content: "x"}))
			},
			"event": func(t *rapid.T) {
				one[event.Event](t)(th.Push(ctx, event.Draft{Source: "s", Type: "go", Content: "x"}))
				for _, m := range all {
					late := !m.until.IsZero() && m.until.Before(clock.Now())
					m.came = m.came || m.kind == ForEvent && m.asked && !late // also before its attempt has ended
				}
				released(t, h, ctx)
				release()
			},
			"": func(t *rapid.T) {
				for _, m := range all {
					var row RunRow
					ok(t, h.Get(ctx, &row, m.id))
					if row.Status != m.status {
						t.Fatalf("%s (%s) is %s, want %s", m.id, m.kind, row.Status, m.status)
					}
					for s := range h.Steps(ctx, m.id) {
						if row.Ended() && s.Status == Waiting {
							t.Fatalf("%s is %s, and its step waits", m.id, m.status)
						}
					}
				}
			},
		})
		rebuilt(t, h)
	})
}

// claims claims the run that is wanted, or with "" none, and then returns nil.
func claims(t *rapid.T, h *History, want string, opts ...RunOption) *Run {
	r, _, err := h.Claim(ctx, opts...)
	if want == "" {
		if !errors.Is(err, ErrNoneReady) {
			t.Fatalf("claimed %v, %v, want none", r, err)
		}
		return nil
	}
	ok(t, err)
	if r.ID() != want {
		t.Fatalf("claimed %s, want %s", r.ID(), want)
	}
	return r
}

// TestEventWakesWorker: a worker that waits starts a run when its event comes.
func TestEventWakesWorker(t *testing.T) {
	h := inbox(t)
	th := one[*engine.Thread](t)(engine.Open(h.parent))
	one[RunRow](t)(h.Enqueue(ctx, RunRow{ID: "r"}))
	r, _, err := h.Claim(ctx)
	ok(t, err)
	if _, err := r.Wait(ctx, "k", Wait{For: ForEvent, Filter: "type = 'go'"}); !errors.Is(err, ErrWaiting) {
		t.Fatal(err)
	}
	ok(t, r.End(ctx, End{Status: Waiting}))
	limited, cancel := context.WithTimeout(ctx, DefaultBeat/2) // before it would look by itself
	defer cancel()
	began := make(chan error)
	go func() {
		_, _, err := h.ClaimWait(limited)
		began <- err
	}()
	for waits := false; !waits; { // the watch has begun with the first look
		h.mu.Lock()
		waits = h.eventsWaited
		h.mu.Unlock()
	}
	one[event.Event](t)(th.Push(ctx, event.Draft{Source: "s", Type: "go", Content: "x"}))
	if err := <-began; err != nil {
		t.Fatal(err)
	}
}

// waitsUntil parks a run that waits for up to five seconds.
func waitsUntil(t *testing.T, h *History, clock *clock, id string, w Wait) (asked *Run) {
	t.Helper()
	one[RunRow](t)(h.Enqueue(ctx, RunRow{ID: id, AgentName: "a"}))
	r, _, err := h.Claim(ctx, ForAgents("a"))
	ok(t, err)
	w.Until = clock.Now().Add(5 * time.Second)
	if _, err := r.Wait(ctx, "k", w); !errors.Is(err, ErrWaiting) {
		t.Fatal(err)
	}
	return r
}

// answered claims the run and returns the answer to its wait.
func answered(t *testing.T, h *History, id string) Answer {
	t.Helper()
	r, row, err := h.Claim(ctx, ForAgents("a"))
	ok(t, err)
	if row.ID != id {
		t.Fatalf("claimed %s, want %s", row.ID, id)
	}
	a := one[Answer](t)(r.Wait(ctx, "k", Wait{For: ForApproval}))
	ok(t, r.End(ctx, End{Status: Completed}))
	return a
}

// TestRunEndsBeforePark: the run that is waited for ends after Wait and before the attempt has.
func TestRunEndsBeforePark(t *testing.T) {
	clock := newClock()
	h := inbox(t, WithClock(clock.Now))
	one[RunRow](t)(h.Enqueue(ctx, RunRow{ID: "dep", AgentName: "never"}))
	r := waitsUntil(t, h, clock, "r", Wait{For: ForRun, Run: "dep"})
	one[RunRow](t)(h.Cancel(ctx, "dep"))
	ok(t, r.End(ctx, End{Status: Waiting}))
	if a := answered(t, h, "r"); a.Result != HasEnded || a.Status != Cancelled {
		t.Errorf("%+v", a)
	}
}

// TestAnswerBeforePark: the answer comes after Wait and before the attempt has ended.
func TestAnswerBeforePark(t *testing.T) {
	clock := newClock()
	h := inbox(t, WithClock(clock.Now))
	r := waitsUntil(t, h, clock, "r", Wait{For: ForApproval})
	ok(t, h.Answer(ctx, "r", "k", Answer{Result: Denied, Reason: "no"}))
	if err := h.Answer(ctx, "r", "k", Answer{Result: Approved}); !errors.Is(err, ErrState) {
		t.Errorf("a second answer: %v", err)
	}
	ok(t, r.End(ctx, End{Status: Waiting}))
	if a := answered(t, h, "r"); a.Result != Denied || a.Reason != "no" {
		t.Errorf("%+v", a)
	}
}

// TestRunGoneBeforePark: the run that is waited for is deleted after Wait and before the attempt
// has ended.
func TestRunGoneBeforePark(t *testing.T) {
	clock := newClock()
	h := inbox(t, WithClock(clock.Now))
	one[RunRow](t)(h.Enqueue(ctx, RunRow{ID: "dep", AgentName: "never"}))
	r := waitsUntil(t, h, clock, "r", Wait{For: ForRun, Run: "dep"})
	ok(t, h.Update(ctx, func(tx *Tx) error { return tx.Delete(RunEntity, "dep") }))
	ok(t, r.End(ctx, End{Status: Waiting}))
	if a := answered(t, h, "r"); a.Result != HasEnded || a.Status != "" {
		t.Errorf("%+v", a)
	}
}

// TestAnswerNotJSON: an answer whose data is not JSON is refused, and the run waits on.
func TestAnswerNotJSON(t *testing.T) {
	clock := newClock()
	h := inbox(t, WithClock(clock.Now))
	ok(t, waitsUntil(t, h, clock, "r", Wait{For: ForApproval}).End(ctx, End{Status: Waiting}))
	if err := h.Answer(ctx, "r", "k", Answer{Result: Approved, Data: []byte("{")}); err == nil {
		t.Error("it was taken")
	}
	ok(t, h.Answer(ctx, "r", "k", Answer{Result: Denied}))
	if a := answered(t, h, "r"); a.Result != Denied {
		t.Errorf("%+v", a)
	}
}

// TestAnswerStays: a run that ends after the answer and does not wait keeps the answer; without
// one, what it waited for is cancelled.
func TestAnswerStays(t *testing.T) {
	for want, answer := range map[string]bool{Completed: true, Cancelled: false} {
		clock := newClock()
		h := inbox(t, WithClock(clock.Now))
		r := waitsUntil(t, h, clock, "r", Wait{For: ForApproval})
		if answer {
			ok(t, h.Answer(ctx, "r", "k", Answer{Result: Approved}))
		}
		ok(t, r.End(ctx, End{Status: Failed}))
		n := 0
		for s, err := range h.Steps(ctx, "r") {
			ok(t, err)
			if n++; s.Status != want {
				t.Errorf("the wait is %s, want %s", s.Status, want)
			}
		}
		if n != 1 {
			t.Errorf("%d steps", n)
		}
	}
}

// TestCancelBeforePark: a run that is cancelled after Wait does not wait.
func TestCancelBeforePark(t *testing.T) {
	clock := newClock()
	h := inbox(t, WithClock(clock.Now))
	r := waitsUntil(t, h, clock, "r", Wait{For: ForApproval})
	one[RunRow](t)(h.Cancel(ctx, "r"))
	ok(t, r.End(ctx, End{Status: Waiting}))
	var row RunRow
	ok(t, h.Get(ctx, &row, "r"))
	if row.Status != Cancelled {
		t.Errorf("the run is %s", row.Status)
	}
}

// TestEventOrTimeout: an event counts until the time of the wait, and not after it.
func TestEventOrTimeout(t *testing.T) {
	for _, c := range []struct {
		after time.Duration
		want  string
	}{{4 * time.Second, Happened}, {5 * time.Second, Happened}, {5*time.Second + time.Millisecond, TimedOutWait}} {
		clock := newClock()
		h := inbox(t, WithClock(clock.Now))
		th := one[*engine.Thread](t)(engine.Open(h.parent, engine.WithClock(clock.Now)))
		ok(t, waitsUntil(t, h, clock, "r", Wait{For: ForEvent, Filter: "type = 'go'"}).End(ctx, End{Status: Waiting}))
		clock.add(c.after)
		one[event.Event](t)(th.Push(ctx, event.Draft{Source: "s", Type: "go", Content: "x"}))
		clock.add(time.Minute)
		if a := answered(t, h, "r"); a.Result != c.want {
			t.Errorf("an event after %v: %+v, want %s", c.after, a, c.want)
		}
	}
}

// lookedAt is a context that calls a function each time that it is looked at.
type lookedAt struct {
	context.Context
	look func()
}

func (l lookedAt) Err() error {
	l.look()
	return l.Context.Err()
}

func (l lookedAt) Done() <-chan struct{} {
	l.look()
	return l.Context.Done()
}

// TestEventDuringLook: an event comes before the time of its wait, and that time comes, between
// any two steps in which a worker looks for both. With park, the run begins to wait there.
func TestEventDuringLook(t *testing.T) {
	for _, park := range []bool{false, true} {
		more := true
		for at := 1; more; at++ {
			clock := newClock()
			looks := -1                      // at the clock and the context, while the worker looks for events and times
			var hook func(stack []byte) bool // false where a lock is held that it needs
			look := func() {
				if looks >= 0 {
					if looks++; looks >= at && hook != nil && hook(debug.Stack()) {
						hook = nil
					}
				}
			}
			h := inbox(t, WithClock(func() time.Time {
				look()
				return clock.Now()
			}))
			th := one[*engine.Thread](t)(engine.Open(h.parent, engine.WithClock(clock.Now)))
			other := one[*History](t)(Open(ctx, h.parent, WithClock(clock.Now)))
			due := RunRow{ID: "due", AgentName: "never"} // is due meanwhile
			ok(t, SetJob(&due, Job{Due: clock.Now().Add(2 * time.Second)}))
			one[RunRow](t)(h.Enqueue(ctx, due))
			r := waitsUntil(t, other, clock, "r", Wait{For: ForEvent, Filter: "type = 'go'"})
			if !park {
				ok(t, r.End(ctx, End{Status: Waiting}))
			}
			// Another one, so that the worker looks for events in any case.
			ok(t, waitsUntil(t, other, clock, "w", Wait{For: ForEvent, Filter: "type = 'other'"}).End(ctx, End{Status: Waiting}))
			clock.add(4 * time.Second)
			has := func(stack []byte, method string) bool { return bytes.Contains(stack, []byte("(*History)."+method+"(")) }
			happens := func(stack []byte) bool {
				if has(stack, "answerEvents") && !has(stack, "eventWaits") && bytes.Contains(stack, []byte("bolt.(*Store)")) {
					return false
				}
				one[event.Event](t)(th.Push(ctx, event.Draft{Source: "s", Type: "go", Content: "x"}))
				clock.add(time.Minute)
				return true
			}
			if hook = happens; park {
				happens(nil)
				hook = func(stack []byte) bool {
					if has(stack, "View") || has(stack, "Update") {
						return false
					}
					ok(t, r.End(ctx, End{Status: Waiting}))
					return true
				}
			}
			looks = 0
			released(t, h, lookedAt{ctx, look})
			looks = -1
			if more = hook == nil; !more { // there are fewer looks
				break
			}
			if a := answered(t, h, "r"); a.Result != Happened {
				t.Errorf("park %v, at look %d: %+v", park, at, a)
			}
		}
	}
}

// TestWaitValid: a wait that could not end, or has no name, is refused before anything is stored.
func TestWaitValid(t *testing.T) {
	long := strings.Repeat("x", MaxAnswer+1)
	for _, w := range []Wait{
		{Key: "k", For: "weather"}, {For: ForApproval}, {Key: "k", For: ForTime}, {Key: "k", For: ForRun}, {Key: "k", For: ForRun, Run: "r"},
		{Key: "k", For: ForApproval, Ask: long}, {Key: "k", For: ForEvent, Filter: long},
	} {
		if err := w.valid("r"); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s %s: %v", w.For, w.Key, err)
		}
	}
	for _, w := range []Wait{{Key: "k", For: ForApproval, Ask: long[1:]}, {Key: "k", For: ForRun, Run: "s"}} {
		if err := w.valid("r"); err != nil {
			t.Errorf("%s: %v", w.For, err)
		}
	}
}

func released(t tester, h *History, ctx context.Context) {
	t.Helper()
	_, _, err := h.release(ctx)
	ok(t, err)
}
