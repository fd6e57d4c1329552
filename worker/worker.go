// Package worker works on the events of a consumer in this process, as thread consume does
// with a command.
package worker

import (
	"context"
	"errors"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/watch"
)

// Policy says how [Run] works. The zero Policy works on one event at a time, in order.
type Policy struct {
	Parallel int // how many events at once; less than 1 is 1
	// Key is what keeps the order of parallel work: "source", "type", "subtype", or a JSON path
	// into the content such as $.chat.id. Events with the same key come in order, one at a time.
	// With "" there is one key for all without Parallel, and none with it.
	Key         string
	MaxAttempts int64                          // until an event becomes a dead letter; less than 1 is DefaultMaxAttempts
	Backoff     func(n int64) time.Duration    // the wait after the n-th failure, n from 1; nil is DefaultBackoff
	Drain       bool                           // end when nothing is left to do, in place of waiting
	OnFailure   func(e event.Event, err error) // called for each failed attempt, by the goroutine that worked on e; may be nil
}

// DefaultMaxAttempts is how often an event is tried.
const DefaultMaxAttempts = 10

// DefaultBackoff is 1 s after the first failure, and doubles up to 5 minutes.
func DefaultBackoff(n int64) time.Duration {
	return min(5*time.Minute, time.Second<<min(max(n, 1)-1, 9))
}

// Later is an error after which the event is tried again after that time. No attempt is counted.
type Later time.Duration

func (l Later) Error() string { return "later, in " + time.Duration(l).String() }

// Reject returns an error that makes the event a dead letter at once.
func Reject(err error) error { return &rejected{err} }

type rejected struct{ err error }

func (r *rejected) Error() string { return r.err.Error() }
func (r *rejected) Unwrap() error { return r.err }

// Run calls fn for each unread event of a subscribed consumer until ctx ends, and returns its
// cause. The event is acked when fn returns nil. An error is a failed attempt, except for [Later]
// and an error of [Reject]; after the last attempt the event is a dead letter.
//
// The context of fn ends with ctx. An event whose fn then returns an error is as before. Run
// returns when each fn has, and what they returned is stored. When the process dies, or fn panics,
// the events that it was working on have failed an attempt.
//
// A consumer has one worker at a time: Run returns [engine.ErrConsumerBusy] for a second one, also
// in another process, and [engine.ErrPaused] or [engine.ErrNoSubscription] when that is so.
func Run(ctx context.Context, t *engine.Thread, consumer string, p Policy, fn func(ctx context.Context, e event.Event) error) error {
	p = p.withDefaults()
	feed, err := t.ParallelFeed(consumer, p.engine())
	if err != nil {
		return err
	}
	defer feed.Close()
	w, err := t.Watch()
	if err != nil {
		return err
	}
	defer w.Close()
	of, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l := &loop{Policy: p, feed: feed, fn: fn, ctx: of, cancel: cancel, results: make(chan engine.DeliveryResult, p.Parallel), look: true}
	written := make(chan struct{}, 1)
	over := make(chan struct{})
	go func() {
		defer close(over)
		for w.Wait(of, time.Time{}) == nil {
			select {
			case written <- struct{}{}:
			default: // one look answers all
			}
		}
	}()
	err = l.run(written)
	cancel(nil)
	<-over
	return err
}

func (p Policy) withDefaults() Policy {
	p.Parallel = max(p.Parallel, 1)
	if p.MaxAttempts < 1 {
		p.MaxAttempts = DefaultMaxAttempts
	}
	if p.Backoff == nil {
		p.Backoff = DefaultBackoff
	}
	return p
}

func (p *Policy) engine() engine.ParallelPolicy {
	of := engine.ParallelPolicy{Policy: engine.Policy{MaxAttempts: p.MaxAttempts, Backoff: p.Backoff}, Key: p.Key}
	if p.Key == "" && p.Parallel == 1 {
		of.Key, of.Fold = "type", func(string) string { return "" } // one key: in order
	}
	return of
}

// stepper is an [engine.ParallelFeed].
type stepper interface {
	Step(ctx context.Context, q engine.Step) (engine.Given, error)
}

// loop gives events out and stores results, in one goroutine.
type loop struct {
	Policy
	feed    stepper
	fn      func(context.Context, event.Event) error
	ctx     context.Context // of fn
	cancel  context.CancelCauseFunc
	results chan engine.DeliveryResult

	running   int
	done      []engine.DeliveryResult // not stored yet
	look      bool                    // there may be something to give out
	notBefore time.Time
	failed    error
}

// busyTime is how long a step waits before it asks a thread again that is busy.
const busyTime = 50 * time.Millisecond

func (l *loop) run(written <-chan struct{}) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if err := context.Cause(l.ctx); err != nil && l.failed == nil {
			l.failed = err
		}
		again := false
		free := l.failed == nil && l.running < l.Parallel
		if len(l.done) > 0 || l.look && free {
			again = l.step()
		}
		switch idle := l.running == 0 && len(l.done) == 0; {
		case idle && l.failed != nil:
			return l.failed
		case idle && l.Drain && !l.look && l.notBefore.IsZero():
			return nil
		case l.look && !again && l.failed == nil && l.running < l.Parallel:
			continue
		}
		wait := time.Hour
		switch {
		case again:
			wait = busyTime
		case l.failed == nil && l.running < l.Parallel && !l.notBefore.IsZero():
			wait = watch.Nap(l.notBefore)
		}
		timer.Reset(max(0, wait))
		ended := l.ctx.Done()
		if l.failed != nil {
			ended = nil
		}
		select {
		case r := <-l.results:
			l.ended(r)
		case <-written:
			l.look = true
		case <-timer.C:
			l.look = true
		case <-ended:
		}
	}
}

// ended notes a result, and all others that are there.
func (l *loop) ended(r engine.DeliveryResult) {
	for {
		l.done, l.running, l.look = append(l.done, r), l.running-1, true
		select {
		case r = <-l.results:
		default:
			return
		}
	}
}

// step stores results and begins what is given out. It returns true where the thread is busy.
func (l *loop) step() (again bool) {
	q := engine.Step{Results: l.done}
	if l.failed == nil {
		q.Begin = l.Parallel - l.running
	}
	given, err := l.feed.Step(context.WithoutCancel(l.ctx), q)
	switch {
	case errors.Is(err, engine.ErrBusy):
		return true
	case err != nil:
		if l.failed == nil {
			l.failed = err
		} else {
			l.failed = errors.Join(l.failed, err)
		}
		l.cancel(err)
		l.done, l.look = nil, false
		return false
	}
	l.done, l.look, l.notBefore = nil, given.More, given.NotBefore
	for _, d := range given.Begin {
		l.running++
		go func() { l.results <- engine.DeliveryResult{Number: d.Number(), Result: l.work(&d)} }()
	}
	return false
}

// work calls fn.
func (l *loop) work(d *engine.Delivery) engine.Result {
	e := d.Events[0]
	err := l.fn(l.ctx, e)
	var later Later
	var reject *rejected
	r := engine.Result{ExitCode: -1}
	switch {
	case err == nil:
		return r
	case errors.As(err, &later):
		r.Verdict, r.Delay = engine.Deferred, max(time.Duration(later), time.Millisecond)
	case errors.As(err, &reject):
		r.Verdict = engine.Rejected
	case l.ctx.Err() != nil:
		r.Verdict = engine.Returned
		return r
	default:
		r.Verdict = engine.Failed
	}
	r.Error = err.Error()
	if r.Verdict != engine.Deferred && l.OnFailure != nil {
		l.OnFailure(e, err)
	}
	return r
}
