package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"thread/event"
	"thread/internal/store"
	"thread/internal/store/bolt"
	"thread/internal/store/bolt/disk"
)

// TestRewriteBesideWriters compacts and prunes in slices of one record while another
// pushes, with dedupe keys, long contents, and series that are new or would have been
// dropped, acks, subscribes, and pushes with keys. What there is in the end is what
// the same writes make without a copy.
func TestRewriteBesideWriters(t *testing.T) {
	was := bolt.SliceTime
	bolt.SliceTime = 0
	t.Cleanup(func() { bolt.SliceTime = was })
	clock := func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }
	for _, keep := range []int64{-1, 700, 40} {
		t.Run(fmt.Sprint("keep ", keep), func(t *testing.T) {
			var both [2]*Thread // the second one stays as it is written
			for i := range both {
				th, err := Init(filepath.Join(t.TempDir(), "inbox"))
				if err != nil {
					t.Fatal(err)
				}
				th.now = clock
				both[i] = th
			}
			write := func(n, events int) {
				seed := rand.New(rand.NewPCG(uint64(n), 1))
				ds := make([]event.Draft, events)
				for i := range ds {
					ds[i] = event.Draft{Source: fmt.Sprint("s", seed.IntN(1500)), Type: fmt.Sprint("t", n/3), Content: strings.Repeat("x", seed.IntN(200))}
					if i%7 == 0 {
						ds[i].DedupeKey = fmt.Sprint("key ", n/2, " ", i)
					}
					if n%4 == 1 {
						ds[i].Source, ds[i].Type = fmt.Sprint("s", seed.IntN(1500)), "t0" // long ago
					}
				}
				ds[0].Content = strings.Repeat("long ", seed.IntN(8000))
				consumer := fmt.Sprint("c", n%5)
				for _, th := range both {
					if _, err := th.PushBatch(ctx, ds); err != nil {
						t.Error(err)
					}
					if err := th.Subscribe(ctx, Subscription{Consumer: consumer, Handler: "true"}); err == nil {
						if _, err := th.Pop(ctx, consumer, PopQuery{LastAcked: int64(n), Limit: 1}); err != nil {
							t.Error(err)
						}
					} else if err := th.Unsubscribe(ctx, consumer); err != nil {
						t.Error(err)
					}
				}
			}
			const before = 12
			after := 8
			if os.Getenv("THREAD_SOAK") != "" {
				after = 24
			}
			for n := range before {
				write(n, 130)
			}
			head := int64(0)
			if err := both[0].View(ctx, func(tx *Tx) error { head = tx.Head(); return nil }); err != nil {
				t.Fatal(err)
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				for n := before; n < before+after; n++ {
					write(n, 1+n%30)
				}
			}()
			through := int64(0)
			for over := false; !over; {
				select {
				case <-done:
					over = true
				default:
				}
				var c Compaction
				var err error
				if keep < 0 {
					c, err = both[0].Compact(ctx)
				} else {
					c, err = both[0].Prune(ctx, Retention{KeepLast: &keep, Force: true})
				}
				if err != nil && !errors.Is(err, ErrBusy) {
					t.Fatal(err)
				}
				through = max(through, c.Through)
			}
			if r, err := Check(ctx, both[0]); err != nil || len(r.Faults) > 0 {
				t.Fatal(err, r.Faults)
			}
			if keep >= 0 {
				if through <= head-keep {
					t.Errorf("dropped up to %d", through)
				}
				d := store.Dropping{Through: func(store.Tx) (int64, error) { return through, nil }}
				if _, err := both[1].s.Prune(ctx, d); err != nil {
					t.Fatal(err)
				}
			}
			got, err := both[0].Digest(ctx)
			want, err2 := both[1].Digest(ctx)
			if err != nil || err2 != nil || got != want {
				t.Errorf("%x, without copies %x: %v %v", got, want, err, err2)
			}
			for i, r := range same(t, both) {
				if r[0] != r[1] {
					t.Errorf("bucket %d: %.300s, without copies %.300s", i, r[0], r[1])
				}
			}
		})
	}
}

// same returns, of both threads, the entries of the buckets that are copied whole,
// and which series there are.
func same(t *testing.T, both [2]*Thread) (of [][2]string) {
	t.Helper()
	names := [][]byte{bucketDead, bucketRetries, bucketDedupe, bucketDedupeExpiry, bucketDeliveries, disk.BucketSeries, disk.BucketTypes}
	of = make([][2]string, len(names))
	for i, th := range both {
		err := th.View(ctx, func(tx *Tx) error {
			for n, name := range names {
				var b strings.Builder
				if from := bolt.Raw(tx.s).Bucket(name); from != nil {
					_ = from.ForEach(func(k, v []byte) error {
						if n >= len(names)-2 {
							v = nil // a series that was gone for a time has another number, and types are numbered again
						}
						fmt.Fprintf(&b, "%x %x\n", k, v)
						return nil
					})
				}
				of[n][i] = b.String()
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return of
}
