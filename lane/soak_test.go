package lane

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
)

// TestSoak sends 100,000 tasks of 10,000 sessions through three lanes from
// several goroutines. It is made for the race detector (go test -race, which
// needs CGO; some seconds there) and checks the same without.
//
// Its oracle: each session's tasks run one at a time, in the order of submission.
// None runs twice, and only canceled ones are lost. No lane exceeds its limit. Only
// that order guards what the tasks of a session write, so the race detector would
// see it broken.
func TestSoak(t *testing.T) {
	const (
		sessions   = 10_000
		each       = 10
		submitters = 8
	)
	type session struct {
		next     int // written by tasks only
		ran      int
		canceled int // written by the submitter only
	}
	before := runtime.NumGoroutine()
	q := New(nil)
	lanes := []struct {
		name         string
		limit        int32
		active, most atomic.Int32
	}{{name: Main, limit: DefaultMainLimit}, {name: Cron, limit: DefaultCronLimit}, {name: Subagent, limit: DefaultSubagentLimit}}
	all := make([]session, sessions)

	var wg sync.WaitGroup
	for s := range submitters {
		wg.Go(func() {
			var tasks []*Task
			var owners []int
			for i := range each {
				for n := s; n < sessions; n += submitters {
					l := &lanes[(n+i)%len(lanes)]
					ctx, cancel := context.WithCancel(context.Background())
					task, err := q.Submit(ctx, Session(strconv.Itoa(n), l.name), func(context.Context) error {
						active := l.active.Add(1)
						defer l.active.Add(-1)
						for most := l.most.Load(); active > most; most = l.most.Load() {
							l.most.CompareAndSwap(most, active)
						}
						own := &all[n]
						if i < own.next {
							t.Errorf("session %d: task %d runs after %d", n, i, own.next-1)
						}
						own.next = i + 1
						own.ran++
						if i%5 == 1 {
							panic("contained")
						}
						if i%5 == 2 {
							runtime.Gosched()
						}
						return nil
					})
					if err != nil {
						t.Errorf("Submit: %v", err)
						cancel()
						continue
					}
					if i%5 == 3 {
						cancel() // it may have started already
					} else {
						defer cancel()
					}
					tasks, owners = append(tasks, task), append(owners, n)
				}
			}
			for i, task := range tasks {
				var p *PanicError
				switch err := task.Err(); {
				case errors.Is(err, ErrCanceled):
					all[owners[i]].canceled++
				case err != nil && !errors.As(err, &p):
					t.Errorf("task: %v", err)
				}
			}
		})
	}
	wg.Wait()
	for n := range all {
		if s := &all[n]; s.ran+s.canceled != each {
			t.Errorf("session %d: %d ran, %d canceled", n, s.ran, s.canceled)
		}
	}
	for i := range lanes {
		l := &lanes[i]
		t.Logf("%s: at most %d at once", l.name, l.most.Load())
		if most := l.most.Load(); most > l.limit {
			t.Errorf("%s: %d at once, limit %d", l.name, most, l.limit)
		}
	}
	equal(t, "total at the end", q.Total(), 0)
	equal(t, "lanes at the end", len(q.Lanes()), 0)
	// A goroutine hands over its result just before it ends.
	for runtime.NumGoroutine() > before {
		runtime.Gosched()
	}
}

// TestStress runs every operation at the same time as every other, for the race
// detector. The model checks their meaning; here each task must end, and once.
func TestStress(t *testing.T) {
	q := New(nil)
	var stop atomic.Bool
	var others, submitters sync.WaitGroup
	for _, f := range []func(i int){
		func(int) { q.Reset() },
		func(i int) { q.Clear([]string{Main, Cron, "session:1"}[i%3]) },
		func(i int) { q.SetLimit(Main, i%5) },
		func(i int) { q.Configure(map[string]float64{Cron: float64(i % 3)}) },
		func(int) { q.Lanes(); q.Total(); q.Active(); q.Depth(Main) },
		func(int) { q.WaitActive(context.Background(), 1) },
	} {
		others.Go(func() {
			for i := 0; !stop.Load(); i++ {
				f(i)
				runtime.Gosched()
			}
		})
	}
	var ran, ended atomic.Int64
	for s := range 4 {
		submitters.Go(func() {
			for i := range 2_000 {
				ctx, cancel := context.WithCancel(context.Background())
				if i%3 == 0 {
					go cancel()
				}
				_, err := Do(ctx, q, Session(strconv.Itoa((s+i)%5), []string{Main, Cron}[i%2]), func(context.Context) (int, error) {
					ran.Add(1)
					return 0, nil
				}, WarnAfter(0), OnWait(func(Wait) {}))
				if err == nil {
					ended.Add(1)
				} else if !errors.Is(err, ErrCanceled) && !errors.Is(err, ErrCleared) {
					t.Errorf("Do: %v", err)
				}
				cancel()
			}
		})
	}
	submitters.Wait()
	stop.Store(true)
	others.Wait()
	equal(t, "ran", ran.Load(), ended.Load())
	equal(t, "total at the end", q.Total(), 0)
	equal(t, "active at the end", q.Active(), 0)
}
