//go:build linux

package serve

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
)

// TestMeasure: a thread whose counts take all of its time has its other metrics, and the
// last counts with their age; it has further tries, and the threads after it are counted.
func TestMeasure(t *testing.T) {
	ctx := context.Background()
	var all []*thread
	for _, name := range []string{"dear", "fine"} {
		th, err := engine.Init(filepath.Join(t.TempDir(), name))
		if err != nil {
			t.Fatal(err)
		}
		if err := th.Subscribe(ctx, engine.Subscription{Consumer: "c", Handler: "true"}); err != nil {
			t.Fatal(err)
		}
		all = append(all, &thread{dir: th.Dir(), t: th})
	}
	ended, end := context.WithCancel(ctx)
	end()
	for _, c := range []struct {
		name         string
		late         []int // which of the tries to count have no time
		asked        int
		lag, unknown [2]float64
	}{
		{"never counted", []int{0, 2, 3}, 4, [2]float64{-1, 1}, [2]float64{1, 0}},
		{"the second try", []int{0}, 3, [2]float64{2, 2}, [2]float64{0, 0}},
		{"the last count", []int{0, 2, 3}, 4, [2]float64{2, 3}, [2]float64{1, 0}},
		{"all in time", nil, 2, [2]float64{4, 4}, [2]float64{0, 0}},
	} {
		for _, th := range all {
			if _, err := th.t.Push(ctx, event.Draft{Source: "s", Type: "t"}); err != nil {
				t.Fatal(err)
			}
		}
		asked := 0
		states := look(all)
		count(ctx, states, time.Now().Add(time.Hour), func(context.Context, time.Time) (context.Context, context.CancelFunc) {
			asked++
			for _, n := range c.late {
				if n == asked-1 {
					return ended, func() {}
				}
			}
			return ctx, func() {}
		})
		for _, st := range states {
			st.fill()
		}
		if len(states) != 2 || asked != c.asked {
			t.Fatalf("%s: %d threads, %d tries", c.name, len(states), asked)
		}
		for i, st := range states {
			if st.lag(0) != c.lag[i] || st.unknown(0) != c.unknown[i] || (st.age(0) < 0) != (c.lag[i] < 0) || (st.oldest(0) < 0) != (c.lag[i] < 0) {
				t.Errorf("%s, thread %d: lag %v, unknown %v, age %v, oldest %v", c.name, i, st.lag(0), st.unknown(0), st.age(0), st.oldest(0))
			}
		}
	}
}

// slow is a count that does not end while the test wants it not to.
type slow struct {
	context.Context
	asked, gate chan struct{}
}

func (s *slow) Err() error {
	select {
	case s.asked <- struct{}{}:
	default:
	}
	<-s.gate
	return s.Context.Err()
}

// TestScrapeWaitsForNoFilter: a scrape has all that is known while a count continues, and the
// next one has what that count has found.
func TestScrapeWaitsForNoFilter(t *testing.T) {
	ctx := context.Background()
	th, err := engine.Init(filepath.Join(t.TempDir(), "t"))
	if err != nil {
		t.Fatal(err)
	}
	if err := th.Subscribe(ctx, engine.Subscription{Consumer: "c", Handler: "true"}); err != nil {
		t.Fatal(err)
	}
	all := []*thread{{dir: th.Dir(), t: th}}
	dear := &slow{ctx, make(chan struct{}, 1), make(chan struct{})}
	c := &counting{ctx: ctx, until: func(context.Context, time.Time) (context.Context, context.CancelFunc) { return dear, func() {} }}
	if st := c.measure(all, time.Millisecond)[0]; st.unknown(0) != 1 || st.lag(0) != -1 {
		t.Errorf("lag %v, unknown %v", st.lag(0), st.unknown(0))
	}
	<-dear.asked
	if _, err := th.Push(ctx, event.Draft{Source: "s", Type: "t"}); err != nil {
		t.Fatal(err)
	}
	if st := c.measure(all, time.Millisecond)[0]; st.unknown(0) != 1 || st.info.EventCount != 1 {
		t.Errorf("%d events, unknown %v", st.info.EventCount, st.unknown(0))
	}
	close(dear.gate)
	c.measure(all, time.Minute)
	if st := c.measure(all, time.Minute)[0]; st.unknown(0) != 0 || st.lag(0) != 1 {
		t.Errorf("lag %v, unknown %v", st.lag(0), st.unknown(0))
	}
}

// TestScrapeReadsWhatChanged: a thread that was counted is not read again until it is written.
func TestScrapeReadsWhatChanged(t *testing.T) {
	ctx := context.Background()
	th, err := engine.Init(filepath.Join(t.TempDir(), "t"))
	if err != nil {
		t.Fatal(err)
	}
	if err := th.Subscribe(ctx, engine.Subscription{Consumer: "c", Handler: "true"}); err != nil {
		t.Fatal(err)
	}
	all := []*thread{{dir: th.Dir(), t: th}}
	asked := 0
	scrape := func() *threadState {
		states := look(all)
		count(ctx, states, time.Now().Add(time.Hour), func(context.Context, time.Time) (context.Context, context.CancelFunc) {
			asked++
			return ctx, func() {}
		})
		states[0].fill()
		return states[0]
	}
	old := time.Now().Add(-time.Hour)
	for i, want := range []int{1, 1, 2} {
		if i == 2 {
			if _, err := th.Push(ctx, event.Draft{Source: "s", Type: "t"}); err != nil {
				t.Fatal(err)
			}
		} else {
			for _, name := range []string{"events.db", "events.journal"} {
				if err := os.Chtimes(filepath.Join(th.Dir(), name), old, old); err != nil {
					t.Fatal(err)
				}
			}
		}
		if st := scrape(); asked != want || st.lag(0) != float64(want-1) || st.info.EventCount != int64(want-1) {
			t.Errorf("scrape %d: counted %d times, lag %v, %d events", i, asked, st.lag(0), st.info.EventCount)
		}
	}
}
