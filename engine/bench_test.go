package engine

import (
	"fmt"
	"iter"
	"math"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"thread/event"
	"thread/filter"
	"thread/internal/store"
	"thread/internal/store/bolt"
)

// benchEvents is how many events the threads of the benchmarks of reads hold.
const benchEvents = 100_000

// benchDrafts are n drafts of some 300 bytes, of 200 sources and 2 types.
func benchDrafts(n int) iter.Seq2[event.Draft, error] {
	content := strings.Repeat("please look at the report until tomorrow; ", 7)
	return func(yield func(event.Draft, error) bool) {
		for i := range n {
			d := event.Draft{Source: fmt.Sprintf("external:chat:%03d:dm", i*7919%200), Type: []string{"message", "record"}[i%2], Content: content + fmt.Sprint(i)}
			if !yield(d, nil) {
				return
			}
		}
	}
}

// newBench returns a thread of n events, a millisecond apart.
func newBench(b *testing.B, n int) *Thread {
	b.Helper()
	now := time.UnixMilli(1773829800123)
	dir := filepath.Join(b.TempDir(), "t")
	r, err := bolt.StartRestore(dir, false)
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	id := int64(0)
	for d := range benchDrafts(n) {
		id++
		now = now.Add(time.Millisecond)
		if err := r.Event(&event.Event{ID: id, CreatedAt: event.FormatTime(now), Source: d.Source, Type: d.Type, Content: d.Content}); err != nil {
			b.Fatal(err)
		}
	}
	if err := r.Finish(0, 0); err != nil {
		b.Fatal(err)
	}
	if err := r.Publish(); err != nil {
		b.Fatal(err)
	}
	t, err := Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	return t
}

// BenchmarkPeek is a page of 100, which most filters find without reading other
// events, and the search of one that matches nothing.
func BenchmarkPeek(b *testing.B) {
	t := newBench(b, benchEvents)
	late := event.FormatTime(time.UnixMilli(1773829800123 + benchEvents - 50))
	for _, q := range []struct{ name, where string }{
		{"none", ""},
		{"type", "type = 'record'"},
		{"source", "source = 'external:chat:117:dm'"},
		{"both", "source = 'external:chat:117:dm' AND type = 'record'"},
		{"suffix", "source LIKE '%:117:dm'"},
		{"nothing", "source LIKE '%:nobody'"},
		{"content", "content LIKE '%zzz%'"},
		{"recent", "created_at >= '" + late + "'"},
	} {
		b.Run(q.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := t.Peek(ctx, Query{Limit: 100, Filter: q.where}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("newest", func(b *testing.B) {
		for b.Loop() {
			if _, err := t.Peek(ctx, Query{Limit: 100, Reverse: true}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkManySeries is a page of 100 where every event is of a separate series,
// and what 20 consumers have not read.
func BenchmarkManySeries(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "t")
	t, err := Init(dir)
	if err != nil {
		b.Fatal(err)
	}
	_, err = t.PushAll(ctx, func(yield func(event.Draft, error) bool) {
		for i := range uint32(benchEvents) {
			d := event.Draft{Source: fmt.Sprintf("mail:%08x:user%d", i*2654435761, i%1000), Type: []string{"message", "record"}[i%2]}
			if !yield(d, nil) {
				return
			}
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	for _, q := range []struct{ name, where string }{
		{"no type", "type = 'nope'"},
		{"prefix", "source LIKE 'mail:fff%'"},
		{"suffix", "source LIKE '%:user77'"},
		{"nothing", "source LIKE '%:nobody'"},
	} {
		b.Run(q.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := t.Peek(ctx, Query{Limit: 100, Filter: q.where}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	var names []string
	for i := range 20 {
		where := fmt.Sprintf("source LIKE '%%:user%d'", i)
		names = append(names, fmt.Sprint(i))
		if err := t.Subscribe(ctx, Subscription{Consumer: names[i], Handler: "true", Filter: &where}); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("backlogs", func(b *testing.B) {
		for b.Loop() {
			for _, backlog := range t.Backlogs(ctx, names) {
				if backlog.Err != nil || backlog.Count != benchEvents/1000 {
					b.Fatal(backlog)
				}
			}
		}
	})
}

// BenchmarkDrain reads all events.
func BenchmarkDrain(b *testing.B) {
	t := newBench(b, benchEvents)
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for _, err := range t.Events(ctx, Query{}) {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if n != benchEvents {
			b.Fatal(n)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchEvents, "ns/event")
}

// BenchmarkPush is one durable push: two syncs.
func BenchmarkPush(b *testing.B) {
	for _, n := range []int{1000, benchEvents} {
		b.Run(fmt.Sprintf("stored=%d", n), func(b *testing.B) {
			t := newBench(b, n)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := t.Push(ctx, event.Draft{Source: "self", Type: "message", Content: "hello"}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkPushTogether is the durable pushes of several goroutines on one
// handle, which share their syncs.
func BenchmarkPushTogether(b *testing.B) {
	for _, goroutines := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
			t := newBench(b, 1000)
			const each = 20
			for b.Loop() {
				var wg sync.WaitGroup
				for range goroutines {
					wg.Go(func() {
						for range each {
							if _, err := t.Push(ctx, event.Draft{Source: "self", Type: "message", Content: "hello"}); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
			}
			b.ReportMetric(float64(goroutines*each*b.N)/b.Elapsed().Seconds(), "pushes/s")
		})
	}
}

// BenchmarkPushAll is a batch in several transactions.
func BenchmarkPushAll(b *testing.B) {
	t := newBench(b, 1000)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := t.PushAll(ctx, benchDrafts(benchEvents)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*benchEvents/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkPop is a pop with its ack, one durable transaction.
func BenchmarkPop(b *testing.B) {
	t := newBench(b, benchEvents)
	if err := t.Subscribe(ctx, Subscription{Consumer: "c", Handler: "true", Filter: event.Text("type = 'record'")}); err != nil {
		b.Fatal(err)
	}
	for last := int64(0); b.Loop(); {
		page, err := t.Pop(ctx, "c", PopQuery{LastAcked: last, Limit: 10})
		if err != nil {
			b.Fatal(err)
		}
		for e, err := range page.Events {
			if err != nil {
				b.Fatal(err)
			}
			last = e.ID
		}
		if last > benchEvents-100 {
			last = 0
		}
	}
}

// BenchmarkDue asks whether any of many consumers has something to do; none has.
func BenchmarkDue(b *testing.B) {
	for _, n := range []int{1, 1000} {
		b.Run(fmt.Sprintf("subscriptions=%d", n), func(b *testing.B) {
			t := newBench(b, benchEvents)
			err := t.Update(ctx, func(tx *Tx) error {
				for i := range n {
					where := fmt.Sprintf("source LIKE '%%:nobody-%d'", i)
					if err := tx.Subscribe(Subscription{Consumer: fmt.Sprint(i), Handler: "true", Filter: &where}); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				due, err := t.Due(ctx)
				if err != nil || len(due) != 0 {
					b.Fatal(due, err)
				}
			}
		})
	}
}

// BenchmarkSearch is the inner loop: a filter that reads every event, in one
// transaction.
func BenchmarkSearch(b *testing.B) {
	t := newBench(b, benchEvents)
	for _, where := range []string{"content LIKE '%zzz%'", "length(content) < 3", "created_at LIKE '%x'"} {
		b.Run(where, func(b *testing.B) {
			f, err := filter.Compile(where)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				err := t.View(ctx, func(tx *Tx) error {
					_, err := tx.s.Scan(store.Scan{Selection: newSelection(f), Upto: math.MaxInt64}, func(int64) (bool, error) { return false, nil })
					return err
				})
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchEvents, "ns/event")
		})
	}
}
