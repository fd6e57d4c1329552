package lane

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"thread/internal/lanes"
)

// Queue runs tasks in lanes. Make one with [New]; its methods may be called
// from any goroutine, tasks and callbacks included. There is nothing to close:
// a queue without tasks has no goroutine.
type Queue struct {
	log *slog.Logger

	mu         sync.Mutex
	lanes      map[string]*state
	submitted  uint64        // tasks taken so far
	running    list          // started tasks of this generation
	generation uint64        // raised by Reset
	disowned   chan struct{} // closed by Reset, one for each generation
	draining   bool
	watch      watch

	// While a goroutine ends its task: whether it is free to run another, and
	// the one that it has been given.
	vacant    bool
	successor *Task
}

// New returns a queue whose lanes have the default limits. It logs each
// submission at DEBUG, long waits at WARN and failed tasks at ERROR, the latter
// at DEBUG in probe lanes. A nil logger discards them.
func New(logger *slog.Logger) *Queue {
	q := &Queue{
		log:      orDiscard(logger),
		lanes:    make(map[string]*state),
		disowned: make(chan struct{}),
	}
	q.watch.fire = q.warnDue
	return q
}

func orDiscard(logger *slog.Logger) *slog.Logger {
	if logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return logger
}

// Task is a submitted task.
type Task struct {
	// Set by Submit and then constant.
	queue       *Queue
	ctx         context.Context
	run         func(context.Context) error
	names       [2]string // the lanes to pass, outermost first
	n           int       // how many of names are used
	parent      *Task     // the task whose context submitted this one
	submittedAt time.Time
	warnAfter   time.Duration
	dueAt       time.Time // submittedAt + warnAfter
	onWait      func(Wait)
	done        chan struct{}

	// Guarded by queue.mu.
	number     uint64 // of the submission
	phase      phase
	held       [2]*state // The lanes whose slot this task has.
	slots      int       // How many of held are used.
	generation uint64    // The generation in which the slots were taken.
	at         *state    // While waiting: the lane it waits in.
	links                // In at.waiting, and then in queue.running.
	watchIndex int       // In queue.watch, or -1.
	warned     bool
	unhook     func() bool // stops the context's callback
	err        error       // constant once done is closed
}

type phase uint8

const (
	waiting phase = iota
	running
	ended
)

// Option changes how one task waits.
type Option func(*Task)

// WarnAfter sets how long a task waits before its wait is reported; the default
// is [DefaultWarnAfter]. With 0 every task is reported, even one that starts at
// once.
func WarnAfter(d time.Duration) Option {
	return func(t *Task) { t.warnAfter = max(0, d) }
}

// OnWait sets a function to call with the report of a long wait. It is called at most
// once, from a separate goroutine, when the task has waited that long. If the task
// reaches the threshold only at its start, the call comes just before it runs. A
// panic in it is logged and contained.
func OnWait(f func(Wait)) Option {
	return func(t *Task) { t.onWait = f }
}

// Submit queues run on path p and returns at once. In each lane tasks start in
// the order of the calls. Run gets a context derived from ctx by which
// [ErrReentrant] is detected; submit follow-up work for the same session with a
// context from elsewhere. Its goroutine may run other tasks after it, so run
// leaves it as it was, not locked to its thread.
//
// When ctx ends before the task starts, the task leaves its lane and ends with
// [ErrCanceled]. After the start the queue takes no notice of ctx.
//
// The error is a [*RefusedError], with [ErrDraining], [ErrCanceled], [ErrReentrant] or
// [ErrSessionLane], and then nothing was queued.
func (q *Queue) Submit(ctx context.Context, p Path, run func(context.Context) error, opts ...Option) (*Task, error) {
	t := newTask(ctx, q, p, run, opts)
	if err := q.submit(t, ctx.Done() != nil); err != nil {
		return nil, err
	}
	return t, nil
}

// Do submits run like [Queue.Submit], waits for its end and returns what it
// returned, unchanged. When run never started or panicked the value is zero.
// Once run has started, Do returns when run does, even if ctx ends.
func Do[T any](ctx context.Context, q *Queue, p Path, run func(context.Context) (T, error), opts ...Option) (T, error) {
	var value T
	t := newTask(ctx, q, p, func(ctx context.Context) (err error) {
		value, err = run(ctx)
		return err
	}, opts)
	// The waiting caller watches ctx itself, which saves the callback.
	if err := q.submit(t, false); err != nil {
		return value, err
	}
	select {
	case <-t.done:
	case <-ctx.Done():
		q.cancel(t)
		<-t.done
	}
	return value, t.err
}

// Done returns a channel that is closed when the task has ended and its slots
// are free.
func (t *Task) Done() <-chan struct{} { return t.done }

// Err waits for the end of the task and returns its error: the error of its function,
// unchanged, or a [*PanicError], [ErrGoexit] or a [*RefusedError].
func (t *Task) Err() error {
	<-t.done
	return t.err
}

// taskKey is the context key under which a task finds itself.
type taskKey struct{}

func newTask(ctx context.Context, q *Queue, p Path, run func(context.Context) error, opts []Option) *Task {
	t := &Task{
		queue:       q,
		ctx:         ctx,
		run:         run,
		submittedAt: time.Now(),
		warnAfter:   DefaultWarnAfter,
		done:        make(chan struct{}),
		watchIndex:  -1,
	}
	t.names, t.n = p.names()
	t.parent, _ = ctx.Value(taskKey{}).(*Task)
	for _, opt := range opts {
		opt(t)
	}
	t.dueAt = t.submittedAt.Add(t.warnAfter)
	return t
}

// submit puts t into its first lane. With hook, the end of t.ctx cancels it.
func (q *Queue) submit(t *Task, hook bool) error {
	outer := t.names[0]
	if t.n == 2 && lanes.IsSession(t.names[1]) {
		return &RefusedError{Lane: t.names[1], Reason: ErrSessionLane}
	}
	if t.ctx.Err() != nil {
		return canceled(t, outer)
	}
	q.mu.Lock()
	if err := q.refuse(t, outer); err != nil {
		q.mu.Unlock()
		return err
	}
	q.submitted++
	t.number = q.submitted
	l := q.enter(t, outer)
	depth := l.depth()
	if t.phase == waiting {
		q.watch.add(t)
		if hook {
			// Registered under the lock, so that the goroutine that starts or ends
			// t finds it. AfterFunc never calls back on this goroutine.
			t.unhook = context.AfterFunc(t.ctx, func() { q.cancel(t) })
		}
	}
	q.mu.Unlock()
	if q.log.Enabled(t.ctx, slog.LevelDebug) {
		q.log.DebugContext(t.ctx, "lane enqueue", "lane", lanes.Shown(outer), "depth", depth)
	}
	return nil
}

// refuse tells why t may not enter outer, or nil. q.mu is held.
func (q *Queue) refuse(t *Task, outer string) error {
	if q.draining {
		return &RefusedError{Lane: outer, Reason: ErrDraining}
	}
	if !lanes.IsSession(outer) {
		return nil
	}
	// A task that has ended, or was disowned, no longer keeps anyone waiting.
	for p := t.parent; p != nil; p = p.parent {
		if p.queue == q && p.phase == running && p.generation == q.generation && p.names[0] == outer {
			return &RefusedError{Lane: outer, Reason: ErrReentrant}
		}
	}
	return nil
}

// cancel ends t if it still waits: the context of t has ended.
func (q *Queue) cancel(t *Task) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.phase != waiting {
		return
	}
	l := t.at
	l.waiting.remove(t)
	q.end(t, canceled(t, l.name))
}

func canceled(t *Task, lane string) error {
	return &RefusedError{Lane: lane, Reason: ErrCanceled, Cause: context.Cause(t.ctx)}
}
