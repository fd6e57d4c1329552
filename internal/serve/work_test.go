//go:build linux

package serve

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"thread/history"
)

// shop is workers that are goroutines of the test.
type shop struct {
	b    *bench
	h    *history.History
	mu   sync.Mutex
	took []string // the runs, in the order in which they were taken, with the attempt
	busy int
	most int
	end  chan struct{} // of the runs: closed to let them end
	term chan struct{} // closed when the server has asked a worker to end
	once sync.Once
}

func newShop(b *bench) *shop {
	b.Helper()
	h, err := history.Open(context.Background(), b.t.Dir())
	if err != nil {
		b.Fatal(err)
	}
	return &shop{b: b, h: h, end: make(chan struct{}), term: make(chan struct{})}
}

type clerk struct {
	s    *shop
	done chan error
}

func (s *shop) start(string) (worker, error) {
	c := &clerk{s, make(chan error, 1)}
	go func() { c.done <- c.work() }()
	return c, nil
}

func (c *clerk) Wait() error { return <-c.done }
func (c *clerk) End()        { c.s.once.Do(func() { close(c.s.term) }) }

func (c *clerk) work() error {
	ctx := context.Background()
	r, row, err := c.s.h.Claim(ctx, history.Supervised())
	if errors.Is(err, history.ErrNoneReady) {
		return nil
	}
	if err != nil {
		return err
	}
	s := c.s
	s.mu.Lock()
	s.took = append(s.took, fmt.Sprint(row.ID, "/", row.Attempt))
	s.busy++
	s.most = max(s.most, s.busy)
	s.mu.Unlock()
	select {
	case <-s.end:
	case <-s.term:
	}
	s.mu.Lock()
	s.busy--
	s.mu.Unlock()
	return r.End(ctx, history.End{Status: history.Completed})
}

func (s *shop) enqueue(id, session string) {
	s.b.Helper()
	if _, err := s.h.Enqueue(context.Background(), history.RunRow{ID: id, SessionID: session}); err != nil {
		s.b.Fatal(err)
	}
}

func (s *shop) status(id string) string {
	var r history.RunRow
	if err := s.h.Get(context.Background(), &r, id); err != nil {
		return err.Error()
	}
	return strings.TrimSpace(r.Status + " " + r.ErrorCode)
}

func (s *shop) taken() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.took)
}

// TestServeExecutesRuns is H-16: a server executes what is queued, oldest first, runs of
// a session in order and one at a time, no more at once than it may, what was queued
// before it began as what comes later, also in a thread that had no history yet.
func TestServeExecutesRuns(t *testing.T) {
	b := newBench(t)
	s := newShop(b)
	b.serve(Options{Work: Work{Command: "x", Parallel: 2, start: s.start, every: 60 * time.Millisecond}})
	if _, err := s.h.StartSession(t.Context(), history.SessionRow{ID: "S"}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"s1", "s2", "s3"} {
		s.enqueue(id, "S")
	}
	s.enqueue("free1", "")
	s.enqueue("free2", "")
	b.until("two are taken", func() bool { return len(s.taken()) == 2 })
	close(s.end)
	b.until("all are completed", func() bool {
		for _, id := range []string{"s1", "s2", "s3", "free1", "free2"} {
			if s.status(id) != history.Completed {
				return false
			}
		}
		return true
	})
	took := s.taken()
	slices.Sort(took[:2]) // two at once, who may note it in any order
	if took[0] != "free1/1" || took[1] != "s1/1" || slices.Index(took, "s2/1") > slices.Index(took, "s3/1") || len(took) != 5 || s.most != 2 {
		t.Errorf("taken: %v, at most %d at once", took, s.most)
	}
}

// TestServeGoesOn: without the clock, the end of each worker and each enqueue leads to the
// next run, whichever the server hears of first.
func TestServeGoesOn(t *testing.T) {
	b := newBench(t)
	s := newShop(b)
	close(s.end)
	if _, err := s.h.StartSession(t.Context(), history.SessionRow{ID: "S"}); err != nil {
		t.Fatal(err)
	}
	const runs = 40
	for i := range runs / 2 {
		s.enqueue(fmt.Sprint(i), "S")
	}
	b.serve(Options{Work: Work{Command: "x", start: s.start, every: time.Hour}})
	for i := range runs / 2 {
		s.enqueue(fmt.Sprint(runs/2+i), "S")
	}
	b.until("all are completed", func() bool { return s.status(fmt.Sprint(runs-1)) == history.Completed })
	for i, took := range s.taken() {
		if took != fmt.Sprint(i, "/1") {
			t.Errorf("run %d is %s", i, took)
		}
	}
}

// TestServeRecovers is H-16: a server recovers the runs of workers that are gone, at its
// start and then again and again, gives them to a worker, and the late writer is refused.
func TestServeRecovers(t *testing.T) {
	b := newBench(t)
	s := newShop(b)
	close(s.end)
	gone := func(id string) *history.Run {
		t.Helper()
		r, err := s.h.StartRun(t.Context(), history.RunRow{ID: id}, history.Supervised())
		if err != nil {
			t.Fatal(err)
		}
		r.Leave()
		return r
	}
	before := gone("before")
	b.serve(Options{Work: Work{Command: "x", Strategy: history.RequeueAll, start: s.start, every: 60 * time.Millisecond}})
	b.until("the run from before is completed", func() bool { return s.status("before") == history.Completed })
	if err := before.End(t.Context(), history.End{Status: history.Failed}); !errors.Is(err, history.ErrRecovered) {
		t.Errorf("a late writer: %v", err)
	}
	gone("later")
	b.until("the later run is completed", func() bool { return s.status("later") == history.Completed })
	if took := s.taken(); !slices.Equal(took, []string{"before/2", "later/2"}) {
		t.Errorf("taken: %v", took)
	}
}

// TestServeOnlyRecovers: without a command, queued runs wait and lost ones fail; a thread
// without a history gets none.
func TestServeOnlyRecovers(t *testing.T) {
	b := newBench(t)
	s := newShop(b)
	b.serve(Options{Work: Work{every: 60 * time.Millisecond}})
	s.enqueue("waits", "")
	r, err := s.h.StartRun(t.Context(), history.RunRow{ID: "lost"}, history.Supervised())
	if err != nil {
		t.Fatal(err)
	}
	r.Leave()
	b.until("the lost run has failed", func() bool { return s.status("lost") == "failed worker_recovery_failed" })
	if got := s.status("waits"); got != history.Queued {
		t.Errorf("the queued run is %s", got)
	}
}

// TestServeDrainsWorkers: at the end no worker is started any more; those at work may come
// to their end for as long as handlers may, and are then asked to end.
func TestServeDrainsWorkers(t *testing.T) {
	b := newBench(t)
	s := newShop(b)
	s.enqueue("a", "")
	s.enqueue("b", "")
	server, err := New(Options{Threads: []string{b.t.Dir()}, Drain: 50 * time.Millisecond, Work: Work{Command: "x", start: s.start, every: 60 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int)
	go func() {
		left, err := server.Run(ctx)
		if err != nil {
			t.Error(err)
		}
		ended <- left
	}()
	b.until("one is taken", func() bool { return len(s.taken()) == 1 })
	stop()
	if left := <-ended; left != 0 {
		t.Errorf("%d are left", left)
	}
	select {
	case <-s.term:
	default:
		t.Error("the worker was not asked to end")
	}
	if s.status("a") != history.Completed || s.status("b") != history.Queued {
		t.Errorf("a is %s, b is %s", s.status("a"), s.status("b"))
	}
}

func TestWorkConfig(t *testing.T) {
	for _, w := range []Work{{Parallel: -1}, {Parallel: 1001}, {MaxAttempts: -1}, {Timeout: "soon"}, {Timeout: "-1s"}, {Strategy: "guess"}} {
		if _, err := New(Options{Work: w}); err == nil {
			t.Errorf("%+v is accepted", w)
		}
	}
}
