package history

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"thread/lock"
)

func row(t tester, h *History, id string) RunRow {
	t.Helper()
	var r RunRow
	ok(t, h.Get(ctx, &r, id))
	return r
}

// TestRunStates is H-04: a run goes through its states, its beat is not a history
// event, and its last one stands in the row at the end.
func TestRunStates(t *testing.T) {
	c := newClock()
	h := inbox(t, WithClock(c.Now))
	session(t, h, "S")
	r := one[*Run](t)(h.StartRun(ctx, RunRow{SessionID: "S", TriggerType: "message", TriggerRef: "42", AgentName: "coder"}))
	got := row(t, h, r.ID())
	if got.Status != Running || got.InitiatorRef != "user:S" || got.EffectiveAgentName != "coder" || got.Attempt != 1 || !got.StartedAt.Equal(c.Now()) {
		t.Errorf("%s", text(&got))
	}
	var s SessionRow
	ok(t, h.Get(ctx, &s, "S"))
	if !s.LastRunAt.Equal(c.Now()) { // H-22
		t.Errorf("%s", text(&s))
	}
	head := one[int64](t)(h.Head(ctx))
	c.add(3 * time.Second)
	ok(t, r.BeatOnce(ctx))
	if got := row(t, h, r.ID()); !got.HeartbeatAt.Equal(c.Now()) {
		t.Errorf("%s after a beat at %s", text(&got), c.Now())
	}
	if now := one[int64](t)(h.Head(ctx)); now != head {
		t.Errorf("a beat made %d history events", now-head)
	}
	beat := c.Now()
	ok(t, r.Waits(ctx, true))
	if got := row(t, h, r.ID()); got.Status != WaitingTool {
		t.Errorf("%s", text(&got))
	}
	ok(t, r.Waits(ctx, false))
	if err := r.End(ctx, End{Status: "asleep"}); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	c.add(time.Second)
	ok(t, r.End(ctx, End{Status: Failed, ErrorCode: "exit", ErrorMessage: "exit 3"}))
	got = row(t, h, r.ID())
	if got.Status != Failed || got.ErrorCode != "exit" || !got.HeartbeatAt.Equal(beat) || got.Duration(c.Now()) != 4*time.Second {
		t.Errorf("%s", text(&got))
	}
	for what, err := range map[string]error{
		"message": second(r.Message(ctx, MessageRow{Role: "user", Content: raw(`"x"`)})),
		"step":    second(r.Step(ctx, StepRow{StepType: "x"})),
		"switch":  r.Switch(ctx, "b"),
		"end":     r.End(ctx, End{Status: Completed}),
		"beat":    r.BeatOnce(ctx),
	} {
		if !errors.Is(err, ErrEnded) || errors.Is(err, ErrRecovered) {
			t.Errorf("%s of a run that has ended: %v", what, err)
		}
	}
	if _, err := os.Stat(h.beatPath(r.ID())); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the beat of a run that has ended is there: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

// TestSwitch is H-22: agent of the run, count and agent of the session change in one
// commit, and agent_name stays.
func TestSwitch(t *testing.T) {
	h := inbox(t)
	session(t, h, "S")
	r := one[*Run](t)(h.StartRun(ctx, RunRow{SessionID: "S", AgentName: "coder"}))
	head := one[int64](t)(h.Head(ctx))
	ok(t, r.Switch(ctx, "reviewer"))
	changes := all(t, h.Changes(ctx, head, ""))
	if len(changes) != 2 {
		t.Errorf("%+v", changes)
	}
	var s SessionRow
	ok(t, h.Get(ctx, &s, "S"))
	got := row(t, h, r.ID())
	if got.AgentName != "coder" || got.EffectiveAgentName != "reviewer" || got.SwitchCount != 1 || s.ActiveAgentName != "reviewer" || s.AgentName != "coder" {
		t.Errorf("%s %s", text(&got), text(&s))
	}
}

// TestOneWorkerPerSession is H-16: queued runs are given out oldest first, one of a
// session at a time, and each to one worker only, however many ask.
func TestOneWorkerPerSession(t *testing.T) {
	h := inbox(t)
	const sessions, each = 4, 5
	for s := range sessions {
		session(t, h, fmt.Sprint("S", s))
	}
	for n := range each {
		for s := range sessions {
			one[RunRow](t)(h.Enqueue(ctx, RunRow{ID: fmt.Sprintf("%d-%d", s, n), SessionID: fmt.Sprint("S", s)}))
		}
	}
	if _, err := h.StartRun(ctx, RunRow{SessionID: "S0", ID: "now"}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.StartRun(ctx, RunRow{SessionID: "S0"}); !errors.Is(err, ErrActive) {
		t.Error(err)
	}
	child := one[*Run](t)(h.StartRun(ctx, RunRow{SessionID: "S0", ParentRunID: "now"})) // a sub-agent
	r, got, err := h.Claim(ctx)
	if err != nil || r.ID() != "1-0" || got.Attempt != 1 { // S0 is busy
		t.Fatal(got, err)
	}
	ok(t, r.End(ctx, End{Status: Completed}))
	ok(t, h.Attach("now", 1).End(ctx, End{Status: Completed}))
	ok(t, child.End(ctx, End{Status: Completed}))

	var mu sync.Mutex
	var order []string
	var workers sync.WaitGroup
	for range 8 {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for {
				r, got, err := h.Claim(ctx)
				if errors.Is(err, ErrNoneReady) {
					if len(all(t, h.Runs(ctx, Query{Status: Queued, Limit: 1}))) == 0 {
						return
					}
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, got.ID)
				mu.Unlock()
				if n := len(all(t, h.Runs(ctx, Query{Session: got.SessionID, Active: true}))); n != 1 {
					t.Errorf("%d active runs in %s", n, got.SessionID)
				}
				if err := r.End(ctx, End{Status: Completed}); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	workers.Wait()
	last := map[string]string{}
	for _, id := range order {
		s, _, _ := strings.Cut(id, "-")
		if last[s] >= id {
			t.Errorf("%s after %s", id, last[s])
		}
		last[s] = id
	}
	if len(order) != sessions*each-1 {
		t.Errorf("%d runs: %v", len(order), order)
	}
	rebuilt(t, h)
}

// TestRecover is H-09: what becomes of a run whose worker is silent, by strategy, and
// that a late writer is refused.
func TestRecover(t *testing.T) {
	for _, tt := range []struct {
		strategy Strategy
		waiting  bool
		cancel   bool
		want     []string // after each recovery
	}{
		{Fail, false, false, []string{Failed}},
		{Fail, true, false, []string{Failed}},
		{Fail, false, true, []string{Cancelled}},
		{RequeueRunning, false, false, []string{Queued, "quarantined"}},
		{RequeueRunning, true, false, []string{Failed}},
		{RequeueAll, true, false, []string{Queued, "quarantined"}},
		{RequeueAll, false, true, []string{Cancelled}},
	} {
		t.Run(fmt.Sprint(tt.strategy, tt.waiting, tt.cancel), func(t *testing.T) {
			c := newClock()
			h := inbox(t, WithClock(c.Now))
			o := RecoverOptions{Strategy: tt.strategy}
			one[RunRow](t)(h.Enqueue(ctx, RunRow{ID: "R", Metadata: raw(`{"mine":[1]}`)}))
			for i, want := range tt.want {
				r, _, err := h.Claim(ctx)
				ok(t, err)
				if tt.waiting {
					ok(t, r.Waits(ctx, true))
				}
				if tt.cancel {
					one[RunRow](t)(h.Cancel(ctx, "R"))
				}
				c.add(15 * time.Second)
				if list := one[[]RunRow](t)(h.Recover(ctx, o)); len(list) != 0 {
					t.Fatalf("recovered after 3 beats: %s", text(&list[0]))
				}
				c.add(time.Millisecond)
				if list := one[[]RunRow](t)(h.Recover(ctx, RecoverOptions{Strategy: tt.strategy, Start: true})); len(list) != 0 {
					t.Fatalf("recovered at a start after 15 s: %s", text(&list[0]))
				}
				if list := one[[]RunRow](t)(h.Recover(ctx, o)); len(list) != 1 {
					t.Fatalf("recovered %d runs", len(list))
				}
				got := row(t, h, "R")
				rec := recoveryOf(&got)
				switch want {
				case Queued:
					if got.Status != Queued || rec.Attempts != 1 || got.Attempt != int64(i+1) || got.ErrorCode != "" {
						t.Errorf("%s", text(&got))
					}
				case "quarantined":
					if got.Status != Failed || !rec.Quarantined || got.ErrorCode != CodeQuarantined {
						t.Errorf("%s", text(&got))
					}
				default:
					if got.Status != want || got.ErrorCode != CodeRecovery || rec.Quarantined || got.EndedAt.IsZero() {
						t.Errorf("%s", text(&got))
					}
				}
				if rec.Reason != "no heartbeat for 15.001s" || !strings.Contains(string(got.Metadata), `"mine":[1]`) {
					t.Errorf("%s", text(&got))
				}
				for what, err := range map[string]error{
					"step": second(r.Step(ctx, StepRow{StepType: "x"})), "end": r.End(ctx, End{Status: Completed}), "beat": r.BeatOnce(ctx),
				} {
					if !errors.Is(err, ErrRecovered) {
						t.Errorf("%s of a late writer: %v", what, err)
					}
				}
			}
			if row(t, h, "R").Status != Failed {
				return
			}
			// By hand it continues, with its attempts again.
			one[RunRow](t)(h.Requeue(ctx, "R"))
			if _, err := h.Requeue(ctx, "R"); !errors.Is(err, ErrState) {
				t.Error(err)
			}
			r, got, err := h.Claim(ctx)
			if ok(t, err); got.Attempt != int64(len(tt.want)+1) || recoveryOf(&got).Attempts != 0 {
				t.Errorf("%s", text(&got))
			}
			if err := h.Attach("R", 1).BeatOnce(ctx); !errors.Is(err, ErrRecovered) {
				t.Errorf("the first attempt beats beside the next: %v", err)
			}
			ok(t, r.End(ctx, End{Status: Completed}))
			rebuilt(t, h)
		})
	}
}

// TestRecoverForgotten is H-09: when run/ was deleted, a run counts from the moment
// when recovery first misses its beat.
func TestRecoverForgotten(t *testing.T) {
	c := newClock()
	h := inbox(t, WithClock(c.Now))
	r := one[*Run](t)(h.StartRun(ctx, RunRow{}))
	c.add(time.Hour)
	ok(t, os.RemoveAll(filepath.Join(h.Dir(), "run")))
	for range 2 {
		if list := one[[]RunRow](t)(h.Recover(ctx, RecoverOptions{})); len(list) != 0 {
			t.Fatal("recovered at once")
		}
	}
	c.add(16 * time.Second)
	if list := one[[]RunRow](t)(h.Recover(ctx, RecoverOptions{})); len(list) != 1 || list[0].ID != r.ID() {
		t.Fatal("never recovered")
	}
}

// TestRecoverSupervised is H-09: a supervised run is judged by its lock alone, also
// where its file was deleted meanwhile.
func TestRecoverSupervised(t *testing.T) {
	c := newClock()
	h := inbox(t, WithClock(c.Now))
	r := one[*Run](t)(h.StartRun(ctx, RunRow{}, Supervised()))
	c.add(time.Hour)
	if list := one[[]RunRow](t)(h.Recover(ctx, RecoverOptions{})); len(list) != 0 {
		t.Fatal("recovered a run whose lock is held")
	}
	ok(t, os.RemoveAll(filepath.Join(h.Dir(), "run")))
	ok(t, r.BeatOnce(ctx))
	c.add(time.Hour)
	if list := one[[]RunRow](t)(h.Recover(ctx, RecoverOptions{})); len(list) != 0 {
		t.Fatal("recovered a run whose lock was taken again")
	}
	s := one[StepRow](t)(r.Step(ctx, StepRow{StepType: "command", Status: Running}))
	r.Leave()
	ok(t, h.touch(t.Context(), r.ID())) // a fresh beat does not help
	list := one[[]RunRow](t)(h.Recover(ctx, RecoverOptions{}))
	if len(list) != 1 || list[0].ErrorMessage != "its process has ended" {
		t.Fatalf("%v", list)
	}
	if ok(t, h.Get(ctx, &s, s.ID)); s.Status != Failed || s.EndedAt.IsZero() {
		t.Errorf("what it did when it died: %s", text(&s))
	}
	if err := r.End(ctx, End{Status: Completed}); !errors.Is(err, ErrRecovered) {
		t.Error(err)
	}
	if _, err := lock.Try(h.beatPath("other"), lock.Exclusive); err != nil {
		t.Error(err)
	}
}

// TestBeat is H-04 and H-10: the context of a run ends when the run is to be
// cancelled, and when the turn is lost, with the reason.
func TestBeat(t *testing.T) {
	h := inbox(t)
	for name, tt := range map[string]struct {
		do    func(id string) error
		cause error
	}{
		"cancel": {func(id string) error { return second(h.Cancel(ctx, id)) }, ErrCancelled},
		"lose": {func(id string) error {
			return h.Update(ctx, func(tx *Tx) error {
				var r RunRow
				if err := tx.must(&r, id); err != nil {
					return err
				}
				return tx.recover(&r, &RecoverOptions{Strategy: Fail}, time.Minute)
			})
		}, ErrRecovered},
		"end elsewhere": {func(id string) error { return h.Attach(id, 0).End(ctx, End{Status: Completed}) }, ErrEnded},
	} {
		t.Run(name, func(t *testing.T) {
			r := one[*Run](t)(h.StartRun(ctx, RunRow{}))
			beating, stop := r.Beat(ctx, time.Hour) // so it is told, and need not look
			defer stop()
			ok(t, tt.do(r.ID()))
			<-beating.Done()
			if cause := context.Cause(beating); !errors.Is(cause, tt.cause) {
				t.Errorf("%v, want %v", cause, tt.cause)
			}
		})
	}
	r := one[*Run](t)(h.StartRun(ctx, RunRow{}))
	old := time.Unix(1, 0)
	beating, stop := r.Beat(ctx, 0)
	ok(t, os.Chtimes(h.beatPath(r.ID()), old, old))
	stop()
	if context.Cause(beating) == nil {
		t.Error("stop left it running")
	}
	beating, stop = r.Beat(ctx, 1) // MinBeat
	defer stop()
	for h.beatOf(r.ID()).Before(time.Unix(2, 0)) && beating.Err() == nil {
		time.Sleep(time.Millisecond)
	}
}

// TestCancel is H-04: what is queued is cancelled at once, what runs is told.
func TestCancel(t *testing.T) {
	h := inbox(t)
	q := one[RunRow](t)(h.Enqueue(ctx, RunRow{}))
	if got := one[RunRow](t)(h.Cancel(ctx, q.ID)); got.Status != Cancelled || got.EndedAt.IsZero() {
		t.Errorf("%s", text(&got))
	}
	if _, err := h.Cancel(ctx, q.ID); !errors.Is(err, ErrEnded) {
		t.Error(err)
	}
	if _, err := h.Cancel(ctx, "none"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	r := one[*Run](t)(h.StartRun(ctx, RunRow{}))
	got := one[RunRow](t)(h.Cancel(ctx, r.ID()))
	if got.Status != Running || got.CancelRequestedAt.IsZero() {
		t.Errorf("%s", text(&got))
	}
	if err := r.BeatOnce(ctx); !errors.Is(err, ErrCancelled) {
		t.Error(err)
	}
}

// TestLimits is H-10: limits of active runs and of rate, of a subject and of the
// workspace, are kept, survive a rebuild, and hold up no other process's runs.
func TestLimits(t *testing.T) {
	c := newClock()
	h := inbox(t, WithClock(c.Now))
	ok(t, h.Put(ctx, &LimitRow{Scope: "subject", Active: 1, Rate: 3, PerMS: 60000}))
	ok(t, h.Put(ctx, &LimitRow{Scope: "subject", Ref: "vip", Active: 2}))
	ok(t, h.Put(ctx, &LimitRow{Scope: "workspace", Active: 3}))
	start := func(subject string) (*Run, error) { return h.StartRun(ctx, RunRow{InitiatorRef: subject}) }
	refused := func(err error, scope string, active, rate int64) {
		t.Helper()
		var l *LimitError
		if !errors.As(err, &l) || !errors.Is(err, ErrLimit) || l.Scope != scope || l.Active != active || l.Rate != rate {
			t.Errorf("%v", err)
		}
	}
	a := one[*Run](t)(start("a"))
	refused(second(start("a")), "subject", 1, 0)
	one[*Run](t)(start("vip"))
	vip := one[*Run](t)(start("vip"))
	refused(second(start("b")), "workspace", 3, 0)
	ok(t, vip.End(ctx, End{Status: Completed}))
	ok(t, a.End(ctx, End{Status: Completed}))
	rebuilt(t, h)

	one[RunRow](t)(h.Enqueue(ctx, RunRow{ID: "a1", InitiatorRef: "a"}))
	one[RunRow](t)(h.Enqueue(ctx, RunRow{ID: "a2", InitiatorRef: "a"}))
	refused(second(h.Enqueue(ctx, RunRow{InitiatorRef: "a"})), "subject", 0, 3)
	one[RunRow](t)(h.Enqueue(ctx, RunRow{ID: "b1", InitiatorRef: "b"}))
	for _, want := range []string{"a1", "b1"} { // a2 waits for a1, and holds up no process
		if r, _, err := h.Claim(ctx); err != nil || r.ID() != want {
			t.Errorf("%v, %v", r, err)
		}
	}
	if _, _, err := h.Claim(ctx); !errors.Is(err, ErrNoneReady) {
		t.Error(err)
	}
	c.add(time.Minute)
	one[RunRow](t)(h.Enqueue(ctx, RunRow{InitiatorRef: "a"}))
	for _, bad := range []LimitRow{{Scope: "planet", Active: 1}, {Scope: "subject", Rate: 1}, {Scope: "subject", PerMS: 1}, {Scope: "subject", Active: -1}} {
		if err := h.Put(ctx, &bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// TestClaimWait is H-16: a worker that waits gets a run as soon as there is one.
func TestClaimWait(t *testing.T) {
	h := inbox(t)
	got := make(chan string)
	go func() {
		_, row, err := h.ClaimWait(ctx)
		if err != nil {
			t.Error(err)
		}
		got <- row.ID
	}()
	one[RunRow](t)(h.Enqueue(ctx, RunRow{ID: "R"}))
	if id := <-got; id != "R" {
		t.Error(id)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, _, err := h.ClaimWait(ended); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A run that starts recovers the run of its session whose worker is gone, and only that one.
func TestStartAfterCrash(t *testing.T) {
	h := inbox(t)
	session(t, h, "S")
	first := one[*Run](t)(h.StartRun(t.Context(), RunRow{ID: "R1", SessionID: "S", TriggerType: "message"}, Supervised()))
	if _, err := h.StartRun(t.Context(), RunRow{ID: "R2", SessionID: "S", TriggerType: "message"}, Supervised()); !errors.Is(err, ErrActive) {
		t.Fatalf("beside a run that lives: %v", err)
	}
	first.Leave()
	next := one[*Run](t)(h.StartRun(t.Context(), RunRow{ID: "R2", SessionID: "S", TriggerType: "message"}, Supervised()))
	if r := row(t, h, "R1"); r.Status != Failed || r.ErrorCode != CodeRecovery {
		t.Errorf("the crashed run is %s, %s", r.Status, r.ErrorCode)
	}
	if err := first.End(t.Context(), End{Status: Completed}); !errors.Is(err, ErrRecovered) {
		t.Errorf("its late end: %v", err)
	}
	ok(t, next.End(t.Context(), End{Status: Completed}))
	// A run that only beats is judged by its beat.
	ok(t, second(h.StartRun(t.Context(), RunRow{ID: "R3", SessionID: "S", TriggerType: "message"})))
	if _, err := h.StartRun(t.Context(), RunRow{ID: "R4", SessionID: "S", TriggerType: "message"}); !errors.Is(err, ErrActive) {
		t.Errorf("beside a run that has just beaten: %v", err)
	}
}

// An end that could not be stored is kept, and recovery stores it in place of its strategy's.
func TestKeptEnd(t *testing.T) {
	h := inbox(t)
	step := StepRow{RunID: "R", StepType: "command", Status: Running}
	r := one[*Run](t)(h.StartRun(t.Context(), RunRow{ID: "R", TriggerType: "message"}, Supervised(), With(func(tx *Tx, _ *RunRow) error { return tx.Put(&step) })))
	step.Output = raw(`{"exit_code":0}`)
	ok(t, r.Keep(End{Status: Completed}, &step))
	if got := one[[]RunRow](t)(h.Recover(t.Context(), RecoverOptions{Strategy: RequeueAll})); len(got) != 1 {
		t.Fatalf("recovered %v", got)
	}
	if got := row(t, h, "R"); got.Status != Completed || got.ErrorCode != "" {
		t.Errorf("the run is %s, %s", got.Status, got.ErrorCode)
	}
	if got := one[CommandOutput](t)(h.Command(t.Context(), "R")); got.ExitCode == nil || *got.ExitCode != 0 {
		t.Errorf("the output is %+v", got)
	}
	rebuilt(t, h)
}
