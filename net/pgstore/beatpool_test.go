package pgstore

import (
	"context"
	"sync"
	"testing"
	"time"

	"thread/internal/store"
)

// TestBeatsInTransactions: a transaction that reads beats waits for no other connection, though
// all places are taken.
func TestBeatsInTransactions(t *testing.T) {
	s := opened(t, newThread(t, newSchema(t)), plain{})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.Beat(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	s.pool.open = make(chan struct{}, 1)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			err := s.Update(ctx, func(u store.Session) error {
				beats, err := u.(plainSession).tx.(store.Beats).Beats()
				if _, ok := beats["a"]; !ok && err == nil {
					t.Error("the beat is missing")
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}
