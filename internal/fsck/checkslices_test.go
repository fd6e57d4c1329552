package fsck

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"thread/engine"
	"thread/event"
	"thread/internal/store/bolt"
	"thread/internal/store/bolt/disk"
)

// inShortSlices makes every slice of a check as short as it can be: one page.
func inShortSlices(t *testing.T) {
	was := checkSliceTime
	checkSliceTime = 0
	t.Cleanup(func() { checkSliceTime = was })
}

// TestCheckBesideWriters checks in slices of one page while others push events of
// all sizes, with new types, series, keys and column blocks, ack, and subscribe. What
// changes between two slices is not a fault, and no second look is needed.
func TestCheckBesideWriters(t *testing.T) {
	inShortSlices(t)
	th, err := engine.Init(filepath.Join(t.TempDir(), "inbox"))
	if err != nil {
		t.Fatal(err)
	}
	push := func(n int) {
		ds := make([]event.Draft, 300)
		for i := range ds {
			ds[i] = event.Draft{Source: fmt.Sprintf("%d of %d", i%70, n), Type: fmt.Sprint("t", n), Content: strings.Repeat("x", rand.IntN(200)), DedupeKey: fmt.Sprint(n, " ", i)}
		}
		ds[n%300].Content = strings.Repeat("long ", rand.IntN(8000))
		if _, err := th.PushBatch(ctx, ds); err != nil {
			t.Error(err)
		}
	}
	for n := range 10 {
		push(n)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := 10; n < 40; n++ {
			push(n)
			consumer := fmt.Sprint("c", n%5)
			if err := th.Subscribe(ctx, engine.Subscription{Consumer: consumer, Handler: "true"}); err == nil {
				_, err = th.Pop(ctx, consumer, engine.PopQuery{LastAcked: int64(n), Limit: 1})
				if err != nil {
					t.Error(err)
				}
			} else if err := th.Unsubscribe(ctx, consumer); err != nil {
				t.Error(err)
			}
		}
	}()
	for n, over := 0, false; !over; n++ {
		select {
		case <-done:
			over = true
		default:
		}
		c := newChecker(th.WithoutRelease())
		c.pages = checkPages{ctx: ctx, sliced: true}
		err := c.database()
		c.pages.close()
		if err != nil || len(c.report.Faults) > 0 {
			t.Fatalf("round %d: %v %.1000v", n, err, c.report.Faults)
		}
		if c.report.Events != c.st.Stored {
			t.Errorf("%d of %d events", c.report.Events, c.st.Stored)
		}
	}
	if r, err := Check(ctx, th); err != nil || len(r.Faults) > 0 {
		t.Fatal(r, err)
	}
}

// TestCheckFindsWhatBboltFinds spoils pages at random. Where check has no fault,
// bbolt's own check has none either.
func TestCheckFindsWhatBboltFinds(t *testing.T) {
	inShortSlices(t)
	dir := filepath.Join(t.TempDir(), "inbox")
	th, err := engine.Init(dir)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 12 {
		ds := make([]event.Draft, 200)
		for i := range ds {
			ds[i] = event.Draft{Source: fmt.Sprint(i%90, n), Type: "t", Content: strings.Repeat("x", i%200), DedupeKey: fmt.Sprint(n, " ", i)}
		}
		if _, err := th.PushBatch(ctx, ds); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, bolt.DatabaseName)
	db, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	seeds := uint64(20)
	if os.Getenv("THREAD_SOAK") != "" {
		seeds = 200
	}
	named := uint64(0)
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 1))
		page := 2 + r.IntN(len(db)/disk.PageBytes-2)
		spoiled := append([]byte{}, db...)
		// Header, elements, keys; what has checksums of ours is not bbolt's business.
		spoiled[page*disk.PageBytes+r.IntN(400)] ^= 1 << r.IntN(8)
		if err := os.WriteFile(path, spoiled, bolt.FileMode); err != nil {
			t.Fatal(err)
		}
		ours, err := Check(ctx, th)
		if err != nil || len(ours.Faults) > 0 {
			named++
			continue // bbolt's check does not always come back from a damaged file
		}
		if theirs := bboltFinds(path); theirs != nil {
			t.Errorf("seed %d, page %d: bbolt finds %v, check nothing", seed, page, theirs)
		}
	}
	t.Logf("check finds %d of %d", named, seeds)
	if named < seeds/4 {
		t.Error("too few damages tell anything")
	}
}

func bboltFinds(path string) (err error) {
	_ = bolt.Guard(func() error {
		db, oerr := bbolt.Open(path, bolt.FileMode, &bbolt.Options{ReadOnly: true})
		if oerr != nil {
			return nil // not its check
		}
		defer db.Close()
		return db.View(func(tx *bbolt.Tx) error {
			for e := range tx.Check() {
				err = e
			}
			return nil
		})
	})
	return err
}
