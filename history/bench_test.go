package history

import (
	"fmt"
	"testing"
)

// BenchmarkPut stores rows, n in a transaction.
func BenchmarkPut(b *testing.B) {
	for _, n := range []int{1, 10, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			h := openIn(b, b.TempDir())
			session(b, h, "S")
			i := 0
			for b.Loop() {
				ok(b, h.Update(ctx, func(tx *Tx) error {
					for range n {
						i++
						if err := tx.Put(&MessageRow{ID: fmt.Sprint("m", i), SessionID: "S", Role: "user", Content: raw(`"some words of a message"`)}); err != nil {
							return err
						}
					}
					return nil
				}))
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(i), "µs/row")
		})
	}
}
