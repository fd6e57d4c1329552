package lane

import (
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// L-01, L-02.
func TestNames(t *testing.T) {
	for _, c := range []struct{ key, want string }{
		{"", "session:main"},
		{" \t\n", "session:main"},
		{"a", "session:a"},
		{" a ", "session:a"},
		{"session:a", "session:a"},
		{"  session:a\n", "session:a"},
		{"session:", "session:"},
		{"sessions", "session:sessions"},
		{"Session:a", "session:Session:a"},
		{"\ufeff\u00a0\u3000a\u2028", "session:a"},
		{"a\u0085", "session:a\u0085"}, // no white space to String.prototype.trim
		{"会话", "session:会话"},
	} {
		equal(t, "SessionLane", SessionLane(c.key), c.want)
		equal(t, "SessionLane twice", SessionLane(SessionLane(c.key)), c.want)
	}
	for name, want := range map[string]string{"": "main", "  ": "main", " cron ": "cron", "x y": "x y"} {
		equal(t, "GlobalLane", GlobalLane(name), want)
	}
	var zero Path
	names, n := zero.names()
	equal(t, "the zero path", names[0], Main)
	equal(t, "its length", n, 1)
}

// L-04, L-05.
func TestConfigure(t *testing.T) {
	q := New(nil)
	limits := func() map[string]int {
		m := map[string]int{}
		for _, s := range q.Lanes() {
			m[s.Name] = s.Limit
		}
		return m
	}
	err := q.Configure(map[string]float64{
		Main: math.NaN(), Cron: 2.9, Subagent: math.Inf(1), "zero": 0, "less": -3, "huge": 1e300, " x ": 7,
	})
	if err != nil {
		t.Fatal(err)
	}
	got := limits()
	for name, want := range map[string]int{
		Main: 4, Cron: 2, Subagent: 8, "zero": 1, "less": 1, "huge": math.MaxInt32, "x": 7,
	} {
		equal(t, name, got[name], want)
	}
	wantErr(t, "a session lane", q.Configure(map[string]float64{Main: 9, "session:a": 2}), ErrSessionLane)
	equal(t, "main after a refusal", limits()[Main], 4)
	wantErr(t, "SetLimit", q.SetLimit("session:a", 2), ErrSessionLane)
	q.SetLimit("x", -1)
	equal(t, "x", limits()["x"], 1)
	q.Configure(nil)
	equal(t, "lanes kept by no configuration", len(limits()), 0)
}

func TestConfigureLive(t *testing.T) {
	bubble(t, "narrowing stops nothing, widening starts at once", func(t *testing.T) {
		q := New(nil)
		var gates []gate
		var tasks []*Task
		for range 8 {
			g := make(gate)
			gates = append(gates, g)
			tasks = append(tasks, submit(t, q, Lane(Main), g.run))
		}
		q.Configure(map[string]float64{Main: 2})
		equal(t, "active", q.Active(), 4)
		for i := range 3 { // 4 active, 4 waiting: none starts before fewer than 2 are active
			gates[i].open()
			tasks[i].Err()
		}
		equal(t, "active", q.Active(), 2)
		q.Configure(map[string]float64{Main: 3})
		equal(t, "active", q.Active(), 3)
		for _, g := range gates[3:] {
			g.open()
		}
		for _, task := range tasks {
			task.Err()
		}
	})
}

// L-03.
func TestTwoLanes(t *testing.T) {
	bubble(t, "sessions share a global lane, each in order", func(t *testing.T) {
		q := New(nil)
		q.SetLimit(Main, 2)
		var started journal[string]
		var tasks []*Task
		for _, name := range []string{"a1", "a2", "b1", "c1", "b2"} {
			tasks = append(tasks, submit(t, q, Session(name[:1], Main), func(context.Context) error {
				started.add(name)
				time.Sleep(time.Second)
				return nil
			}))
			synctest.Wait()
		}
		// a1 and b1 run; c1 waits in main; a2 and b2 wait in their sessions.
		equal(t, "main", q.Depth(Main), 3)
		equal(t, "a", q.Depth(SessionLane("a")), 2)
		equal(t, "c", q.Depth(SessionLane("c")), 1)
		equal(t, "total", q.Total(), 3+2+2+1)
		equal(t, "active", q.Active(), 2)
		equal(t, "unknown", q.Depth("nowhere"), 0)
		time.Sleep(500 * time.Millisecond)
		want := []Stats{
			{Main, 2, 1, 2, 500 * time.Millisecond},
			{"session:a", 1, 1, 1, 500 * time.Millisecond},
			{"session:b", 1, 1, 1, 500 * time.Millisecond},
			{"session:c", 1, 0, 1, 0},
		}
		if got := q.Lanes(); !slices.Equal(got, want) {
			t.Errorf("lanes: %+v", got)
		}
		for _, task := range tasks {
			task.Err()
		}
		// Those that end together do so in either order.
		order := started.get()
		if !slices.Equal(order[:3], []string{"a1", "b1", "c1"}) || slices.Index(order, "a1") > slices.Index(order, "a2") ||
			slices.Index(order, "b1") > slices.Index(order, "b2") {
			t.Errorf("order: %v", order)
		}
	})
	bubble(t, "a session lane is no global lane", func(t *testing.T) {
		q := New(nil)
		_, err := q.Submit(background, Session("a", " session:b"), nothing)
		wantErr(t, "Submit", err, ErrSessionLane)
	})
}

// L-15.
func TestDo(t *testing.T) {
	bubble(t, "returns value and error unchanged", func(t *testing.T) {
		q := New(nil)
		failure := errors.New("failure")
		n, err := Do(background, q, Session("a", ""), func(context.Context) (int, error) { return 7, failure })
		equal(t, "value", n, 7)
		equal(t, "error", err, failure)
	})
	bubble(t, "leaves the lane when its context ends", func(t *testing.T) {
		q := New(nil)
		g := make(gate)
		submit(t, q, Lane(solo), g.run)
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		_, err := Do(ctx, q, Lane(solo), func(context.Context) (int, error) { t.Error("ran"); return 1, nil })
		wantErr(t, "Do", err, ErrCanceled)
		wantErr(t, "Do", err, context.DeadlineExceeded)
		equal(t, "depth", q.Depth(solo), 1)
		g.open()
	})
	bubble(t, "waits for a task that has started", func(t *testing.T) {
		q := New(nil)
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		n, err := Do(ctx, q, Lane(solo), func(context.Context) (int, error) { time.Sleep(time.Minute); return 7, nil })
		equal(t, "value", n, 7)
		equal(t, "error", err, nil)
	})
}

// L-06, L-20: a task that fails, however it does, frees its slots.
func TestFailures(t *testing.T) {
	failure := errors.New("failure")
	for _, c := range []struct {
		name string
		run  func(context.Context) error
		want error
	}{
		{"error", func(context.Context) error { return failure }, failure},
		{"panic", func(context.Context) error { panic("boom") }, nil},
		{"panic with an error", func(context.Context) error { panic(failure) }, failure},
		{"panic with nil", func(context.Context) error { panic(nil) }, new(runtime.PanicNilError)},
		{"nil function", nil, nil},
		{"Goexit", func(context.Context) error { runtime.Goexit(); return nil }, ErrGoexit},
	} {
		bubble(t, c.name, func(t *testing.T) {
			q := New(nil)
			g := make(gate)
			submit(t, q, Session("a", Cron), g.run)
			bad := submit(t, q, Session("a", Cron), c.run)
			worse := submit(t, q, Session("a", Cron), c.run)
			next := submit(t, q, Session("a", Cron), nothing)
			g.open()
			for _, task := range []*Task{bad, worse} {
				err := task.Err()
				var p *PanicError
				switch {
				case errors.As(err, &p):
					if len(p.Stack) == 0 {
						t.Error("no stack")
					}
				case err == nil || err != c.want:
					t.Errorf("got %v, want %v unchanged", err, c.want)
				}
				if _, nilPanic := c.want.(*runtime.PanicNilError); c.want != nil && !nilPanic {
					wantErr(t, "error", err, c.want)
				}
			}
			equal(t, "next", next.Err(), nil)
			equal(t, "total", q.Total(), 0)
			equal(t, "lanes", len(q.Lanes()), 0)
		})
	}
}

// L-10.
func TestProbesFailQuietly(t *testing.T) {
	fail := func(context.Context) error { return errors.New("no luck") }
	for _, c := range []struct {
		path  Path
		loud  int
		about string
	}{
		{Session("probe-1", Main), 0, "session probe"},
		{Session("a", "auth-probe:x"), 0, "auth probe in a session"},
		{Lane("auth-probe:x"), 0, "auth probe"},
		{Session("a", Main), 1, "session"},
		{Lane("probe-1"), 1, "no probe by its name"},
		{Session("auth-probe:x", Main), 1, "no probe once prefixed"},
	} {
		var log logBook
		q := New(log.logger())
		if err := submit(t, q, c.path, fail).Err(); err == nil {
			t.Errorf("%s: no error returned", c.about)
		}
		equal(t, c.about, len(log.lines("level=ERROR")), c.loud)
		equal(t, c.about+" at any level", len(log.lines("no luck")), 1)
	}
}

// L-08, L-09.
func TestWaitWarning(t *testing.T) {
	bubble(t, "comes once, while the task still waits", func(t *testing.T) {
		var log logBook
		q := New(log.logger())
		hung := make(gate)
		submit(t, q, Lane(Cron), hung.run)
		first := submit(t, q, Lane(Cron), nothing)
		var reported journal[Wait]
		record := OnWait(reported.add)
		time.Sleep(time.Second)
		second := submit(t, q, Session("a", Cron), nothing, record)
		third := submit(t, q, Session("a", Cron), nothing, record)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		want := []Wait{
			{Lane: Cron, Waited: 2 * time.Second, Ahead: 1, Queued: 2},
			{Lane: "session:a", Waited: 2 * time.Second, Ahead: 0, Queued: 1},
		}
		waits := reported.get()
		slices.SortFunc(waits, func(a, b Wait) int { return b.Ahead - a.Ahead }) // due at the same moment
		if !slices.Equal(waits, want) {
			t.Errorf("waits: got %+v, want %+v", waits, want)
		}
		equal(t, "logged", len(log.lines("level=WARN", "wait exceeded", "waited=2s")), 3)
		time.Sleep(time.Hour)
		hung.open()
		first.Err()
		second.Err()
		third.Err()
		equal(t, "reports at the end", len(reported.get()), 2)
		equal(t, "warnings at the end", len(log.lines("level=WARN")), 3)
	})
	bubble(t, "does not come to a task that waited less", func(t *testing.T) {
		var log logBook
		q := New(log.logger())
		for range 3 {
			submit(t, q, Lane(Cron), func(context.Context) error { time.Sleep(999 * time.Millisecond); return nil })
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		equal(t, "logged", len(log.lines("level=WARN")), 0)
		equal(t, "timer at rest", q.watch.timerAt.IsZero(), true)
	})
	bubble(t, "threshold 0 always warns", func(t *testing.T) {
		q := New(nil)
		var waits []Wait
		submit(t, q, Lane(Cron), nothing, WarnAfter(0), OnWait(func(w Wait) { waits = append(waits, w) })).Err()
		if !slices.Equal(waits, []Wait{{Lane: Cron}}) {
			t.Errorf("waits: %+v", waits)
		}
	})
	bubble(t, "a shorter threshold does not wait for a longer one", func(t *testing.T) {
		q := New(nil)
		hung := make(gate)
		defer hung.open()
		submit(t, q, Lane(Cron), hung.run)
		var reported journal[time.Duration]
		for _, d := range []time.Duration{5 * time.Second, time.Second, 3 * time.Second, math.MaxInt64, 2 * time.Second} {
			submit(t, q, Lane(Cron), nothing, WarnAfter(d), OnWait(func(w Wait) { reported.add(w.Waited / time.Second) }))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		at := reported.get()
		if !slices.Equal(at, []time.Duration{1, 2, 3, 5}) {
			t.Errorf("reported after %v", at)
		}
	})
	bubble(t, "counts those ahead also after some have left", func(t *testing.T) {
		q := New(nil)
		hung := make(gate)
		defer hung.open()
		submit(t, q, Lane(Cron), hung.run)
		var reported journal[int]
		ctx, cancel := context.WithCancel(background)
		for i := range 6 {
			ctx := ctx
			if i%2 == 0 {
				ctx = background
			}
			q.Submit(ctx, Lane(Cron), nothing, OnWait(func(w Wait) { reported.add(w.Ahead) }))
			time.Sleep(time.Millisecond)
		}
		cancel()
		time.Sleep(time.Minute)
		synctest.Wait()
		ahead := reported.get()
		if !slices.Equal(ahead, []int{0, 1, 2}) {
			t.Errorf("ahead: %v", ahead)
		}
	})
}

// L-20.
func TestReentrant(t *testing.T) {
	run := func(t *testing.T, f func(q *Queue, ctx context.Context) error) error {
		q := New(nil)
		return submit(t, q, Session("a", Main), func(ctx context.Context) error { return f(q, ctx) }).Err()
	}
	do := func(ctx context.Context, q *Queue, p Path) error {
		_, err := Do(ctx, q, p, func(ctx context.Context) (int, error) { return 0, ctx.Err() })
		return err
	}
	bubble(t, "own session", func(t *testing.T) {
		wantErr(t, "task", run(t, func(q *Queue, ctx context.Context) error {
			return do(ctx, q, Session(" session:a", Subagent))
		}), ErrReentrant)
	})
	bubble(t, "own session lane alone", func(t *testing.T) {
		wantErr(t, "task", run(t, func(q *Queue, ctx context.Context) error {
			return do(ctx, q, Lane("session:a"))
		}), ErrReentrant)
	})
	bubble(t, "by way of another session", func(t *testing.T) {
		wantErr(t, "task", run(t, func(q *Queue, ctx context.Context) error {
			_, err := Do(ctx, q, Session("b", Subagent), func(ctx context.Context) (int, error) {
				return 0, do(ctx, q, Session("a", Main))
			})
			return err
		}), ErrReentrant)
	})
	bubble(t, "another session, or another queue", func(t *testing.T) {
		equal(t, "task", run(t, func(q *Queue, ctx context.Context) error {
			return errors.Join(do(ctx, q, Session("b", Main)), do(ctx, New(nil), Session("a", Main)))
		}), nil)
	})
	bubble(t, "after the task has ended, or was disowned", func(t *testing.T) {
		equal(t, "disowned", run(t, func(q *Queue, ctx context.Context) error {
			q.Reset()
			return do(ctx, q, Session("a", Main))
		}), nil)
		var q *Queue
		var kept context.Context
		run(t, func(own *Queue, ctx context.Context) error { q, kept = own, ctx; return nil })
		equal(t, "ended", do(kept, q, Session("a", Main)), nil)
	})
}

// A waiting task has no goroutine, and an idle queue has none at all.
func TestNoGoroutines(t *testing.T) {
	before := runtime.NumGoroutine()
	q := New(nil)
	g := make(gate)
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	const n = 10_000
	tasks := make([]*Task, n)
	for i := range tasks {
		tasks[i], _ = q.Submit(ctx, Session(string(rune('a'+i%26)), Main), g.run)
	}
	if got := runtime.NumGoroutine() - before; got > DefaultMainLimit {
		t.Errorf("%d goroutines for %d tasks", got, n)
	}
	equal(t, "lanes", len(q.Lanes()), 27)
	g.open()
	for _, task := range tasks {
		task.Err()
	}
	equal(t, "lanes at the end", len(q.Lanes()), 0)
	equal(t, "watched at the end", q.watch.Len(), 0)
}

func TestDisown(t *testing.T) {
	bubble(t, "its slots are free", func(t *testing.T) {
		q := New(nil)
		failure := errors.New("failure")
		leave, end := make(gate), make(gate)
		var task context.Context
		first := submit(t, q, Session("a", Cron), func(ctx context.Context) error {
			task = ctx
			<-leave
			Disown(context.WithoutCancel(ctx))
			<-end
			return failure
		})
		held := make(gate)
		second := submit(t, q, Session("a", Cron), held.run)
		third := submit(t, q, Session("b", Cron), nothing)
		synctest.Wait()
		equal(t, "depth", q.Depth("session:a"), 2)
		leave.open()
		synctest.Wait()
		equal(t, "second runs", q.Active(), 1)
		equal(t, "depth of cron", q.Depth(Cron), 1)
		end.open()
		wantErr(t, "first", first.Err(), failure)
		equal(t, "second runs", q.Active(), 1)
		Disown(task) // it has ended
		equal(t, "second runs", q.Active(), 1)
		held.open()
		equal(t, "second", second.Err(), nil)
		equal(t, "third", third.Err(), nil)
		equal(t, "total", q.Total(), 0)
		Disown(context.Background())
	})
	bubble(t, "twice, and after a reset", func(t *testing.T) {
		q := New(nil)
		for _, disown := range []func(ctx context.Context){
			func(ctx context.Context) { Disown(ctx); Disown(ctx) },
			func(ctx context.Context) { q.Reset(); Disown(ctx) },
		} {
			held := make(gate)
			first := submit(t, q, Session("a", Cron), func(ctx context.Context) error {
				disown(ctx)
				return nil
			})
			second := submit(t, q, Session("a", Cron), held.run)
			first.Err()
			synctest.Wait()
			equal(t, "active", q.Active(), 1)
			equal(t, "depth", q.Depth(Cron), 1)
			held.open()
			second.Err()
			equal(t, "total", q.Total(), 0)
		}
	})
}
