package lane

import (
	"context"
	"strconv"
	"testing"
	"time"
)

// BenchmarkSubmit measures what the queue adds to a task, from Submit to its end. One
// task starts at once, the others wait in line.
func BenchmarkSubmit(b *testing.B) {
	ctx := context.Background()
	nothing := func(context.Context) error { return nil }

	b.Run("plain-goroutine", func(b *testing.B) { // for comparison
		b.ReportAllocs()
		for b.Loop() {
			done := make(chan struct{})
			go close(done)
			<-done
		}
	})
	b.Run("one-by-one", func(b *testing.B) {
		q := New(nil)
		b.ReportAllocs()
		for b.Loop() {
			t, err := q.Submit(ctx, Session("a", Main), nothing)
			if err != nil {
				b.Fatal(err)
			}
			<-t.Done()
		}
	})
	for _, sessions := range []int{1, 10_000} {
		b.Run("in-line/sessions="+strconv.Itoa(sessions), func(b *testing.B) {
			q := New(nil)
			paths := make([]Path, sessions)
			for i := range paths {
				paths[i] = Session(strconv.Itoa(i), Main)
			}
			var last *Task
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				t, err := q.Submit(ctx, paths[i%sessions], nothing)
				if err != nil {
					b.Fatal(err)
				}
				i++
				last = t
				// A line of bounded length: the benchmark measures the queue, not
				// how far the garbage collector falls behind.
				if i%20_000 == 0 {
					<-last.Done()
				}
			}
			<-last.Done()
		})
	}
	b.Run("cancelable-in-line", func(b *testing.B) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		q := New(nil)
		var last *Task
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			last, _ = q.Submit(ctx, Session("a", Main), nothing)
			if i++; i%20_000 == 0 {
				<-last.Done()
			}
		}
		<-last.Done()
	})
}

// BenchmarkStart measures from Submit to the first instruction of the task,
// the wake-up of its goroutine included.
func BenchmarkStart(b *testing.B) {
	q := New(nil)
	ctx := context.Background()
	var total time.Duration
	for b.Loop() {
		var startedAt time.Time
		submittedAt := time.Now()
		t, err := q.Submit(ctx, Session("a", Main), func(context.Context) error { startedAt = time.Now(); return nil })
		if err != nil {
			b.Fatal(err)
		}
		<-t.Done()
		total += startedAt.Sub(submittedAt)
	}
	b.ReportMetric(float64(total.Nanoseconds())/float64(b.N), "ns/start")
}
