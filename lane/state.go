package lane

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"time"

	"thread/internal/lanes"
)

// state is one lane. It exists while it is in use or has a limit that was set.
// Tasks that have not reached it refer to it by name only.
type state struct {
	name    string
	limit   int
	set     bool // the limit was set, so the lane is not retired
	active  int  // slots taken in this generation
	waiting list
}

// depth counts the tasks that wait in the lane or have a slot in it (L-07).
func (l *state) depth() int { return l.waiting.len + l.active }

// The functions below need q.mu, except work, call, finish and
// logFailure, which must not have it.

// lane returns the lane of that name, made on first use (L-04).
func (q *Queue) lane(name string) *state {
	l := q.lanes[name]
	if l == nil {
		l = &state{name: name, limit: lanes.DefaultLimit(name)}
		q.lanes[name] = l
	}
	return l
}

// enter puts t at the end of the named lane.
func (q *Queue) enter(t *Task, name string) *state {
	l := q.lane(name)
	t.at = l
	l.waiting.push(t)
	q.pump(l)
	return l
}

// pump gives the free slots of l to the tasks at its head. With the slot of its
// last lane a task starts.
func (q *Queue) pump(l *state) {
	for l.active < l.limit && l.waiting.first != nil {
		t := l.waiting.first
		l.waiting.remove(t)
		l.active++
		t.held[t.slots] = l
		t.slots++
		t.generation = q.generation
		if t.slots < t.n {
			q.enter(t, t.names[t.slots])
			continue
		}
		t.phase = running
		t.at = nil
		q.unwatch(t)
		q.running.push(t)
		if q.vacant {
			q.vacant, q.successor = false, t
		} else {
			go q.work(t)
		}
	}
}

// work runs t, and then tasks that started because the previous one ended. A new
// goroutine, whose stack grows, is half of the cost of a short task.
func (q *Queue) work(t *Task) {
	defer func() {
		if t != nil { // runtime.Goexit in call: this goroutine cannot continue
			if t = q.finish(t, ErrGoexit); t != nil {
				go q.work(t)
			}
		}
	}()
	for t != nil {
		t = q.finish(t, q.call(t))
	}
}

// call runs the function of t and contains its panic.
func (q *Queue) call(t *Task) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	// warned is ours to read: the start took t out of the watch.
	if !t.warned {
		if waited := time.Since(t.submittedAt); waited >= t.warnAfter {
			q.report(t, Wait{Lane: t.names[t.n-1], Waited: waited})
		}
	}
	return t.run(context.WithValue(t.ctx, taskKey{}, t))
}

// finish ends a task that has run. It returns a task that started thereby and
// that the calling goroutine is to run, or nil.
func (q *Queue) finish(t *Task, err error) *Task {
	if err != nil {
		q.logFailure(t, err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.generation == q.generation {
		q.running.remove(t)
	}
	q.vacant = true
	q.end(t, err)
	next := q.successor
	q.vacant, q.successor = false, nil
	return next
}

// end gives back the slots of t, starts those who waited for them and hands the
// result over. A task of an earlier generation has no slots to give back (L-12).
//
// The inner lane is served first: the next task of the same session then
// queues behind those that already wait there.
func (q *Queue) end(t *Task, err error) {
	q.unwatch(t)
	t.phase = ended
	t.err = err
	if t.generation == q.generation {
		q.giveBack(t)
	}
	close(t.done)
}

func (q *Queue) giveBack(t *Task) {
	for t.slots > 0 {
		t.slots--
		l := t.held[t.slots]
		l.active--
		q.pump(l)
		q.retire(l)
	}
}

// unwatch ends what follows a waiting task: its report and its context.
func (q *Queue) unwatch(t *Task) {
	q.watch.remove(t)
	if t.unhook != nil {
		t.unhook()
		t.unhook = nil
	}
}

// retire forgets l when nothing would be lost by it (L-20).
func (q *Queue) retire(l *state) {
	if l.depth() == 0 && !l.set {
		delete(q.lanes, l.name)
	}
}

// logFailure logs the error of a task, quietly in probe lanes (L-10).
func (q *Queue) logFailure(t *Task, err error) {
	level := slog.LevelError
	if lanes.IsProbe(t.names[0]) || lanes.IsProbe(t.names[1]) {
		level = slog.LevelDebug
	}
	attrs := []slog.Attr{slog.String("lane", lanes.Shown(t.names[0])), slog.Duration("since", time.Since(t.submittedAt)), slog.Any("error", err)}
	var p *PanicError
	if errors.As(err, &p) {
		attrs = append(attrs, slog.String("stack", string(p.Stack)))
	}
	q.log.LogAttrs(t.ctx, level, "lane task failed", attrs...)
}

// links are a task's place in a list; a task is in one list at most.
type links struct {
	prev, next *Task
	order      int // in the order of push, without gaps while list.holes is 0
}

// list is a queue of tasks with removal from any place in constant time.
type list struct {
	first, last *Task
	len         int
	next        int // order of the next task to be pushed
	holes       int // tasks removed between others since it was last empty
}

func (l *list) push(t *Task) {
	t.links = links{prev: l.last, order: l.next}
	if l.last == nil {
		l.first = t
	} else {
		l.last.next = t
	}
	l.last = t
	l.len++
	l.next++
}

func (l *list) remove(t *Task) {
	if t.prev != nil && t.next != nil {
		l.holes++
	}
	if t.prev == nil {
		l.first = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next == nil {
		l.last = t.prev
		l.next = t.order
	} else {
		t.next.prev = t.prev
	}
	t.links = links{}
	if l.len--; l.len == 0 {
		l.next, l.holes = 0, 0
	}
}

// ahead counts the tasks before t. It takes constant time unless a task has
// been removed from the middle of the list.
func (l *list) ahead(t *Task) int {
	if l.holes == 0 {
		return t.order - l.first.order
	}
	n := 0
	for p := t.prev; p != nil; p = p.prev {
		n++
	}
	return n
}
