package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"thread/event"
	"thread/index"
	"thread/internal/store"
	"thread/internal/store/bolt"
)

// backlog is how many events the fairness test and the benchmark put before the one that
// must not starve: THREAD_BACKLOG, or few.
func backlog(tb testing.TB, few int) int {
	s := os.Getenv("THREAD_BACKLOG")
	if s == "" {
		return few
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		tb.Fatalf("THREAD_BACKLOG %q is not a number from 1", s)
	}
	return n
}

// backlogged returns a thread with n events in turn over that many keys, some 300 bytes
// each, and after them the only event of the key "one". Consumer c has read nothing.
func backlogged(tb testing.TB, n, keys int) *Thread {
	tb.Helper()
	dir := filepath.Join(tb.TempDir(), "t")
	r, err := bolt.StartRestore(dir, false)
	if err != nil {
		tb.Fatal(err)
	}
	defer r.Close()
	content := strings.Repeat("please look at the report until tomorrow; ", 7)
	for i := range n + 1 {
		e := event.Event{ID: int64(i + 1), CreatedAt: "2026-03-18T10:30:00.123Z", Source: "many" + strconv.Itoa(i%keys), Type: "t", Content: content}
		if i == n {
			e.Source = "one"
		}
		if err := r.Event(&e); err != nil {
			tb.Fatal(err)
		}
	}
	if err := r.Finish(0, 0); err != nil {
		tb.Fatal(err)
	}
	if err := r.Publish(); err != nil {
		tb.Fatal(err)
	}
	th, err := Open(dir)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { th.Close() })
	if err := th.Subscribe(ctx, Subscription{Consumer: "c", Handler: "true"}); err != nil {
		tb.Fatal(err)
	}
	return th
}

// untilOne consumes with that many at once until the event of the key "one" comes, and
// returns how many came before it, and in how many steps.
func untilOne(tb testing.TB, th *Thread, atOnce, most int) (before, steps int) {
	tb.Helper()
	f, err := th.ParallelFeed("c", ParallelPolicy{Key: "source"})
	if err != nil {
		tb.Fatal(err)
	}
	var q Step
	for steps = 1; ; steps++ {
		q.Begin = atOnce - len(f.out) + len(q.Results)
		g, err := f.Step(ctx, q)
		if err != nil {
			tb.Fatal(err)
		}
		q = Step{}
		for _, d := range g.Begin {
			if d.Key == "one" {
				return before, steps
			}
			if before++; before > most {
				tb.Fatalf("%d events of other keys came, and not the one of this key", before)
			}
			q.Results = append(q.Results, DeliveryResult{Number: d.Number()})
		}
	}
}

// TestFairness gives the only event of a key its turn behind a backlog of other keys,
// few or many: of a million with THREAD_BACKLOG=1000000. Each step looks at a block of
// events at least, or at as many as may be loaded, and each key that is known has its
// turn before.
func TestFairness(t *testing.T) {
	n := backlog(t, 20_000)
	for _, keys := range []int{1, 40, 3000} {
		const atOnce = 16
		th := backlogged(t, n, keys)
		most := atOnce*(n/index.BlockEvents+loadedAtOnce/64+8) + keys
		before, steps := untilOne(t, th, atOnce, most)
		t.Logf("%d events over %d keys: %d came before, in %d steps; at most %d may", n, keys, before, steps, most)
	}
}

// BenchmarkParallelBacklog is how long the only event of a key waits behind a backlog of
// other keys whose work takes no time.
func BenchmarkParallelBacklog(b *testing.B) {
	n := backlog(b, 50_000)
	for _, keys := range []int{1, 100} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			th := backlogged(b, n, keys)
			before, steps := 0, 0
			for b.Loop() {
				if err := th.Seek(ctx, "c", 0); err != nil {
					b.Fatal(err)
				}
				before, steps = untilOne(b, th, 16, n)
			}
			b.ReportMetric(float64(before), "before")
			b.ReportMetric(float64(steps), "steps")
		})
	}
}

// BenchmarkParallelSet is what a step costs that settles and gives out sixteen events above
// that many ranges, and what a range takes in the database.
func BenchmarkParallelSet(b *testing.B) {
	const atOnce, most = 16, 5000
	for _, ranges := range []int{0, 100, 1000, most} {
		b.Run(fmt.Sprintf("ranges=%d", ranges), func(b *testing.B) {
			th := backlogged(b, 2*most+200*atOnce, 1)
			f, err := th.ParallelFeed("c", ParallelPolicy{Window: 1 << 40})
			if err != nil {
				b.Fatal(err)
			}
			step := func(q Step) Given {
				g, err := f.Step(ctx, q)
				if err != nil {
					b.Fatal(err)
				}
				return g
			}
			var q Step
			for given := 0; given < 2*ranges+1; { // every other one is settled, the first is not
				q.Begin = min(500, 2*ranges+1-given)
				g := step(q)
				given += len(g.Begin)
				q = Step{}
				for _, d := range g.Begin {
					if d.Events[0].ID%2 == 0 {
						q.Results = append(q.Results, DeliveryResult{Number: d.Number()})
					}
				}
			}
			q.Begin = atOnce
			for n := 0; b.Loop(); n++ {
				if n == 150 {
					b.Fatal("too few events for so many steps: run it with -benchtime 100x")
				}
				g := step(q)
				q = Step{Begin: atOnce}
				for _, d := range g.Begin {
					q.Results = append(q.Results, DeliveryResult{Number: d.Number()})
				}
			}
			bytes, rows := 0, 0
			if err := th.read(ctx, func(tx *Tx) error {
				return tx.eachLetter(store.Settled, "c", func(k, v []byte) (bool, error) {
					bytes, rows = bytes+len(k)+len(v)+16, rows+1 // 16: what a leaf page has for each
					return true, nil
				})
			}); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(rows), "ranges")
			if rows > 0 {
				b.ReportMetric(float64(bytes)/float64(rows), "B/range")
			}
		})
	}
}

// BenchmarkParallelFeed is what an event costs the feed whose work takes no time, when
// all that is stored is read.
func BenchmarkParallelFeed(b *testing.B) {
	const n = 20_000
	th := backlogged(b, n, 100)
	for b.Loop() {
		if err := th.Seek(ctx, "c", 0); err != nil {
			b.Fatal(err)
		}
		f, err := th.ParallelFeed("c", ParallelPolicy{Key: "source"})
		if err != nil {
			b.Fatal(err)
		}
		var q Step
		for done := 0; done <= n; {
			q.Begin = 100
			g, err := f.Step(ctx, q)
			if err != nil {
				b.Fatal(err)
			}
			q = Step{}
			for _, d := range g.Begin {
				q.Results = append(q.Results, DeliveryResult{Number: d.Number()})
				done++
			}
		}
		if _, err := f.Step(ctx, q); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/n, "µs/event")
}
