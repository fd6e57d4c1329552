package lane

import (
	"cmp"
	"context"
	"slices"
	"time"

	"thread/internal/lanes"
)

// SetLimit sets how many tasks may be active in a lane, at least 1. Raising it
// starts waiting tasks at once; lowering it stops none, and no task starts until
// fewer are active (L-04). The lane is kept, with its limit, also while idle.
//
// A session lane has the limit 1, which is its purpose: SetLimit returns
// [ErrSessionLane], in a [*RefusedError], for it.
func (q *Queue) SetLimit(name string, n int) error {
	name = GlobalLane(name)
	if lanes.IsSession(name) {
		return &RefusedError{Lane: name, Reason: ErrSessionLane}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lane(name)
	l.limit, l.set = max(1, n), true
	q.pump(l)
	return nil
}

// Configure replaces the whole configuration, as when a file is read again (L-05).
// A lane gets the limit max(1, floor(n)), or its default when it is not in the
// map or n is not finite. Earlier limits are forgotten. All lanes change
// together; no task starts under a mixture of old and new.
//
// Session lanes cannot be configured: Configure returns [ErrSessionLane], in a
// [*RefusedError], and changes nothing.
func (q *Queue) Configure(limits map[string]float64) error {
	for name := range limits {
		if name = GlobalLane(name); lanes.IsSession(name) {
			return &RefusedError{Lane: name, Reason: ErrSessionLane}
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range q.lanes {
		l.limit, l.set = lanes.DefaultLimit(l.name), false
	}
	for name, n := range limits {
		l := q.lane(GlobalLane(name))
		l.limit, l.set = toLimit(l.name, n), true
	}
	q.pumpAll()
	return nil
}

// Clear ends the tasks that wait in a lane with [ErrCleared] and returns how many
// they were. Active tasks continue (L-11). A task that waits in a global lane is active
// in its session lane, so clearing the session lane spares it.
func (q *Queue) Clear(name string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lanes[GlobalLane(name)]
	if l == nil {
		return 0
	}
	// Taken out first: ending a task lets the next one of its session in, and
	// that one has not been cleared. The lane stays: where tasks wait, others
	// are active.
	var cleared []*Task
	for l.waiting.first != nil {
		t := l.waiting.first
		l.waiting.remove(t)
		cleared = append(cleared, t)
	}
	for _, t := range cleared {
		q.end(t, &RefusedError{Lane: l.name, Reason: ErrCleared})
	}
	return len(cleared)
}

// Reset begins a new generation (L-12): it disowns the running tasks, ends
// draining, and starts waiting tasks in the slots so freed. It is for restarts
// in place, after which running tasks may never end.
//
// A disowned task is not stopped. It no longer counts, its end changes nothing
// in any lane, and its submitter still gets its result. It may therefore overlap
// with the next task of its session, and exceed the limit of a lane.
//
// A task that has not started is not disowned. In a global lane it keeps its slot of
// the session lane, so the remaining tasks of a session stay in order.
func (q *Queue) Reset() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.generation++
	q.draining = false
	close(q.disowned)
	q.disowned = make(chan struct{})
	for q.running.first != nil {
		q.running.remove(q.running.first)
	}
	for _, l := range q.lanes {
		l.active = 0
	}
	for _, l := range q.lanes {
		for t := l.waiting.first; t != nil; t = t.next {
			if t.slots > 0 {
				t.generation = q.generation
				t.held[0].active++
			}
		}
	}
	q.pumpAll()
}

// pumpAll pumps every lane and retires those left idle. q.mu is held.
//
// The order is that in which their heads were submitted, which a map does not keep.
// So sessions enter a global lane in that order, after the tasks that wait there.
func (q *Queue) pumpAll() {
	lanes := make([]*state, 0, len(q.lanes))
	for _, l := range q.lanes {
		if l.waiting.first == nil {
			q.retire(l)
		} else {
			lanes = append(lanes, l)
		}
	}
	slices.SortFunc(lanes, func(a, b *state) int {
		return cmp.Compare(a.waiting.first.number, b.waiting.first.number)
	})
	for _, l := range lanes {
		q.pump(l)
	}
}

// Disown gives back the slots of the running task that ctx belongs to or derives from.
// As after a [Queue.Reset], the task continues, counts in no lane, and delays no other
// task. It is for a task whose place other tasks take from now on. Without a task, and
// for a task that is already disowned, Disown does nothing.
func Disown(ctx context.Context) {
	t, _ := ctx.Value(taskKey{}).(*Task)
	if t == nil {
		return
	}
	q := t.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.phase != running || t.generation != q.generation {
		return
	}
	q.running.remove(t)
	q.giveBack(t)
	t.generation = q.generation - 1
}

// Drain refuses new tasks from now on, with [ErrDraining]. All tasks already submitted
// still run (L-14). Only [Queue.Reset] ends it.
func (q *Queue) Drain() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.draining = true
}

// Draining tells whether new tasks are refused.
func (q *Queue) Draining() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.draining
}

// WaitActive waits until the tasks that are running now have ended or were
// disowned, and not for any that start later (L-13). It returns true then, at
// once when none is running, and false when the timeout or ctx ends first.
func (q *Queue) WaitActive(ctx context.Context, timeout time.Duration) bool {
	q.mu.Lock()
	tasks := make([]*Task, 0, q.running.len)
	for t := q.running.first; t != nil; t = t.next {
		tasks = append(tasks, t)
	}
	disowned := q.disowned
	q.mu.Unlock()
	if len(tasks) == 0 {
		return true
	}
	if timeout <= 0 {
		return false
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for _, t := range tasks {
		select {
		case <-t.done:
		case <-disowned:
			return true
		case <-timer.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
	return true
}
