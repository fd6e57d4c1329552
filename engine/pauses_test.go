package engine

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"thread/event"
	"thread/internal/store/bolt"
)

// TestPauses says how long pushes wait while a thread of THREAD_PAUSES bytes is
// compacted, pruned and copied, next to pushes to another thread on the same disk. It judges nothing but that all goes well: times are for
// the process that reads them.
func TestPauses(t *testing.T) {
	size, _ := strconv.ParseInt(os.Getenv("THREAD_PAUSES"), 10, 64)
	if size == 0 {
		t.Skip("set THREAD_PAUSES to the bytes that the thread is to have, for example 1000000000")
	}
	th, err := Init(filepath.Join(t.TempDir(), "inbox"))
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 23))
	for done := int64(0); done < size; {
		ds := make([]event.Draft, 4000)
		for i := range ds {
			content := make([]byte, 1000)
			for j := range content {
				content[j] = byte('a' + r.IntN(26))
			}
			ds[i] = event.Draft{Source: fmt.Sprint("s", i%100), Type: "t", Content: string(content)}
			if i%40 == 0 {
				ds[i].DedupeKey, ds[i].DedupeWindow = fmt.Sprint(done, i), time.Hour
			}
			done += 1000
		}
		if _, err := th.PushBatch(ctx, ds); err != nil {
			t.Fatal(err)
		}
	}
	if rows, _ := strconv.Atoi(os.Getenv("THREAD_PAUSES_ROWS")); rows > 0 {
		for at := 0; at < rows; at += 10000 {
			err := th.Update(ctx, func(tx *Tx) error {
				table, err := tx.Records("rows")
				for i := at; i < at+10000 && err == nil; i++ {
					err = table.Put(fmt.Appendf(nil, "%08d", i), []byte("a row of some length, as that of a session is"))
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	info, err := os.Stat(filepath.Join(th.Dir(), "events.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("events.db has %d MB", info.Size()>>20)
	keep := head(t, th) - 1000
	control, err := Init(filepath.Join(t.TempDir(), "control"))
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "copy")
	for _, op := range []struct {
		name string
		do   func() error
	}{
		{"nothing", func() error { <-time.After(2 * time.Second); return nil }}, // the pace of the measurement
		{"backup", func() error {
			_, _, err := th.Store().(*bolt.Store).CopyTo(ctx, bolt.CopyOptions{To: copied})
			return err
		}},
		{"compact", func() error { _, err := th.Compact(ctx); return err }},
		{"prune of a little", func() error { _, err := th.Prune(ctx, Retention{KeepLast: &keep}); return err }},
		{"retain of an eighth", func() error {
			if err := th.SetLimits(ctx, Limits{MaxEvents: keep - 1}); err != nil {
				return err
			}
			_, err := th.Retain(ctx)
			return err
		}},
	} {
		over, stop := context.WithCancel(ctx)
		began := time.Now()
		var took, alone []pushTime
		var all sync.WaitGroup
		for dir, times := range map[string]*[]pushTime{th.Dir(): &took, control.Dir(): &alone} {
			other, err := Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			all.Go(func() {
				for over.Err() == nil {
					at := time.Now()
					if _, err := other.Push(ctx, event.Draft{Source: "pusher", Type: "t", Content: "x"}); err != nil {
						t.Error(err)
						return
					}
					*times = append(*times, pushTime{time.Since(at), at.Sub(began)})
					time.Sleep(10 * time.Millisecond) // the load's pace
				}
			})
		}
		err := op.do()
		length := time.Since(began)
		<-time.After(time.Second) // what the file system does afterwards
		stop()
		all.Wait()
		if err != nil {
			t.Fatalf("%s: %v", op.name, err)
		}
		t.Logf("%-20s %6d ms, %s", op.name, length.Milliseconds(), summary(took))
		t.Logf("%-20s            %s", "  another thread", summary(alone))
	}
}

// pushTime is how long a push took, and when it began.
type pushTime struct{ took, at time.Duration }

func summary(all []pushTime) string {
	slices.SortFunc(all, func(a, b pushTime) int { return cmp.Compare(a.took, b.took) })
	s := fmt.Sprintf("%4d pushes: median %v, slowest", len(all), all[len(all)/2].took.Round(time.Microsecond))
	for _, p := range all[max(0, len(all)-4):] {
		s += fmt.Sprintf(" %v (at %v)", p.took.Round(time.Millisecond), p.at.Round(time.Millisecond))
	}
	return s
}
