//go:build linux

package serve

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
)

// dearFixture makes 300 threads. The first has 1,000 consumers and THREAD_DEAR_EVENTS
// events (100,000), which the filter of one consumer takes seconds to read.
func dearFixture(b *bench, root string) {
	b.Helper()
	events := 100_000
	if text := os.Getenv("THREAD_DEAR_EVENTS"); text != "" {
		var err error
		if events, err = strconv.Atoi(text); err != nil {
			b.Fatal(err)
		}
	}
	pushAll := func(t *engine.Thread, n int) {
		if _, err := t.PushAll(b.Context(), func(yield func(event.Draft, error) bool) {
			for i := range n {
				if !yield(event.Draft{Source: fmt.Sprint("s", i%50), Type: fmt.Sprint("t", i%20), Content: `{"text":"the quick brown fox jumps over the lazy dog"}`}, nil) {
					return
				}
			}
		}); err != nil {
			b.Fatal(err)
		}
	}
	subscribe := func(t *engine.Thread, name, filter string) {
		if err := t.Subscribe(b.Context(), engine.Subscription{Consumer: name, Pull: true, Filter: &filter}); err != nil {
			b.Fatal(err)
		}
	}
	big, err := engine.Init(filepath.Join(root, "a-big"))
	if err != nil {
		b.Fatal(err)
	}
	subscribe(big, "dear", "content LIKE '%quick%dog%' AND content LIKE '%brown%nothing%'")
	pushAll(big, events)
	for i := range 999 {
		subscribe(big, fmt.Sprintf("c%03d", i), fmt.Sprintf("type = 't%d' AND source = 's%d'", i%20, i%50))
	}
	for i := range 299 {
		t, err := engine.Init(filepath.Join(root, fmt.Sprintf("t%03d", i)))
		if err != nil {
			b.Fatal(err)
		}
		subscribe(t, "c", "type = 't1'")
		pushAll(t, 10)
	}
}

// BenchmarkDear is how long the pages and metrics of 300 threads take, of which one has
// 1,000 consumers and a filter that is dear, while events are pushed.
func BenchmarkDear(b *testing.B) {
	t := newBench(b)
	root := os.Getenv("THREAD_DEAR_DIR")
	if root == "" {
		root = b.TempDir()
	}
	if _, err := os.Stat(filepath.Join(root, "a-big")); err != nil {
		dearFixture(t, root)
	}
	scrapeWait = 50 * time.Millisecond // as outside of tests
	t.listen(Options{Roots: []string{root}, UI: true})
	ctx, stop := context.WithCancel(b.Context())
	var load sync.WaitGroup
	load.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			<-tick.C
			name := "a-big"
			if i%2 == 1 {
				name = fmt.Sprintf("t%03d", i%299)
			}
			if th := t.s.thread(filepath.Join(root, name)); th != nil {
				_, _ = th.t.Push(ctx, event.Draft{Source: "s1", Type: "t1", Content: "x"})
				th.wake(wakeUp{set: true, push: true})
			}
		}
	})
	b.Cleanup(func() { stop(); load.Wait() })
	cpu := func() time.Duration {
		var u syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	for _, of := range [][2]string{{"home", "/"}, {"consumers", "/threads/a-big/info"}, {"metrics", "/metrics"}, {"healthz", "/healthz"}} {
		b.Run(of[0], func(b *testing.B) {
			var took []time.Duration
			begin, before := time.Now(), cpu()
			for b.Loop() {
				at := time.Now()
				r, err := http.DefaultClient.Do(t.request(of[1]))
				if err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(at))
				if _, err := io.Copy(io.Discard, r.Body); err != nil || r.StatusCode != 200 {
					b.Fatal(r.StatusCode, err)
				}
				r.Body.Close()
			}
			used, passed := cpu()-before, time.Since(begin)
			slices.Sort(took)
			ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
			b.ReportMetric(ms(took[len(took)/2]), "ms/first-byte")
			b.ReportMetric(ms(took[len(took)*95/100]), "ms/p95")
			b.ReportMetric(ms(used)/float64(len(took)), "ms-CPU/request")
			b.ReportMetric(used.Seconds()/passed.Seconds(), "cores")
		})
	}
}
