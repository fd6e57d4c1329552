//go:build linux

package dispatch

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
)

// BenchmarkWakeUp is the time from a push's commit to the handler's first
// instruction; promised is a median of 12 ms with spawn (issue 4).
func BenchmarkWakeUp(b *testing.B) {
	t := newBench(b)
	at := t.fifo("at")
	t.subscribe(engine.Subscription{Consumer: "c", Handler: `echo > "$D/at"; ` + drain})
	var took []time.Duration
	for b.Loop() {
		t.push("s")
		start := time.Now()
		if err := Wake(context.Background(), t.t, "s"); err != nil {
			b.Fatal(err)
		}
		at.line()
		took = append(took, time.Since(start))
		t.awaitIdle()
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms/median")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "ms/p99")
}

// A dispatch over 10,000 subscriptions that match nothing: promised are 100 ms.
func BenchmarkDispatchOfNothing(b *testing.B) {
	for _, n := range []int{100, 10000} {
		b.Run(fmt.Sprintf("subscriptions=%d", n), func(b *testing.B) {
			thread, err := engine.Init(b.TempDir() + "/thread")
			if err != nil {
				b.Fatal(err)
			}
			ctx := context.Background()
			for i := range n {
				where := fmt.Sprintf("source LIKE 'team-%d:%%' AND type = 'message'", i)
				if err := thread.Subscribe(ctx, engine.Subscription{Consumer: fmt.Sprint("c", i), Handler: "false", Filter: &where}); err != nil {
					b.Fatal(err)
				}
			}
			for i := range 100 {
				if _, err := thread.Push(ctx, event.Draft{Source: fmt.Sprint("self:", i), Type: "message"}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := Run(ctx, thread, Options{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
