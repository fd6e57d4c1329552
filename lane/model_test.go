package lane

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestModel runs random operations on a queue and on a model of it that is
// written for clarity: slices, no generations, everything recomputed. After each
// operation the two agree on what runs, what waits where and in which order.
//
// It needs no clock and no waiting. A start is visible in the queue before the call
// that caused it returns, and an end when Done is closed.
//
// A longer run: go test -run TestModel -rapid.checks=10000 -rapid.steps=80.
func TestModel(t *testing.T) {
	for part := range 10 { // 1,000 sequences where rapid.checks is not given
		t.Run(strconv.Itoa(part), func(t *testing.T) { rapid.Check(t, checkModel) })
	}
}

func checkModel(t *rapid.T) {
	w := &world{
		queue: New(nil),
		model: model{limits: map[string]int{}, waiting: map[string][]int{}, active: map[string][]int{}},
	}
	session := rapid.SampledFrom([]string{"", "a", "b", "c"})
	global := rapid.SampledFrom([]string{Main, Cron, "x"})
	t.Repeat(map[string]func(*rapid.T){
		"submit":  func(t *rapid.T) { w.submit(t, session.Draw(t, "session"), global.Draw(t, "lane")) },
		"submit2": func(t *rapid.T) { w.submit(t, session.Draw(t, "session"), global.Draw(t, "lane")) },
		"finish": func(t *rapid.T) {
			if started := w.with(func(m *modelTask) bool { return m.started && !m.ended }); len(started) > 0 {
				w.finish(rapid.SampledFrom(started).Draw(t, "task"), rapid.Bool().Draw(t, "fail"))
			}
		},
		"cancel": func(t *rapid.T) {
			if waiting := w.with(func(m *modelTask) bool { return !m.started && !m.ended }); len(waiting) > 0 {
				w.cancel(t, rapid.SampledFrom(waiting).Draw(t, "task"))
			}
		},
		"clear": func(t *rapid.T) {
			name := rapid.OneOf(global, rapid.Map(session, SessionLane)).Draw(t, "lane")
			w.clear(t, name)
		},
		"limit": func(t *rapid.T) {
			name, n := global.Draw(t, "lane"), rapid.IntRange(0, 3).Draw(t, "limit")
			w.queue.SetLimit(name, n)
			w.model.limits[name] = max(1, n)
			w.model.fill(name)
		},
		"reset": func(*rapid.T) { w.queue.Reset(); w.model.reset() },
		"":      w.check,
	})
	w.finishAll(t)
}

// model is what the queue should be. Lanes are lists of task numbers.
type model struct {
	tasks           []*modelTask
	limits          map[string]int
	waiting, active map[string][]int
}

type modelTask struct {
	path           []string
	started, ended bool
}

func (m *model) limit(name string) int {
	if n, ok := m.limits[name]; ok {
		return n
	}
	if name == Main {
		return 4
	}
	return 1
}

// enter puts task n into the next lane of its path.
func (m *model) enter(n int, name string) {
	m.waiting[name] = append(m.waiting[name], n)
	m.fill(name)
}

func (m *model) fill(name string) {
	for len(m.waiting[name]) > 0 && len(m.active[name]) < m.limit(name) {
		n := m.waiting[name][0]
		m.waiting[name] = m.waiting[name][1:]
		m.active[name] = append(m.active[name], n)
		if path := m.tasks[n].path; path[len(path)-1] != name {
			m.enter(n, path[1])
		} else {
			m.tasks[n].started = true
		}
	}
}

// leave takes task n out of every lane. A task that reset disowned is in none.
func (m *model) leave(n int) {
	m.tasks[n].ended = true
	for _, name := range slices.Backward(m.tasks[n].path) {
		for _, lane := range []map[string][]int{m.waiting, m.active} {
			if i := slices.Index(lane[name], n); i >= 0 {
				lane[name] = slices.Delete(slices.Clone(lane[name]), i, i+1)
			}
		}
		m.fill(name)
	}
}

func (m *model) reset() {
	for name, tasks := range m.active {
		m.active[name] = slices.DeleteFunc(slices.Clone(tasks), func(n int) bool { return m.tasks[n].started })
	}
	for _, name := range []string{Main, Cron, "x"} {
		m.fill(name)
	}
	// The oldest waiting task first: its session may have lost its slot.
	for n, task := range m.tasks {
		if len(task.path) == 2 && slices.Contains(m.waiting[task.path[0]], n) {
			m.fill(task.path[0])
		}
	}
}

// world holds both, and what the tasks reported.
type world struct {
	queue *Queue
	model model
	tasks []*worldTask
}

type worldTask struct {
	task   *Task
	end    chan error // what its function is to return
	cancel context.CancelFunc
	want   error
}

func (w *world) with(match func(*modelTask) bool) (found []int) {
	for n, task := range w.model.tasks {
		if match(task) {
			found = append(found, n)
		}
	}
	return found
}

func (w *world) submit(t *rapid.T, session, global string) {
	path, names := Lane(global), []string{global}
	if session != "" {
		path, names = Session(session, global), []string{SessionLane(session), global}
	}
	ctx, cancel := context.WithCancel(context.Background())
	end := make(chan error)
	task, err := w.queue.Submit(ctx, path, func(context.Context) error { return <-end })
	if err != nil {
		t.Fatal(err)
	}
	w.tasks = append(w.tasks, &worldTask{task: task, end: end, cancel: cancel})
	w.model.tasks = append(w.model.tasks, &modelTask{path: names})
	w.model.enter(len(w.tasks)-1, names[0])
}

func (w *world) finish(n int, fail bool) {
	if fail {
		w.tasks[n].want = fmt.Errorf("task %d failed", n)
	}
	w.tasks[n].end <- w.tasks[n].want
	<-w.tasks[n].task.Done()
	w.model.leave(n)
}

func (w *world) cancel(t *rapid.T, n int) {
	w.tasks[n].cancel()
	<-w.tasks[n].task.Done()
	w.tasks[n].want = ErrCanceled
	w.model.leave(n)
}

func (w *world) clear(t *rapid.T, name string) {
	cleared := w.model.waiting[name]
	w.model.waiting[name] = nil
	for _, n := range cleared {
		w.tasks[n].want = ErrCleared
		w.model.leave(n)
	}
	if got := w.queue.Clear(name); got != len(cleared) {
		t.Fatalf("Clear(%q) = %d, want %d", name, got, len(cleared))
	}
}

// check compares the two.
func (w *world) check(t *rapid.T) {
	number := map[*Task]int{}
	for n, task := range w.tasks {
		number[task.task] = n
		if ended := w.model.tasks[n].ended; isDone(task.task) != ended {
			t.Fatalf("task %d: ended %v, want %v", n, !ended, ended)
		} else if ended && !errors.Is(task.task.Err(), task.want) {
			t.Fatalf("task %d: error %v, want %v", n, task.task.Err(), task.want)
		}
	}
	q := w.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	got, want := map[string]string{}, map[string]string{}
	for name, l := range q.lanes {
		var waiting []int
		for task := l.waiting.first; task != nil; task = task.next {
			if ahead := l.waiting.ahead(task); ahead != len(waiting) {
				t.Fatalf("task %d: %d ahead in %s, want %d", number[task], ahead, name, len(waiting))
			}
			waiting = append(waiting, number[task])
		}
		got[name] = fmt.Sprint(l.active, waiting)
	}
	for _, lanes := range []map[string][]int{w.model.waiting, w.model.active} {
		for name, tasks := range lanes {
			if len(tasks) > 0 {
				want[name] = ""
			}
		}
	}
	for name := range w.model.limits {
		want[name] = ""
	}
	for name := range want {
		want[name] = fmt.Sprint(len(w.model.active[name]), w.model.waiting[name])
	}
	if !maps.Equal(got, want) {
		t.Fatalf("lanes:\n got %v\nwant %v", got, want)
	}
	var running, active []int
	for task := q.running.first; task != nil; task = task.next {
		running = append(running, number[task])
	}
	for name, tasks := range w.model.active {
		if !strings.HasPrefix(name, "session:") {
			active = append(active, tasks...)
		}
	}
	slices.Sort(running)
	slices.Sort(active)
	if !slices.Equal(running, active) {
		t.Fatalf("running: got %v, want %v", running, active)
	}
}

// finishAll lets every task end: nothing is lost, and nothing is left.
func (w *world) finishAll(t *rapid.T) {
	for {
		started := w.with(func(m *modelTask) bool { return m.started && !m.ended })
		if len(started) == 0 {
			break
		}
		w.finish(started[0], false)
		w.check(t)
	}
	if lost := w.with(func(m *modelTask) bool { return !m.ended }); len(lost) > 0 {
		t.Fatalf("lost: %v", lost)
	}
	for _, task := range w.tasks {
		task.cancel()
	}
	if n := w.queue.Total(); n != 0 {
		t.Fatalf("total at the end: %d", n)
	}
}
