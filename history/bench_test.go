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

// BenchmarkQuery reads rows by an index, and one by its id.
func BenchmarkQuery(b *testing.B) {
	h := openIn(b, b.TempDir())
	session(b, h, "S")
	for i := 0; i < 5000; i += 500 {
		ok(b, h.Update(ctx, func(tx *Tx) error {
			for n := range 500 {
				r := RunRow{ID: fmt.Sprint("r", i+n), SessionID: "S", InitiatorRef: fmt.Sprint("u", n%100), Status: Completed, TriggerRef: "m", AgentName: "coder",
					StartedAt: tx.now, EndedAt: tx.now, HeartbeatAt: tx.now}
				if err := tx.Put(&r); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	b.Run("20 runs of a subject", func(b *testing.B) {
		for b.Loop() {
			if n := len(all(b, h.Runs(ctx, Query{Subject: "u7", Limit: 20}))); n != 20 {
				b.Fatal(n)
			}
		}
	})
	b.Run("one run", func(b *testing.B) {
		for b.Loop() {
			var r RunRow
			ok(b, h.Get(ctx, &r, "r77"))
		}
	})
}
