package engine

import (
	"testing"

	"thread/filter"
	"thread/internal/store"
	"thread/internal/store/bolt"
)

func dirOf(th *Thread) *bolt.Store { return th.s.(*bolt.Store) }

var (
	bucketDeliveries   = []byte(store.Deliveries)
	bucketDead         = []byte(store.Dead)
	bucketRetries      = []byte(store.Retries)
	bucketDedupe       = []byte(store.Dedupe)
	bucketDedupeExpiry = []byte(store.DedupeExpiry)
	bucketScheduled    = []byte(store.Scheduled)
	bucketSchedules    = []byte(store.Schedules)
	bucketChecked      = []byte(store.Checked)
)

func newSelection(f *filter.Filter) *store.Selection { return store.NewSelection(f, nil) }

func setMaxReleased(t *testing.T, n int) {
	before := maxReleased
	maxReleased = n
	t.Cleanup(func() { maxReleased = before })
}

// killFeeds leaves the consumers of a handle as the end of its process does.
func killFeeds(th *Thread) { th.feeds.releaseAll() }
