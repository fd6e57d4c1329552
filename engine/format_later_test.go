package engine

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"thread/event"
	"thread/internal/store/bolt"
)

// TestFormatOfLaterBuckets pins the bytes of the buckets that are made when they
// are first needed.
func TestFormatOfLaterBuckets(t *testing.T) {
	now := time.UnixMilli(1773829800123)
	th, err := Init(filepath.Join(t.TempDir(), "t"), WithClock(func() time.Time { return now }))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(err)
	must(th.Subscribe(ctx, Subscription{Consumer: "c", Handler: "true", Paused: true}))
	must(th.Resume(ctx, "c"))
	for i := range 4 {
		_, err := th.Push(ctx, event.Draft{Source: "s", Type: "t", DedupeKey: fmt.Sprint("key ", i), DedupeWindow: time.Hour})
		must(err)
	}
	now = now.Add(time.Minute)
	_, err = th.Push(ctx, event.Draft{Source: "s", Type: "t", DedupeKey: "key 0", DedupeWindow: time.Second})
	must(err)
	feed := th.Feed("c", Policy{Limit: 1, MaxAttempts: 2, Backoff: func(n int64) time.Duration { return time.Second }})
	// Event 1 dies at once, 2 too and is sent back, 3 fails and waits, and its
	// attempt is in flight at the end.
	results := []*Result{nil, {Verdict: Rejected, ExitCode: 65, Error: "exit 65"}, {Verdict: Rejected, ExitCode: -1, Error: "killed"},
		{Verdict: Deferred, ExitCode: 75, Error: "exit 75"}, nil, {Verdict: Failed, ExitCode: 3, Error: "exit 3"}, nil}
	for _, r := range results {
		_, err := feed.Next(ctx, r)
		must(err)
		now = now.Add(time.Second)
	}
	_, err = th.RetryDead(ctx, []DeadLetter{{Consumer: "c", Event: event.Event{ID: 2}}})
	must(err)
	sub := "sub"
	draft := event.Draft{Source: "s", Type: "t", Subtype: &sub, Content: "x", DedupeKey: "key 9", DedupeWindow: time.Hour}
	_, err = th.PushAt(ctx, draft, now.Add(time.Hour))
	must(err)
	_, err = th.AddSchedule(ctx, Schedule{Name: "n", Spec: "@every 1h", Draft: event.Draft{Source: "cron", Type: "tick"}})
	must(err)

	var b strings.Builder
	must(th.View(ctx, func(tx *Tx) error {
		for _, name := range [][]byte{bucketDeliveries, bucketDead, bucketRetries, bucketDedupe, bucketDedupeExpiry, bucketScheduled, bucketSchedules} {
			fmt.Fprintf(&b, "%s\n", name)
			err := bolt.Raw(tx.s).Bucket(name).ForEach(func(k, v []byte) error {
				fmt.Fprintf(&b, "  %s\n    %s\n", hex.EncodeToString(k), hex.EncodeToString(v))
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	}))
	golden := filepath.Join("testdata", "later.golden")
	if *update {
		must(os.WriteFile(golden, []byte(b.String()), 0o644))
	}
	want, err := os.ReadFile(golden)
	must(err)
	if b.String() != string(want) {
		t.Errorf("the bytes on disk have changed:\n%s\nwant:\n%s", b.String(), want)
	}
}
