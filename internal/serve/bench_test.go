//go:build linux

package serve

import (
	"slices"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/dispatch"
)

// BenchmarkWakeUp is the time from a push's commit to the handler's first
func BenchmarkWakeUp(b *testing.B) {
	t := newBench(b)
	at := t.fifo("at")
	t.subscribe(engine.Subscription{Consumer: "c", Handler: `echo > "$D/at"; ` + drain})
	t.serve(Options{})
	var took []time.Duration
	for b.Loop() {
		if _, err := t.t.Push(b.Context(), event.Draft{Source: "s", Type: "m"}); err != nil {
			b.Fatal(err)
		}
		start := time.Now()
		if err := dispatch.Wake(b.Context(), t.t, "s"); err != nil {
			b.Fatal(err)
		}
		t.line(at)
		took = append(took, time.Since(start))
		t.idle()
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms/median")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "ms/p99")
}
