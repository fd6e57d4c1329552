//go:build unix

package consume

import (
	"testing"

	"thread/event"
)

// BenchmarkConsume is what an event costs that a command gets: a process, and a
// durable transaction that acks it and gives out the next one.
func BenchmarkConsume(b *testing.B) {
	for _, c := range []struct {
		name  string
		limit int64
	}{{"each", 1}, {"hundred at once", 100}} {
		b.Run(c.name, func(b *testing.B) {
			th := newThread(b)
			const events = 100
			drafts := make([]event.Draft, events)
			for i := range drafts {
				drafts[i] = event.Draft{Source: "s", Type: "t", Content: "x"}
			}
			for b.Loop() {
				b.StopTimer()
				if _, err := th.PushBatch(ctx, drafts); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				sum, err := Run(ctx, th, "c", Options{Command: []string{"true"}, Batch: c.limit})
				if err != nil || sum.Delivered != events {
					b.Fatal(sum, err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*events), "µs/event")
		})
	}
}
