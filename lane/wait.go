package lane

import (
	"container/heap"
	"runtime/debug"
	"time"

	"thread/internal/lanes"
)

// DefaultWarnAfter is how long a task waits before its wait is reported (L-08).
const DefaultWarnAfter = 2000 * time.Millisecond

// Wait reports a task that waits for long. The task is not affected by it.
type Wait struct {
	Lane   string        // The lane it waits in, or waited in last.
	Waited time.Duration // The time since Submit, over both lanes.
	Ahead  int           // Tasks waiting before it in that lane, without active ones.
	Queued int           // Tasks waiting in that lane, including itself; 0 once started.
}

// watch holds the waiting tasks that have not been reported, the next to be due
// first, and one timer for all of them (L-09).
//
// The timer is never stopped: it may find nothing due, and is then set again for
// as long as tasks wait. So a task that waits briefly costs no timer operation.
type watch struct {
	tasks   []*Task // a heap by dueAt
	fire    func()  // what the timer calls
	timer   *time.Timer
	timerAt time.Time // when the timer fires, zero when it is not set
}

func (w *watch) add(t *Task) {
	heap.Push(w, t)
	w.arm()
}

// remove is harmless for a task that is not watched.
func (w *watch) remove(t *Task) {
	if t.watchIndex >= 0 {
		heap.Remove(w, t.watchIndex)
	}
}

// arm makes the timer fire when the first task is due, or earlier.
func (w *watch) arm() {
	if len(w.tasks) == 0 {
		return
	}
	at := w.tasks[0].dueAt
	if !w.timerAt.IsZero() && !at.Before(w.timerAt) {
		return
	}
	w.timerAt = at
	if w.timer == nil {
		w.timer = time.AfterFunc(time.Until(at), w.fire)
	} else {
		w.timer.Reset(time.Until(at))
	}
}

// warnDue reports the tasks that are due. The timer calls it.
func (q *Queue) warnDue() {
	type due struct {
		task *Task
		wait Wait
	}
	var all []due
	q.mu.Lock()
	q.watch.timerAt = time.Time{}
	now := time.Now()
	for len(q.watch.tasks) > 0 && !q.watch.tasks[0].dueAt.After(now) {
		t := heap.Pop(&q.watch).(*Task)
		t.warned = true
		l := &t.at.waiting
		all = append(all, due{t, Wait{
			Lane: t.at.name, Waited: now.Sub(t.submittedAt), Ahead: l.ahead(t), Queued: l.len,
		}})
	}
	q.watch.arm()
	q.mu.Unlock()
	// A slow callback delays those after it in all, but not later timers.
	for _, d := range all {
		q.report(d.task, d.wait)
	}
}

// report logs the wait of t and calls its callback. q.mu is not held.
func (q *Queue) report(t *Task, w Wait) {
	q.log.WarnContext(t.ctx, "lane wait exceeded",
		"lane", lanes.Shown(w.Lane), "waited", w.Waited, "ahead", w.Ahead, "queued", w.Queued)
	if t.onWait == nil {
		return
	}
	defer func() {
		if v := recover(); v != nil {
			q.log.ErrorContext(t.ctx, "lane wait callback panicked",
				"lane", lanes.Shown(w.Lane), "panic", v, "stack", string(debug.Stack()))
		}
	}()
	t.onWait(w)
}

// Len, Less, Swap, Push and Pop make watch a heap.Interface.

func (w *watch) Len() int           { return len(w.tasks) }
func (w *watch) Less(i, j int) bool { return w.tasks[i].dueAt.Before(w.tasks[j].dueAt) }

func (w *watch) Swap(i, j int) {
	w.tasks[i], w.tasks[j] = w.tasks[j], w.tasks[i]
	w.tasks[i].watchIndex, w.tasks[j].watchIndex = i, j
}

func (w *watch) Push(x any) {
	t := x.(*Task)
	t.watchIndex = len(w.tasks)
	w.tasks = append(w.tasks, t)
}

func (w *watch) Pop() any {
	last := len(w.tasks) - 1
	t := w.tasks[last]
	w.tasks[last] = nil
	w.tasks = w.tasks[:last]
	t.watchIndex = -1
	return t
}
