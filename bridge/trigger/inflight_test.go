package trigger

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"thread/engine"
)

// Properties 11, 14 and 24 with handlers in flight: a stop waits for the handlers
// that run and for no others, each result is settled by the policy, each retry is logged
// with its own reason, and what had not begun is handled after the next start.
func TestPropertyInFlight(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		policy := rapid.SampledFrom(ackPolicies).Draw(rt, "policy")
		retries := rapid.IntRange(0, 1).Draw(rt, "retries")
		n := rapid.IntRange(1, 4).Draw(rt, "messages")
		workers := rapid.IntRange(1, 3).Draw(rt, "workers")
		r := newRig(rt, t.TempDir()+"/t", func(c *Config, _ *Options) {
			c.Settle, c.AckPolicy, c.MaxRetries, c.Concurrency, c.BackoffBase = SettleHandled, policy, retries, workers, 1e-6
		})
		defer r.th.Close()
		r.start()
		for i := range n {
			r.send(fmt.Sprint("m", i+1), `{}`)
		}
		r.until("the events", func() bool { return len(r.events()) == n })
		feed, err := r.th.ParallelFeed(r.cfg.Consumer, engine.ParallelPolicy{Policy: r.cfg.Policy()})
		if err != nil {
			rt.Fatal(err)
		}
		defer feed.Close()
		g, err := feed.Step(context.Background(), engine.Step{Begin: workers})
		if err != nil || len(g.Begin) != min(n, workers) {
			rt.Fatalf("%+v %v", g, err)
		}
		r.until("the handlers", func() bool { return r.tr.Health(context.Background()).ActiveWorkers == len(g.Begin) })

		stopped := make(chan error, 1)
		go func() { stopped <- r.tr.Stop() }()
		<-r.tr.stopping
		acked, nacked, dead, failed := []string{}, 0, 0, map[int64]bool{}
		for _, d := range g.Begin {
			select {
			case err := <-stopped:
				rt.Fatalf("stopped while a handler runs: %v", err)
			default:
			}
			id := d.Events[0].ID
			failed[id] = rapid.Bool().Draw(rt, "fails")
			result := engine.Result{Verdict: engine.Succeeded}
			if failed[id] {
				result = engine.Result{Verdict: engine.Failed, ExitCode: 1, Error: fmt.Sprintf("reason of %d", id)}
			}
			if _, err := feed.Step(context.Background(), engine.Step{Results: []engine.DeliveryResult{{Number: d.Number(), Result: result}}}); err != nil {
				rt.Fatal(err)
			}
			gone := failed[id] && retries == 0 // a dead letter
			switch {
			case gone && policy == PolicyNack, gone && policy == PolicyRequeue:
				nacked++
			case gone && policy == PolicyDLQ:
				dead++
				acked = append(acked, fmt.Sprint("m", id))
			case gone, !failed[id]:
				acked = append(acked, fmt.Sprint("m", id))
			}
		}
		if err := <-stopped; err != nil {
			rt.Fatal(err)
		}
		got := slices.Sorted(slices.Values(r.mock.Acked()))
		if !slices.Equal(got, acked) || len(r.mock.Nacked()) != nacked || len(r.mock.Dead()) != dead {
			rt.Fatalf("acked %v, not %v; nacked %v, not %d; dead %d, not %d", got, acked, r.mock.Nacked(), nacked, len(r.mock.Dead()), dead)
		}
		feed.Close()
		r.start()
		r.until("the others", func() bool {
			r.handle(succeeds)
			return len(r.mock.Acked()) >= n || policy == PolicyNack && len(r.mock.Acked()) == n-nacked
		})
		r.stop()
		for id, failed := range failed {
			want := 0
			if failed && retries > 0 {
				want = 1
			}
			if n := r.log.count(fmt.Sprintf(`attempt=1 limit=2 delay=1µs reason="reason of %d"`, id)); n != want {
				rt.Fatalf("event %d: %d retries logged, not %d\n%s", id, n, want, r.log)
			}
		}
		r.sound()
	})
}
