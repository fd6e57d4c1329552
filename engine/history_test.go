package engine_test

import (
	"fmt"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
)

// each counted attempt keeps its own time, exit code and reason, whichever feed and
// whichever process counted it, and goes with the event into the dead letters.
func TestHistoryOfAttempts(t *testing.T) {
	for _, parallel := range []bool{false, true} {
		dir, now := t.TempDir()+"/t", time.UnixMilli(1_700_000_000_000)
		clock := engine.WithClock(func() time.Time { return now })
		if _, err := engine.Init(dir); err != nil {
			t.Fatal(err)
		}
		const attempts = engine.MaxHistory + 3
		p := engine.Policy{Limit: 1, MaxAttempts: attempts}
		for n := range attempts {
			th, err := engine.Open(dir, clock) // as another process
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				if err := th.Subscribe(t.Context(), engine.Subscription{Consumer: "c", Handler: "true"}); err != nil {
					t.Fatal(err)
				}
				if _, err := th.Push(t.Context(), event.Draft{Source: "s", Type: "t", Content: "{}"}); err != nil {
					t.Fatal(err)
				}
			}
			fail(t, th, p, parallel, engine.Result{Verdict: engine.Failed, ExitCode: int64(n), Error: fmt.Sprint("reason ", n)}, func() engine.Outcome {
				return outcome(t, th)
			})
			o := outcome(t, th)
			if o.Out || o.Attempts != int64(n+1) || len(o.History) != min(n+1, engine.MaxHistory) {
				t.Fatalf("parallel %t, attempt %d: %+v", parallel, n, o)
			}
			for i, h := range o.History {
				of := n + 1 - len(o.History) + i
				if h.ExitCode != int64(of) || h.Error != fmt.Sprint("reason ", of) || !h.At.Equal(time.UnixMilli(1_700_000_000_000).Add(time.Duration(of)*time.Minute)) {
					t.Errorf("parallel %t, attempt %d: %+v", parallel, of, h)
				}
			}
			now = now.Add(time.Minute)
			if err := th.Close(); err != nil {
				t.Fatal(err)
			}
		}
		th, err := engine.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if o := outcome(t, th); o.State != engine.Dead || len(o.History) != engine.MaxHistory {
			t.Errorf("parallel %t: %+v", parallel, o)
		}
	}
}

// fail takes one delivery, which is in flight meanwhile, and stores r.
func fail(t *testing.T, th *engine.Thread, p engine.Policy, parallel bool, r engine.Result, meanwhile func() engine.Outcome) {
	t.Helper()
	if !parallel {
		f := th.Feed("c", p)
		defer f.Close()
		if d, err := f.Next(t.Context(), nil); err != nil || len(d.Events) != 1 || !meanwhile().Out {
			t.Fatal(d, err)
		}
		if _, err := f.Settle(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		return
	}
	f, err := th.ParallelFeed("c", engine.ParallelPolicy{Policy: p})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	g, err := f.Step(t.Context(), engine.Step{Begin: 1})
	if err != nil || len(g.Begin) != 1 || !meanwhile().Out {
		t.Fatal(g, err)
	}
	if _, err := f.Step(t.Context(), engine.Step{Results: []engine.DeliveryResult{{Number: g.Begin[0].Number(), Result: r}}}); err != nil {
		t.Fatal(err)
	}
}

func outcome(t *testing.T, th *engine.Thread) (o engine.Outcome) {
	t.Helper()
	err := th.View(t.Context(), func(tx *engine.Tx) error {
		os, err := tx.Outcome("c", 1)
		if err == nil {
			o = os[0]
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return o
}
