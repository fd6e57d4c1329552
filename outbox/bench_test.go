package outbox

import (
	"testing"

	"thread/engine"
)

// BenchmarkRelay is what a message costs that becomes a notification: a durable
// transaction that stores it and takes the next one.
func BenchmarkRelay(b *testing.B) {
	th := newThread(b)
	const messages = 100
	n := int64(0)
	for b.Loop() {
		b.StopTimer()
		noError(b, th.Update(ctx, func(tx *engine.Tx) error {
			for range messages {
				n++
				if _, err := Insert(tx, like(n)); err != nil {
					return err
				}
			}
			return nil
		}))
		b.StartTimer()
		if sum := once(b, th, ""); sum.Processed != messages {
			b.Fatalf("got %+v", sum)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*messages), "µs/message")
}
