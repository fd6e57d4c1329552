package trigger

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"thread/engine"
)

// BenchmarkIntake stores messages of 300 bytes in transactions of 1,000 and 5,000:
// with positions, with keys, and with keys and the ledger. Proof 7: the ledger costs
// at most 40 %.
func BenchmarkIntake(b *testing.B) {
	for _, size := range []int{1000, 5000} {
		for _, kind := range []string{"keys", "keys-ledger"} {
			b.Run(fmt.Sprintf("%s-%d", kind, size), func(b *testing.B) {
				r := newRig(b, b.TempDir()+"/t", func(c *Config, _ *Options) { c.MaxBatch, c.Ledger = size, kind == "keys-ledger" })
				tr, err := New(r.th, r.mock, r.cfg, Options{})
				if err != nil {
					b.Fatal(err)
				}
				tr.deliveries = newDeliveries(false)
				if err := tr.reload(context.Background()); err != nil {
					b.Fatal(err)
				}
				body := fmt.Appendf(nil, `{"n":"%0290d"}`, 1)
				n := 0
				b.ResetTimer()
				for b.Loop() {
					ms := make([]Message, size)
					for i := range ms {
						n++
						ms[i] = Message{ID: fmt.Sprintf("m-%d", n), Body: body}
					}
					if err := tr.intake(context.Background(), tr.prepare(ms)); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "messages/s")
			})
		}
	}
}

// BenchmarkLatency sends 500 messages a second, and reports how long they take to be
// stored. Proof 8: p99 is at most 50 ms.
func BenchmarkLatency(b *testing.B) {
	r := newRig(b, b.TempDir()+"/t", nil)
	w := r.th
	r.start()
	sent := make([]time.Time, 0, b.N)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	stored := make(chan time.Time, 1<<20)
	go func() {
		have := int64(0)
		for ctx.Err() == nil {
			changed := r.tr.Changed()
			info, err := w.Info(ctx)
			for ; err == nil && have < info.EventCount; have++ {
				stored <- time.Now()
			}
			select {
			case <-changed:
			case <-ctx.Done():
			}
		}
	}()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	b.ResetTimer()
	for i := range b.N {
		<-tick.C
		sent = append(sent, time.Now())
		r.mock.Enqueue(Message{ID: fmt.Sprint("m-", i), Body: []byte(`{}`)})
	}
	var took []time.Duration
	for i := range sent {
		took = append(took, (<-stored).Sub(sent[i]))
	}
	b.StopTimer()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms-p50")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "ms-p99")
	r.stop()

}

// BenchmarkTrigger sends 500 messages a second and reports how long each takes until its
// handler begins, and how many are through in a minute. Q-23: at least 500 a minute, and
// P95 is less than 5 s.
func BenchmarkTrigger(b *testing.B) {
	r := newRig(b, b.TempDir()+"/t", handled)
	r.start()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	w, err := r.th.Watch()
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	feed := r.th.Feed(r.cfg.Consumer, r.cfg.Policy())
	defer feed.Close()
	sent, begun := make([]time.Time, b.N), make([]time.Time, 0, b.N)
	ended := make(chan error, 1)
	go func() {
		var result *engine.Result
		for len(begun) < b.N || result != nil {
			d, err := feed.Next(ctx, result)
			if err != nil {
				ended <- err
				return
			}
			if result = nil; len(d.Events) > 0 {
				begun = append(begun, time.Now())
				result = &engine.Result{Verdict: engine.Succeeded}
			} else if len(begun) < b.N {
				_ = w.Wait(ctx, time.Time{})
			}
		}
		ended <- nil
	}()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	b.ResetTimer()
	for i := range b.N {
		<-tick.C
		sent[i] = time.Now()
		r.mock.Enqueue(Message{ID: fmt.Sprint("m-", i), Body: []byte(`{}`)})
	}
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
	r.acked(b.N)
	b.StopTimer()
	r.stop()
	var took []time.Duration
	for i := range sent {
		took = append(took, begun[i].Sub(sent[i]))
	}
	slices.Sort(took)
	p95, rate := took[len(took)*95/100], float64(b.N)/b.Elapsed().Minutes()
	b.ReportMetric(float64(p95.Microseconds())/1000, "ms-p95")
	b.ReportMetric(rate, "messages/min")
	if p95 >= 5*time.Second || rate < 500 {
		b.Errorf("P95 %s, %.0f messages a minute", p95, rate)
	}
}
