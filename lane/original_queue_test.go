package lane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// The cases of the original's src/process/command-queue.test.ts, by their names
// and in its order; docs/spec/lanes.md defines the numbers. The original's
// lanes have the limit 1 unless set, as has every lane here that is not named in
// L-02.
const solo = "solo"

// L-06 to L-15.
func TestOriginalQueue(t *testing.T) {
	bubble(t, "01 resetAllLanes is safe when no lanes have been created", func(t *testing.T) {
		q := New(nil)
		q.Reset()
		equal(t, "active", q.Active(), 0)
		equal(t, "total", q.Total(), 0)
	})

	bubble(t, "02 runs tasks one at a time in order", func(t *testing.T) {
		q := New(nil)
		var calls []int
		active, most := 0, 0
		var tasks []*Task
		for i := 1; i <= 3; i++ {
			tasks = append(tasks, submit(t, q, Lane(solo), func(context.Context) error {
				active++
				most = max(most, active)
				time.Sleep(time.Millisecond)
				calls = append(calls, i)
				active--
				return fmt.Errorf("result %d", i)
			}))
		}
		for i, task := range tasks {
			equal(t, "result", task.Err().Error(), fmt.Sprintf("result %d", i+1))
		}
		if !slices.Equal(calls, []int{1, 2, 3}) {
			t.Errorf("calls: %v", calls)
		}
		equal(t, "most active", most, 1)
		equal(t, "depth", q.Depth(solo), 0)
	})

	bubble(t, "03 logs enqueue depth after push", func(t *testing.T) {
		var log logBook
		q := New(log.logger())
		submit(t, q, Lane(solo), nothing).Err()
		equal(t, "enqueue lines", len(log.lines("enqueue")), 1)
		equal(t, "with depth 1", len(log.lines("enqueue", "depth=1")), 1)
	})

	bubble(t, "04 invokes onWait callback when a task waits past the threshold", func(t *testing.T) {
		q := New(nil)
		var waits []Wait
		submit(t, q, Lane(solo), func(context.Context) error { time.Sleep(20 * time.Millisecond); return nil })
		submit(t, q, Lane(solo), nothing, WarnAfter(5*time.Millisecond), OnWait(func(w Wait) { waits = append(waits, w) })).Err()
		synctest.Wait() // for the callback, which the task's end does not wait for
		want := []Wait{{Lane: solo, Waited: 5 * time.Millisecond, Ahead: 0, Queued: 1}}
		if !slices.Equal(waits, want) {
			t.Errorf("waits: got %+v, want %+v", waits, want)
		}
	})

	bubble(t, "05 getActiveTaskCount returns count of currently executing tasks", func(t *testing.T) {
		q := New(nil)
		g := make(gate)
		task := submit(t, q, Lane(solo), g.run)
		equal(t, "active while running", q.Active(), 1)
		g.open()
		task.Err()
		equal(t, "active after", q.Active(), 0)
	})

	bubble(t, "06 waitForActiveTasks resolves immediately when no tasks are active", func(t *testing.T) {
		start := time.Now()
		equal(t, "drained", New(nil).WaitActive(background, time.Second), true)
		equal(t, "took", time.Since(start), 0)
	})

	bubble(t, "07 waitForActiveTasks waits for active tasks to finish", func(t *testing.T) {
		q := New(nil)
		g := make(gate)
		submit(t, q, Lane(solo), g.run)
		time.AfterFunc(50*time.Millisecond, g.open)
		start := time.Now()
		equal(t, "drained", q.WaitActive(background, 5*time.Second), true)
		equal(t, "took", time.Since(start), 50*time.Millisecond)
	})

	bubble(t, "08 waitForActiveTasks returns drained=false when timeout is zero and tasks are active", func(t *testing.T) {
		q := New(nil)
		g := make(gate)
		defer g.open()
		submit(t, q, Lane(solo), g.run)
		equal(t, "drained", q.WaitActive(background, 0), false)
	})

	bubble(t, "09 waitForActiveTasks returns drained=false on timeout", func(t *testing.T) {
		q := New(nil)
		g := make(gate)
		defer g.open()
		submit(t, q, Lane(solo), g.run)
		start := time.Now()
		equal(t, "drained", q.WaitActive(background, 50*time.Millisecond), false)
		equal(t, "took", time.Since(start), 50*time.Millisecond)
	})

	bubble(t, "10 resetAllLanes drains queued work immediately after reset", func(t *testing.T) {
		q := New(nil)
		stuck := make(gate)
		old := submit(t, q, Lane(solo), stuck.run)
		held := make(gate)
		queued := submit(t, q, Lane(solo), held.run)
		equal(t, "depth before", q.Depth(solo), 2)
		q.Reset()
		equal(t, "depth after", q.Depth(solo), 1)
		third := submit(t, q, Lane(solo), nothing)
		stuck.open()
		if err := old.Err(); err != nil {
			t.Errorf("stale task: %v", err)
		}
		synctest.Wait()
		equal(t, "depth after the stale end", q.Depth(solo), 2)
		equal(t, "third started", isDone(third), false)
		held.open()
		queued.Err()
		third.Err()
		equal(t, "depth at the end", q.Depth(solo), 0)
	})

	bubble(t, "11 waitForActiveTasks ignores tasks that start after the call", func(t *testing.T) {
		q := New(nil)
		first, second := make(gate), make(gate)
		submit(t, q, Lane(solo), first.run)
		drained := make(chan bool)
		go func() { drained <- q.WaitActive(background, time.Second) }()
		synctest.Wait() // the call has begun
		late := submit(t, q, Lane(solo), second.run)
		first.open()
		equal(t, "drained", <-drained, true)
		synctest.Wait()
		equal(t, "late one active", q.Active(), 1)
		second.open()
		late.Err()
	})

	bubble(t, "12 clearCommandLane rejects pending promises", func(t *testing.T) {
		q := New(nil)
		g := make(gate)
		first := submit(t, q, Lane(solo), g.run)
		second := submit(t, q, Lane(solo), func(context.Context) error { t.Error("cleared task ran"); return nil })
		equal(t, "cleared", q.Clear(solo), 1)
		wantErr(t, "cleared task", second.Err(), ErrCleared)
		var refused *RefusedError
		if !errors.As(second.Err(), &refused) || refused.Lane != solo {
			t.Errorf("cleared task: got %#v", second.Err())
		}
		g.open()
		if err := first.Err(); err != nil {
			t.Errorf("active task: %v", err)
		}
	})

	bubble(t, "13 keeps draining functional after synchronous onWait failure", func(t *testing.T) {
		var log logBook
		q := New(log.logger())
		g := make(gate)
		first := submit(t, q, Lane(solo), g.run)
		second := submit(t, q, Lane(solo), nothing, WarnAfter(0), OnWait(func(Wait) { panic("onWait exploded") }))
		synctest.Wait()
		g.open()
		for _, task := range []*Task{first, second, submit(t, q, Lane(solo), nothing)} {
			if err := task.Err(); err != nil {
				t.Errorf("task: %v", err)
			}
		}
		equal(t, "panics logged", len(log.lines("level=ERROR", "onWait exploded")), 1)
	})

	bubble(t, "14 rejects new enqueues with GatewayDrainingError after markGatewayDraining", func(t *testing.T) {
		q := New(nil)
		q.Drain()
		_, err := q.Submit(background, Lane(solo), nothing)
		wantErr(t, "Submit", err, ErrDraining)
		equal(t, "lanes", len(q.Lanes()), 0)
	})

	bubble(t, "15 does not affect already-active tasks after markGatewayDraining", func(t *testing.T) {
		q := New(nil)
		g := make(gate)
		active := submit(t, q, Session("a", solo), g.run)
		queued := submit(t, q, Session("a", solo), nothing)
		q.Drain()
		g.open()
		for _, task := range []*Task{active, queued} {
			if err := task.Err(); err != nil {
				t.Errorf("task: %v", err)
			}
		}
	})

	bubble(t, "16 resetAllLanes clears gateway draining flag and re-allows enqueue", func(t *testing.T) {
		q := New(nil)
		q.Drain()
		q.Reset()
		equal(t, "draining", q.Draining(), false)
		if err := submit(t, q, Lane(solo), nothing).Err(); err != nil {
			t.Error(err)
		}
	})

	bubble(t, "17 shares lane state across distinct module instances", func(t *testing.T) {
		one := New(nil)
		other := one // there are no modules to load twice: a handle is the pointer
		g := make(gate)
		task := submit(t, one, Lane(solo), g.run)
		equal(t, "active seen", other.Active(), 1)
		queued := submit(t, other, Lane(solo), nothing)
		equal(t, "depth seen", one.Depth(solo), 2)
		equal(t, "of an unrelated queue", New(nil).Total(), 0)
		g.open()
		task.Err()
		queued.Err()
	})

	bubble(t, "18 rejects immediately when abortSignal is already aborted", func(t *testing.T) {
		q := New(nil)
		cause := errors.New("user pressed stop")
		ctx, cancel := context.WithCancelCause(background)
		cancel(cause)
		_, err := q.Submit(ctx, Lane(solo), nothing)
		wantErr(t, "Submit", err, ErrCanceled)
		wantErr(t, "Submit", err, cause)
		equal(t, "depth", q.Depth(solo), 0)
	})

	bubble(t, "19 rejects queued task when abortSignal fires while waiting", func(t *testing.T) {
		q := New(nil)
		g := make(gate)
		first := submit(t, q, Lane(solo), g.run)
		ctx, cancel := context.WithCancel(background)
		queued, err := q.Submit(ctx, Lane(solo), nothing)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "depth before", q.Depth(solo), 2)
		cancel()
		wantErr(t, "queued task", queued.Err(), ErrCanceled)
		wantErr(t, "queued task", queued.Err(), context.Canceled)
		equal(t, "depth after", q.Depth(solo), 1)
		g.open()
		first.Err()
	})

	bubble(t, "20 does not reject a task that already started when abortSignal fires", func(t *testing.T) {
		q := New(nil)
		g := make(gate)
		ctx, cancel := context.WithCancel(background)
		task, err := q.Submit(ctx, Lane(solo), g.run)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		synctest.Wait()
		equal(t, "ended by the signal", isDone(task), false)
		g.open()
		if err := task.Err(); err != nil {
			t.Errorf("task: %v", err)
		}
	})

	bubble(t, "21 abort removes only the targeted entry from the queue", func(t *testing.T) {
		q := New(nil)
		g := make(gate)
		submit(t, q, Lane(solo), g.run)
		ctx, cancel := context.WithCancel(background)
		second, err := q.Submit(ctx, Lane(solo), nothing)
		if err != nil {
			t.Fatal(err)
		}
		third := submit(t, q, Lane(solo), nothing)
		cancel()
		wantErr(t, "second", second.Err(), ErrCanceled)
		g.open()
		if err := third.Err(); err != nil {
			t.Errorf("third: %v", err)
		}
	})

	bubble(t, "22 setCommandLaneConcurrency skips drain when value unchanged", func(t *testing.T) {
		q := New(nil)
		q.SetLimit(solo, 2)
		g := make(gate)
		defer g.open()
		for range 3 {
			submit(t, q, Lane(solo), g.run)
		}
		q.SetLimit(solo, 2)
		equal(t, "active", q.Active(), 2)
		q.SetLimit(solo, 3)
		equal(t, "active once raised", q.Active(), 3)
	})

	bubble(t, "23 evicts idle conv: lanes after task completion", func(t *testing.T) {
		q := New(nil)
		for i := range 100 {
			submit(t, q, Session(strconv.Itoa(i), Main), nothing).Err()
		}
		equal(t, "lanes", len(q.Lanes()), 0)
	})

	bubble(t, "24 does not evict non-conv: lanes after task completion", func(t *testing.T) {
		// Only what would be lost is kept: a limit that was set.
		q := New(nil)
		q.SetLimit(Cron, 3)
		submit(t, q, Lane(Cron), nothing).Err()
		got := q.Lanes()
		if len(got) != 1 || got[0] != (Stats{Name: Cron, Limit: 3}) {
			t.Errorf("lanes: %+v", got)
		}
	})
}

// The cases of src/gateway/server-lanes.test.ts that do not depend on suspended
// lanes, which this package does not have. Nor does it make the keys of
// conversations, which the cases 45 to 56 are about: callers bring their own.
func TestOriginalServerLanes(t *testing.T) {
	peak := func(t *testing.T, q *Queue, name string) int {
		g := make(gate)
		var tasks []*Task
		for range 12 {
			tasks = append(tasks, submit(t, q, Lane(name), g.run))
		}
		n := q.Active()
		g.open()
		for _, task := range tasks {
			task.Err()
		}
		return n
	}
	bubble(t, "57 applies cron default concurrency", func(t *testing.T) {
		q := New(nil)
		if err := q.Configure(nil); err != nil {
			t.Fatal(err)
		}
		equal(t, "peak", peak(t, q, Cron), 1)
		equal(t, "main", peak(t, q, Main), 4)
		equal(t, "subagent", peak(t, q, Subagent), 8)
	})
	bubble(t, "58 cron maxConcurrentRuns=2 gives peak 2", func(t *testing.T) {
		q := New(nil)
		if err := q.Configure(map[string]float64{Cron: 2}); err != nil {
			t.Fatal(err)
		}
		equal(t, "peak", peak(t, q, Cron), 2)
	})
	bubble(t, "59 shared nested lane stays at 1", func(t *testing.T) {
		q := New(nil)
		if err := q.Configure(map[string]float64{Cron: 2, Main: 6, Subagent: 9}); err != nil {
			t.Fatal(err)
		}
		equal(t, "peak", peak(t, q, "nested"), 1)
	})
}
