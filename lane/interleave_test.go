package lane

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Interleavings of Reset and Clear with tasks in every place of their way.

// L-12.
func TestReset(t *testing.T) {
	bubble(t, "keeps the order of a session whose head waits in a global lane", func(t *testing.T) {
		q := New(nil)
		q.SetLimit(Main, 2)
		stuck := make(gate)
		// 1. Both slots of main hang.
		old1 := submit(t, q, Session("x", Main), stuck.run)
		old2 := submit(t, q, Session("y", Main), stuck.run)
		// 2. b1 has its session's slot and waits in main, b2 waits behind it.
		var order journal[string]
		b1, b2 := make(gate), make(gate)
		task1 := submit(t, q, Session("b", Main), func(ctx context.Context) error { order.add("b1"); return b1.run(ctx) })
		task2 := submit(t, q, Session("b", Main), func(ctx context.Context) error { order.add("b2"); return b2.run(ctx) })
		q.Reset()
		synctest.Wait()
		// 3. There is room for both, but only b1 may run.
		if !slices.Equal(order.get(), []string{"b1"}) {
			t.Fatalf("started: %v", order.get())
		}
		// 4. The end of the disowned tasks lets no task in.
		stuck.open()
		old1.Err()
		old2.Err()
		synctest.Wait()
		equal(t, "started", len(order.get()), 1)
		equal(t, "active", q.Active(), 1)
		b1.open()
		task1.Err()
		b2.open()
		task2.Err()
		if !slices.Equal(order.get(), []string{"b1", "b2"}) {
			t.Errorf("order: %v", order.get())
		}
		equal(t, "total", q.Total(), 0)
	})

	bubble(t, "starts what waits in the order of submission", func(t *testing.T) {
		q := New(nil)
		stuck := make(gate)
		for range DefaultMainLimit {
			submit(t, q, Lane(Main), stuck.run)
		}
		var order journal[string]
		step := func(name string) func(context.Context) error {
			return func(context.Context) error { order.add(name); time.Sleep(time.Second); return nil }
		}
		// Session s hangs in cron; its successors have still to enter main.
		submit(t, q, Session("s2", Cron), stuck.run)
		q.SetLimit(Cron, 2)
		submit(t, q, Session("s1", Cron), stuck.run)
		last := []*Task{
			submit(t, q, Session("s2", Main), step("3")),
			submit(t, q, Session("s1", Main), step("4")),
			submit(t, q, Session("z", Main), step("1")),
			submit(t, q, Lane(Main), step("2")),
		}
		q.SetLimit(Main, 1)
		q.Reset()
		for _, task := range last {
			task.Err()
		}
		if !slices.Equal(order.get(), []string{"1", "2", "3", "4"}) {
			t.Errorf("order: %v", order.get())
		}
		stuck.open()
	})

	bubble(t, "several times, with the ends in any order", func(t *testing.T) {
		for _, ends := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}, {0, 2, 1}} {
			q := New(nil)
			gates := []gate{make(gate), make(gate), make(gate)}
			var tasks []*Task
			for i := range gates {
				tasks = append(tasks, submit(t, q, Session("a", Cron), gates[i].run))
				if i < 2 {
					q.Reset()
				}
			}
			follower := submit(t, q, Session("a", Cron), nothing)
			for _, i := range ends {
				equal(t, "follower done", isDone(follower), false)
				gates[i].open()
				if err := tasks[i].Err(); err != nil {
					t.Error(err)
				}
				synctest.Wait()
				if i == 2 { // the one of this generation
					break
				}
			}
			synctest.Wait()
			equal(t, "follower done", isDone(follower), true)
			equal(t, "total", q.Total(), 0)
			for i, g := range gates {
				if !isDone(tasks[i]) {
					g.open()
				}
			}
		}
	})

	bubble(t, "leaves the slots that it kept to be given back without a start", func(t *testing.T) {
		for _, clear := range []bool{true, false} {
			q := New(nil)
			stuck := make(gate)
			for range 3 {
				submit(t, q, Lane(Cron), stuck.run)
			}
			ctx, cancel := context.WithCancel(background)
			if _, err := q.Submit(ctx, Session("a", Cron), nothing); err != nil {
				t.Fatal(err)
			}
			next := submit(t, q, Session("a", Main), nothing)
			q.Reset() // a's first waits in cron, with the slot of its session, behind two
			if clear {
				q.Clear(Cron)
			}
			cancel()
			equal(t, "next", next.Err(), nil)
			stuck.open()
		}
	})

	bubble(t, "ends waiting for the tasks it disowns", func(t *testing.T) {
		q := New(nil)
		stuck := make(gate)
		defer stuck.open()
		submit(t, q, Lane(solo), stuck.run)
		time.AfterFunc(time.Second, q.Reset)
		start := time.Now()
		equal(t, "drained", q.WaitActive(background, time.Minute), true)
		equal(t, "took", time.Since(start), time.Second)
	})

	bubble(t, "from within a task", func(t *testing.T) {
		q := New(nil)
		first := submit(t, q, Session("a", Cron), func(context.Context) error { q.Reset(); return nil })
		second := submit(t, q, Session("a", Cron), nothing)
		equal(t, "first", first.Err(), nil)
		equal(t, "second", second.Err(), nil)
	})

	bubble(t, "does not forget limits", func(t *testing.T) {
		q := New(nil)
		q.SetLimit(Main, 1)
		q.Reset()
		equal(t, "limit", q.Lanes()[0].Limit, 1)
	})
}

// L-11.
func TestClear(t *testing.T) {
	bubble(t, "a global lane lets the next of each session in", func(t *testing.T) {
		q := New(nil)
		g := make(gate)
		active := submit(t, q, Session("x", Cron), g.run)
		a1 := submit(t, q, Session("a", Cron), nothing) // waits in cron
		a2 := submit(t, q, Session("a", Cron), nothing) // waits in its session
		equal(t, "cleared", q.Clear(Cron), 1)
		wantErr(t, "a1", a1.Err(), ErrCleared)
		equal(t, "a2 done", isDone(a2), false)
		equal(t, "cron", q.Depth(Cron), 2)
		g.open()
		equal(t, "active", active.Err(), nil)
		equal(t, "a2", a2.Err(), nil)
	})
	bubble(t, "a session lane spares its head", func(t *testing.T) {
		q := New(nil)
		g := make(gate)
		submit(t, q, Session("x", Cron), g.run)
		a1 := submit(t, q, Session("a", Cron), nothing)
		a2 := submit(t, q, Session("a", Cron), nothing)
		a3 := submit(t, q, Session("a", Cron), nothing)
		equal(t, "cleared", q.Clear(" session:a "), 2)
		wantErr(t, "a2", a2.Err(), ErrCleared)
		wantErr(t, "a3", a3.Err(), ErrCleared)
		g.open()
		equal(t, "a1", a1.Err(), nil)
		equal(t, "lanes", len(q.Lanes()), 0)
	})
	bubble(t, "nothing, an unknown lane, and again", func(t *testing.T) {
		q := New(nil)
		equal(t, "unknown", q.Clear("nowhere"), 0)
		equal(t, "lanes", len(q.Lanes()), 0)
		g := make(gate)
		defer g.open()
		submit(t, q, Lane(solo), g.run)
		equal(t, "only active", q.Clear(solo), 0)
		submit(t, q, Lane(solo), nothing)
		equal(t, "one", q.Clear(solo), 1)
		equal(t, "again", q.Clear(solo), 0)
	})
	bubble(t, "beside a cancellation ends each task once", func(t *testing.T) {
		q := New(nil)
		g := make(gate)
		submit(t, q, Lane(solo), g.run)
		ctx, cancel := context.WithCancel(background)
		var tasks []*Task
		for range 100 {
			task, _ := q.Submit(ctx, Lane(solo), nothing)
			tasks = append(tasks, task)
		}
		go cancel()
		n := q.Clear(solo)
		cleared := 0
		for _, task := range tasks {
			switch err := task.Err(); {
			case errors.Is(err, ErrCleared):
				cleared++
			case !errors.Is(err, ErrCanceled):
				t.Errorf("task: %v", err)
			}
		}
		equal(t, "cleared", cleared, n)
		equal(t, "depth", q.Depth(solo), 1)
		g.open()
	})
	bubble(t, "and Reset in a row", func(t *testing.T) {
		q := New(nil)
		stuck := make(gate)
		old := submit(t, q, Session("a", Cron), stuck.run)
		submit(t, q, Session("b", Cron), nothing) // waits in cron with its session's slot
		b2 := submit(t, q, Session("b", Cron), nothing)
		q.Clear(Cron)
		q.Reset()
		stuck.open()
		equal(t, "b2", b2.Err(), nil)
		equal(t, "old", old.Err(), nil)
		synctest.Wait()
		equal(t, "lanes", len(q.Lanes()), 0)
	})
}
