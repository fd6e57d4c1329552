package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"
)

// TestWork: how a run of Work ends, by what its function returns.
func TestWork(t *testing.T) {
	h := inbox(t)
	big := make([]byte, MaxResult+1)
	var mu sync.Mutex
	calls := map[string]int{}
	fns := map[string]struct {
		job    Job
		fn     func(ctx context.Context, r *Run) (json.RawMessage, error)
		status string
		calls  int
		result string
	}{
		"good": {Job{}, func(context.Context, *Run) (json.RawMessage, error) { return raw(`[1]`), nil }, Completed, 1, `[1]`},
		"text": {Job{}, func(context.Context, *Run) (json.RawMessage, error) { return raw("a b"), nil }, Completed, 1, `"a b"`},
		"bad":  {Job{}, func(context.Context, *Run) (json.RawMessage, error) { return raw(`1`), errors.New("no") }, Failed, 1, ""},
		"big":  {Job{}, func(context.Context, *Run) (json.RawMessage, error) { return big, nil }, Failed, 1, ""},
		"waits": {Job{}, func(ctx context.Context, r *Run) (json.RawMessage, error) {
			_, err := r.Wait(ctx, "k", Wait{For: ForApproval})
			return nil, err
		}, Waiting, 1, ""},
		"none":  {Job{}, func(context.Context, *Run) (json.RawMessage, error) { return nil, ErrWaiting }, Failed, 1, ""},
		"doubt": {Job{Retries: 3}, func(context.Context, *Run) (json.RawMessage, error) { return nil, fmt.Errorf("x: %w", ErrOutcome) }, Failed, 1, ""},
		"later": {Job{}, func(context.Context, *Run) (json.RawMessage, error) { return nil, Later(time.Hour) }, Queued, 1, ""},
		"retry": {Job{Retries: 2, BackoffMS: 1, MaxPauseMS: 1}, func(context.Context, *Run) (json.RawMessage, error) { return nil, errors.New("no") }, Failed, 3, ""},
		"slow":  {Job{TimeoutMS: 1}, func(ctx context.Context, _ *Run) (json.RawMessage, error) { <-ctx.Done(); return nil, ctx.Err() }, TimedOut, 1, ""},
		"cancel": {Job{Retries: 3}, func(ctx context.Context, r *Run) (json.RawMessage, error) {
			if _, err := h.Cancel(ctx, r.ID()); err != nil {
				return nil, err
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}, Cancelled, 1, ""},
	}
	for id, f := range fns {
		row := RunRow{ID: id}
		ok(t, SetJob(&row, f.job))
		_, _, err := h.EnqueueJob(ctx, row, nil)
		ok(t, err)
	}
	done := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return calls["retry"] >= 3
	}
	for !done() { // a retry is due a moment later
		ok(t, h.Work(ctx, WorkOptions{Drain: true, Parallel: 3}, func(ctx context.Context, r *Run) (json.RawMessage, error) {
			mu.Lock()
			calls[r.ID()]++
			mu.Unlock()
			return fns[r.ID()].fn(ctx, r)
		}))
	}
	for id, f := range fns {
		var row RunRow
		ok(t, h.Get(ctx, &row, id))
		result, _, err := h.Result(ctx, id)
		ok(t, err)
		if row.Status != f.status || calls[id] != f.calls || string(result) != f.result {
			t.Errorf("%s is %s after %d calls with %s (%s), want %s, %d, %s", id, row.Status, calls[id], result, row.ErrorMessage, f.status, f.calls, f.result)
		}
	}

	// A worker that ends queues what it could not end.
	one[RunRow](t)(h.Enqueue(ctx, RunRow{ID: "last"}))
	why := errors.New("over")
	limited, cancel := context.WithCancelCause(ctx)
	err := h.Work(limited, WorkOptions{}, func(ctx context.Context, r *Run) (json.RawMessage, error) {
		cancel(why)
		<-ctx.Done()
		return nil, ctx.Err()
	})
	if !errors.Is(err, why) {
		t.Errorf("Work returned %v", err)
	}
	var row RunRow
	ok(t, h.Get(ctx, &row, "last"))
	if row.Status != Queued {
		t.Errorf("the last run is %s", row.Status)
	}
}

// TestWaitsAgain: the wait of a run that ended without an answer has ended, and waits again when
// the run is queued again.
func TestWaitsAgain(t *testing.T) {
	h := inbox(t)
	one[RunRow](t)(h.Enqueue(ctx, RunRow{ID: "r"}))
	step := func() (s StepRow) { ok(t, h.Get(ctx, &s, stepID(WaitType, "r", "k"))); return s }
	waits := func() *Run {
		t.Helper()
		r, _, err := h.Claim(ctx)
		ok(t, err)
		if _, err := r.Wait(ctx, "k", Wait{For: ForApproval}); !errors.Is(err, ErrWaiting) {
			t.Fatal(err)
		}
		return r
	}
	ok(t, waits().End(ctx, End{Status: Failed}))
	if s := step(); s.Status != Cancelled || s.EndedAt.IsZero() {
		t.Fatalf("after the run has failed: %+v", s)
	}
	one[RunRow](t)(h.Requeue(ctx, "r"))
	r := waits()
	if s := step(); s.Status != Waiting || !s.EndedAt.IsZero() {
		t.Fatalf("after the run waits again: %+v", s)
	}
	ok(t, r.End(ctx, End{Status: Waiting}))
	ok(t, h.Answer(ctx, "r", "", Answer{Result: Approved}))
	r, _, err := h.Claim(ctx)
	ok(t, err)
	if a, err := r.Wait(ctx, "k", Wait{For: ForApproval}); err != nil || a.Result != Approved {
		t.Fatal(a, err)
	}
}

// TestStepLocks: the lock of a step whose process died goes with the attempt of its run, and one
// that a process has stays.
func TestStepLocks(t *testing.T) {
	h := inbox(t)
	there := func(s *Step) bool {
		_, err := os.Lstat(h.beatPath(s.row.ID))
		return err == nil
	}
	for _, end := range []string{"end", "recover"} {
		r := one[*Run](t)(h.StartRun(ctx, RunRow{ID: end}, Supervised()))
		died, _, err := r.BeginStep(ctx, "died")
		ok(t, err)
		ok(t, errors.Join(died.own.Close(), died.tree.Close())) // as the kernel does it
		alive, _, err := r.BeginStep(ctx, "alive")
		ok(t, err)
		if end == "end" {
			ok(t, r.End(ctx, End{Status: Completed}))
		} else {
			r.Leave()
			if list := one[[]RunRow](t)(h.Recover(ctx, RecoverOptions{})); len(list) != 1 {
				t.Fatalf("recovered %v", list)
			}
		}
		if there(died) || !there(alive) {
			t.Errorf("%s: the lock of the step that died: %v, of one that lives: %v", end, there(died), there(alive))
		}
		alive.leave()
	}
}

// TestNeverQueued: a run that was queued and claimed within one millisecond is one of the queue.
func TestNeverQueued(t *testing.T) {
	clock := newClock() // stands
	h := inbox(t, WithClock(clock.Now))
	one[RunRow](t)(h.Enqueue(ctx, RunRow{ID: "queued"}))
	r, _, err := h.Claim(ctx, Supervised())
	ok(t, err)
	r.Leave()
	one[*Run](t)(h.StartRun(ctx, RunRow{ID: "started"}, Supervised())).Leave()
	list := one[[]RunRow](t)(h.Recover(ctx, RecoverOptions{NeverQueued: true}))
	if len(list) != 1 || list[0].ID != "started" {
		t.Errorf("recovered %v", list)
	}
}
