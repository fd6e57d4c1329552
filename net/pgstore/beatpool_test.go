package pgstore

import (
	"context"
	"sync"
	"testing"
	"time"

	"thread/internal/store"
)

// TestBeatsInTransactions: transactions read beats over another connection while all
// places for transactions are taken.
func TestBeatsInTransactions(t *testing.T) {
	s := opened(t, newThread(t, newSchema(t)), plain{})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var all sync.WaitGroup
	var full sync.Once
	for range maxOpen + 4 {
		all.Go(func() {
			err := s.Update(ctx, func(store.Session) error {
				full.Do(func() {
					for len(s.pool.open) < maxOpen && ctx.Err() == nil {
						time.Sleep(time.Millisecond) // how often it is looked at
					}
				})
				_, err := s.Beats(ctx)
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}
