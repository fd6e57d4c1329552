// Package verb is what thread-net has next to the verbs of thread.
package verb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"

	"thread/engine"
	"thread/history"
	"thread/internal/cli"
	"thread/internal/command"
	"thread/internal/dispatch"
	"thread/internal/pipe"
	"thread/internal/serve"
	"thread/internal/steer"
	"thread/net/pgstore"
	"thread/net/servers"
)

// remote runs the handlers of a thread while it has their consumers' turns. It implements
// serve.Remote.
type remote struct {
	log  *slog.Logger
	t    *engine.Thread
	left chan struct{} // a run that has failed waits for the history
	work sync.WaitGroup
	// open ends when no run begins any more.
	open  context.Context
	close context.CancelFunc
	look  func() // nil before Watch

	mu        sync.Mutex
	consumers map[string]*served
	warned    map[string]bool
	away      time.Time // since when the server gives no answer; zero: it does
}

// served is a consumer.
type served struct {
	streak    dispatch.Streak
	notBefore time.Time
	// It is left alone until there is more than this.
	newest, retried int64
	left            bool
}

// Remote returns what runs the handlers of a thread in PostgreSQL on this host.
func Remote(t *engine.Thread, log *slog.Logger) serve.Remote {
	s := &remote{log: log, t: t, left: make(chan struct{}, 1), consumers: map[string]*served{}, warned: map[string]bool{}}
	s.open, s.close = context.WithCancel(context.Background())
	return s
}

const (
	// lookAgain is the pause after a turn that another host has: a notice may be lost.
	lookAgain = 5 * time.Second
	// grace is the time between SIGTERM and SIGKILL.
	grace = 5 * time.Second
	// afterTime bounds the look at what a handler has left unread.
	afterTime = time.Minute
)

// Watch implements serve.Remote.
func (s *remote) Watch(look func(), answer func(ctx context.Context, request []byte) []byte) {
	s.mu.Lock()
	s.look = look
	s.mu.Unlock()
	if err := servers.EndLeft(s.open, s.t, func(pid int, err error) {
		s.log.Warn("a process that is left of an earlier handler is ended", "pid", pid, "error", err)
	}); err != nil {
		s.log.Warn("not all is known that is left of earlier handlers", "error", err)
	}
	w := s.t.Store().(*pgstore.Store).Watch(s.open) // before the first look
	host := steer.NewHost(s.t, answer)
	s.work.Go(func() { host.Run(s.open) })
	s.work.Go(func() {
		defer w.Close()
		for w.Wait(s.open, time.Time{}) == nil {
			look()
			host.Look(s.open)
		}
	})
	s.work.Go(func() { s.keepRecording(s.open) })
}

// Close implements serve.Runner.
func (s *remote) Close() { s.close() }

// Finish implements serve.Remote.
func (s *remote) Finish() {
	s.work.Wait()
	s.record() // the runs of the last handlers
	_ = s.t.Close()
}

// Pending implements serve.Runner: other hosts run what is left.
func (s *remote) Pending(context.Context) (bool, error) { return false, nil }

// Due implements serve.Runner. Consumers that another host works for, or that have
// nothing new since their handler was given up, are left out.
func (s *remote) Due(ctx context.Context) ([]engine.Due, error) {
	all, err := s.due(ctx)
	if err != nil {
		s.lost(ctx, err)
		return nil, err
	}
	var due []engine.Due
	for _, d := range all {
		switch {
		case d.Err != nil:
			s.warnOnce(d.Consumer, "it is left alone", d.Err)
		case d.First != 0 && !s.passedOver(&d):
			due = append(due, d)
		}
	}
	return due, nil
}

func (s *remote) passedOver(d *engine.Due) bool {
	c := s.consumer(d.Consumer)
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Before(c.notBefore) || c.left && d.Newest <= c.newest && d.Retried == c.retried
}

func (s *remote) consumer(name string) *served {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.consumers[name]
	if c == nil {
		c = new(served)
		s.consumers[name] = c
	}
	return c
}

// due looks for work. A server that gives no answer, as after a cut of the network, is
// reported while the look waits for it, and once: the look ends long after the turns.
func (s *remote) due(ctx context.Context) ([]engine.Due, error) {
	late := time.AfterFunc(servers.Lease/2, func() { s.lost(ctx, errors.New("no answer comes")) })
	due, err := s.t.Due(ctx)
	late.Stop()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	away := s.away
	s.away = time.Time{}
	s.mu.Unlock()
	if !away.IsZero() {
		s.log.Info("the thread can be read again", "after", time.Since(away).Round(time.Millisecond))
	}
	return due, nil
}

// lost logs the beginning of a time in which the thread cannot be read.
func (s *remote) lost(ctx context.Context, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.look == nil || ctx.Err() != nil || !s.away.IsZero() {
		return
	}
	s.away = time.Now()
	s.log.Error("the thread cannot be read", "error", err)
}

func (s *remote) warn(consumer, text string, err error) {
	log := s.log.With("consumer", consumer)
	if err != nil {
		log = log.With("error", err)
	}
	log.Warn(text)
}

// warnOnce does not repeat a warning.
func (s *remote) warnOnce(consumer, text string, err error) {
	line := fmt.Sprintf("%s\n%s\n%v", consumer, text, err)
	s.mu.Lock()
	warned := s.warned[line]
	s.warned[line] = true
	s.mu.Unlock()
	if !warned {
		s.warn(consumer, text, err)
	}
}

// Resume implements serve.Runner. Meanwhile another host may have taken the turn.
func (s *remote) Resume(ctx context.Context, retry *dispatch.Retry, hooks *dispatch.Hooks) (dispatch.Outcome, error) {
	return s.Run(ctx, retry.Consumer, false, hooks)
}

// Run implements serve.Runner.
func (s *remote) Run(_ context.Context, consumer string, _ bool, hooks *dispatch.Hooks) (dispatch.Outcome, error) {
	c := s.consumer(consumer)
	out, err := s.handle(consumer, c, hooks)
	taken := (*pgstore.TakenError)(nil)
	after := lookAgain
	switch {
	case s.open.Err() != nil, err == nil, errors.Is(err, engine.ErrNoSubscription):
		return out, nil
	case errors.Is(err, servers.ErrCutOff), errors.Is(err, pgstore.ErrTurnLost): // it is logged
	case errors.As(err, &taken):
		after = min(max(taken.Left, time.Millisecond), lookAgain)
	default:
		s.warn(consumer, "its handler cannot be run", err)
	}
	s.mu.Lock()
	c.notBefore = time.Now().Add(after)
	s.mu.Unlock()
	time.AfterFunc(after+time.Millisecond, s.look) // what comes meanwhile is passed over
	return dispatch.Outcome{}, nil
}

// handle takes the consumer's turn and runs its handler, if there is something to do. The
// handle is a separate one: every write of it compares the fence.
func (s *remote) handle(consumer string, c *served, hooks *dispatch.Hooks) (out dispatch.Outcome, err error) {
	t, err := servers.Servers{}.Open(s.t.URL(), nil)
	if err != nil {
		return out, err
	}
	defer t.Close()
	held, err := servers.Servers{}.Lock(s.open, t, consumer, false)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, held.Release(context.Background())) }()
	work, err := held.Work(s.open, func(format string, args ...any) { s.warn(consumer, fmt.Sprintf(format, args...), nil) })
	if err != nil {
		return out, err
	}
	before, err := t.DueFor(s.open, consumer, 0)
	if err != nil || before.First == 0 || before.Paused || before.Err != nil {
		return out, err
	}
	run := s.runHandler(t, held, work, &before, hooks)
	out = dispatch.Outcome{Ran: true, Look: true}
	ok := run.Status == history.Completed
	if ok && before.AckOnSuccess {
		s.ackPopped(t, run)
	}
	hooks.Ended(ok)
	if held.Err() != nil {
		s.warn(consumer, "its turn is lost, and its handler is not left running", held.Err())
	}
	if s.open.Err() != nil || held.Err() != nil {
		s.leave(run)
		return out, held.Err()
	}
	limited, cancel := context.WithTimeout(context.Background(), afterTime)
	defer cancel()
	after, err := t.DueFor(limited, consumer, 0)
	run.AckedTo = max(run.AckedTo, after.Progress.LastAcked)
	s.leave(run)
	if err != nil {
		return out, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	again, delay := c.streak.After(dispatch.Ended{
		OK: ok, Moved: after.Progress.LastAcked > before.Progress.LastAcked,
		Pending: after.First > 0, Fresh: after.Newest > before.Newest,
	})
	c.left, c.newest, c.retried = !again && after.First > 0, after.Newest, after.Retried
	if again && delay > 0 {
		out.Retry = &dispatch.Retry{Consumer: consumer, At: time.Now().Add(delay)}
	}
	return out, nil
}

// ackPopped acks what a handler with --ack on-success has popped.
func (s *remote) ackPopped(t *engine.Thread, run *dispatch.EndedRun) {
	limited, cancel := context.WithTimeout(context.Background(), afterTime)
	defer cancel()
	if err := dispatch.AckPopped(limited, t, run.Consumer, run.RunID); err != nil && !errors.Is(err, engine.ErrNoSubscription) {
		s.warn(run.Consumer, "what its handler popped is not acked, and is delivered again", err)
	}
}

// runHandler runs the handler once, and returns what is to be recorded of that.
func (s *remote) runHandler(t *engine.Thread, held cli.Held, work *os.File, d *engine.Due, hooks *dispatch.Hooks) *dispatch.EndedRun {
	fence := t.Store().(*pgstore.Store).Fence()
	now := time.Now().UTC()
	run := &dispatch.EndedRun{RunID: fmt.Sprintf("%016x%016x", now.UnixNano(), fence), Consumer: d.Consumer, Handler: d.Handler, Status: history.Failed,
		StartedAt: now, EventID: d.First, AckedFrom: d.Progress.LastAcked, AckedTo: d.Progress.LastAcked}
	defer func() { run.EndedAt = time.Now().UTC() }()
	tail := pipe.Tail{Most: dispatch.KeptOutput}
	out, err := command.NewTee(&tail, os.Stderr)
	if err != nil {
		s.warn(d.Consumer, "its handler cannot be started", err)
		run.Exit = err.Error()
		return run
	}
	spec := command.Spec{Argv: []string{"sh", "-c", d.Handler}, Stdout: out.Writer, Stderr: out.Writer, Group: true, Tree: work, Left: servers.Left(work), Timeout: d.Timeout, Grace: grace,
		Env: append(os.Environ(), "THREAD_DIR="+t.URL(), "THREAD_CONSUMER="+d.Consumer, servers.EnvTurn+"="+strconv.FormatInt(fence, 10),
			"THREAD_LAST_ACKED_ID="+strconv.FormatInt(d.Progress.LastAcked, 10), command.EnvRun+"="+run.RunID)}
	spec.Env = append(spec.Env, hooks.Env(run.RunID, run.EventID)...)
	if d.AckOnSuccess {
		variable, err := dispatch.ForgetPopped(t, d.Consumer)
		if err != nil {
			s.warnOnce(d.Consumer, "what its handler pops may not be acked", err)
		}
		spec.Env = append(spec.Env, variable)
	}
	var p *command.Process
	err = hooks.Start(run.RunID, func() (pid int, err error) {
		if p, err = command.Start(spec); err != nil {
			return 0, err
		}
		return p.Pid, nil
	})
	out.Started()
	if err != nil {
		s.warn(d.Consumer, "its handler cannot be started", err)
		run.Exit = err.Error()
		return run
	}
	until, over := stopped(hooks)
	defer over()
	go func() {
		select {
		case <-held.Lost(): // at once, while no other host can have begun
			p.Kill()
		case <-p.Ended():
		}
	}()
	go s.beat(run.RunID, p.Ended())
	x := p.Wait(until)
	out.CatchUp()
	run.Output, _ = tail.Text()
	run.OutputBytes, run.Exit = tail.Size(), x.Text()
	if err := out.HandOver(os.Stderr); err != nil {
		s.warn(d.Consumer, "what its handler has left behind cannot print", err)
	}
	switch {
	case held.Err() != nil: // it is logged
		run.Exit = held.Err().Error()
		return run
	case x.TimedOut:
		run.Status, run.Exit = history.TimedOut, fmt.Sprint("timed out after ", d.Timeout)
		s.warn(d.Consumer, "its handler was ended: its time was up", nil)
	case errors.Is(x.Cause, errAborted):
		run.Status, run.Exit = history.Cancelled, errAborted.Error()
		s.warn(d.Consumer, "its handler was ended by thread abort", nil)
	case x.Cause != nil:
		run.Status = history.Cancelled
		s.warn(d.Consumer, "its handler was ended: thread serve ends", nil)
	case x.Code == 0:
		run.Status = history.Completed
		return run
	default:
		s.warn(d.Consumer, "its handler failed", errors.New(x.Text()))
	}
	if x.Signal != 0 && spec.Left != nil { // it did not end in order
		_ = spec.Left.End(context.Background(), grace, nil)
	}
	return run
}

// errAborted is the cause of a handler's end by thread abort.
var errAborted = errors.New("aborted")

// stopped returns a context that ends when the handler has to.
func stopped(hooks *dispatch.Hooks) (_ context.Context, over func()) {
	until, cancel := context.WithCancelCause(context.Background())
	go func() {
		select {
		case <-hooks.Abort:
			cancel(errAborted)
		case <-hooks.Stop:
			cancel(nil)
		case <-until.Done():
		}
	}()
	return until, func() { cancel(nil) }
}
