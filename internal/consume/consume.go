package consume

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/lanes"
	"thread/internal/watch"
)

// Mode says when a run ends.
type Mode int

const (
	UntilEmpty Mode = iota // when nothing is unread; what waits to be tried again is waited for
	Once                   // after one delivery
	Follow                 // when the context ends
)

// Options are the settings of a run. Zero values stand for the defaults.
type Options struct {
	Command     []string // the program and its arguments, not empty
	Batch       int64    // events in one delivery, 1 by default
	MaxAttempts int64    // counted attempts until an event becomes a dead letter, 5 by default
	// FirstDelay is the wait after the first failure, 1 s by default. It becomes Factor
	// times as long with each further one, up to MaxDelay, and is drawn out by up to a
	// quarter.
	FirstDelay  time.Duration
	Factor      float64 // at least 1, 2 by default
	Mode        Mode
	ContentOnly bool // stdin is the content; with Batch above 1, Separator is behind each
	Separator   byte
	// AppendEvent writes an event as JSON on one line; nil for the form of package event.
	AppendEvent func(b []byte, e *event.Event) []byte
	// Parallel is how many deliveries may be out at once, 0 for one after the other in
	// the order of their ids. Then events with the same Key, as of
	// engine.ParallelPolicy, come in order, and others in any.
	Parallel int64
	Key      string
	Window   int64 // see engine.ParallelPolicy
	// Worker starts the command Parallel times, once, to speak in lines (see workers);
	// only with Batch 1.
	Worker bool
	// Turns is asked before each delivery in parallel, nil for none. It returns when the
	// delivery has its turn, or an error, which ends the run without an error.
	Turns func(ctx context.Context, slot int, key *string, event int64) (Turn, error)
	// Lost is closed when the consumer may be another process's: what runs is ended and
	// does not count. nil: that does not happen.
	Lost           <-chan struct{}
	Stdout, Stderr io.Writer
	Work           *os.File // inherited by the command: the tree lock of package command; may be nil
	Env            []string // in the command's environment, next to ours and the event
	// Warn is called for every delivery that did not succeed.
	Warn func(format string, args ...any)
	// Progress is called with what the run has done so far, when that changes. May be nil.
	Progress func(Summary)
	tracing
	// Signals are passed on as the package comment says. May be nil.
	Signals *Signals
}

// Turn is a delivery that has its turn.
type Turn interface {
	Environment() []string  // for a process that is about to be started
	Abort() <-chan struct{} // closed when the delivery is to end
	Done(failure string)    // gives the turn back, with what went wrong, "" for nothing
}

// MaxDelay bounds the wait after a failure.
const MaxDelay = 5 * time.Minute

// Summary counts what a run has done.
type Summary struct {
	Delivered int64 // events that succeeded
	Failed    int64 // deliveries that did not succeed
	Dead      int64 // events that became dead letters
}

// ErrUnsettled is returned by a run with Once whose delivery is to be tried
// again, or whose events all wait.
var ErrUnsettled = errors.New("not settled yet")

// ErrCommand is wrapped by the error of a command that could not be started. Its
// events are as if they had not been touched.
var ErrCommand = errors.New("cannot run the command")

// run is one call of Run.
type run struct {
	Options
	t        *engine.Thread
	consumer string
	feed     *engine.Feed
	sum      Summary

	mu   sync.Mutex
	left []*stderr // what commands have left behind still has these
}

// testPoint is called at the places where a test kills the process: between what
// is durable and what is not yet.
var testPoint = func(place string) {}

// Run gives consumer's events to the command until o.Mode says that it ends, or
// ctx does; then it returns nil. The caller has the consumer's lock.
//
// Run returns the engine's errors, ErrUnsettled and ErrCommand.
func Run(ctx context.Context, t *engine.Thread, consumer string, o Options) (Summary, error) {
	r := newRun(t, consumer, o)
	defer r.closeLeft()
	defer r.feed.Close()
	if r.Parallel > 0 || r.Worker {
		err := r.parallel(ctx)
		return r.sum, err
	}
	err := r.loop(ctx)
	return r.sum, err
}

func newRun(t *engine.Thread, consumer string, o Options) *run {
	o.Batch, o.MaxAttempts = max(1, o.Batch), orDefault(o.MaxAttempts, 5)
	o.FirstDelay = orDefault(o.FirstDelay, time.Second)
	if o.Factor < 1 {
		o.Factor = 2
	}
	if o.Warn == nil {
		o.Warn = func(string, ...any) {}
	}
	if o.AppendEvent == nil {
		o.AppendEvent = func(b []byte, e *event.Event) []byte { return e.AppendJSON(b) }
	}
	r := &run{Options: o, t: t, consumer: consumer}
	r.feed = t.Feed(consumer, engine.Policy{Limit: o.Batch, MaxAttempts: o.MaxAttempts, Backoff: r.backoff})
	return r
}

func orDefault[N int64 | time.Duration](n, def N) N {
	if n <= 0 {
		return def
	}
	return n
}

// backoff returns the wait after the n-th failure in a row.
func (r *run) backoff(n int64) time.Duration {
	const longest = MaxDelay * 4 / 5
	wait := float64(r.FirstDelay)
	for ; n > 1 && wait < float64(longest) && r.Factor > 1; n-- {
		wait *= r.Factor
	}
	d := time.Duration(min(wait, float64(longest)))
	return d + time.Duration(rand.Int64N(int64(d)/4+1))
}

func (r *run) loop(ctx context.Context) error {
	w, err := r.t.Watch()
	if err != nil && r.Mode == Follow {
		return err
	}
	if err == nil {
		defer w.Close()
	}
	var result *engine.Result
	for {
		if ctx.Err() != nil {
			if result == nil {
				return nil
			}
			_, err := r.settle(*result)
			return err
		}
		if r.Mode == Once && result != nil {
			settled, err := r.settle(*result)
			if err == nil && !settled {
				err = ErrUnsettled
			}
			return err
		}
		d, err := r.next(result)
		testPoint("stored")
		if err != nil {
			return err
		}
		result = nil
		if len(d.Events) == 0 {
			if d.NotBefore.IsZero() && r.Mode != Follow {
				return nil
			}
			until := d.NotBefore
			if r.Mode == Follow {
				if until, err = r.scheduled(until); err != nil {
					return err
				}
			}
			if err := wait(ctx, w, until); err != nil && ctx.Err() == nil {
				return err
			}
			continue
		}
		testPoint("begun")
		res, err := r.deliver(&d)
		if err != nil {
			if _, serr := r.settle(engine.Result{Verdict: engine.Returned}); serr != nil {
				r.Warn("the events of a delivery that was not begun could not be given back: %v", serr)
			}
			return err
		}
		result = &res
		testPoint("ended")
	}
}

// scheduled returns when something that is scheduled falls due, if that is before
// until: the look at that time releases it. Zero is never.
func (r *run) scheduled(until time.Time) (time.Time, error) {
	var at time.Time
	err := retryBusy(func() (err error) {
		at, err = r.t.NextScheduled(context.Background())
		return err
	})
	if at.IsZero() || !until.IsZero() && until.Before(at) {
		return until, err
	}
	return at, err
}

// wait returns when the thread is written, and when it is time. Without a
// watcher it is only the time.
func wait(ctx context.Context, w engine.Watcher, until time.Time) error {
	if w != nil {
		return w.Wait(ctx, until)
	}
	timer := time.NewTimer(watch.Nap(until))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			nap := watch.Nap(until)
			if nap <= 0 {
				return nil
			}
			timer.Reset(nap)
		}
	}
}

// busyTries is how often a call is repeated when the thread is busy, each time
// after the engine's own wait of some seconds: the command's work is done, and
// only its result is left to be stored.
const busyTries = 15

// next and settle are the feed's, repeated while the thread is busy. The end of
// the run's context does not end them: what was begun is brought to an end.
func (r *run) next(result *engine.Result) (d engine.Delivery, err error) {
	dead := r.feed.Dead
	err = retryBusy(func() (err error) {
		if d, err = r.feed.Next(context.Background(), result); errors.Is(err, engine.ErrStale) {
			d, err = r.feed.Next(context.Background(), nil) // the consumer was moved meanwhile
		}
		return err
	})
	r.warnDead(dead)
	return d, err
}

func (r *run) settle(result engine.Result) (settled bool, err error) {
	dead := r.feed.Dead
	err = retryBusy(func() (err error) {
		if settled, err = r.feed.Settle(context.Background(), result); errors.Is(err, engine.ErrStale) {
			err = nil // the consumer was moved meanwhile
		}
		return err
	})
	r.warnDead(dead)
	return settled, err
}

func (r *run) warnDead(before int64) {
	if r.feed.Dead > before {
		r.sum.Dead += r.feed.Dead - before
		r.Warn("event %d is a dead letter now", r.feed.LastDead)
	}
}

func retryBusy(call func() error) (err error) {
	for range busyTries {
		if err = call(); !errors.Is(err, engine.ErrBusy) {
			break
		}
	}
	return err
}

// deliver runs the command on d and returns the result.
func (r *run) deliver(d *engine.Delivery) (engine.Result, error) {
	result, err := r.attempt(d, nil)
	if err != nil {
		return result, err
	}
	r.account(d, result)
	return result, nil
}

// attempt is deliver without counting. turn is nil where none is needed.
func (r *run) attempt(d *engine.Delivery, turn Turn) (engine.Result, error) {
	traced := r.begin(d)
	code, text, said, err := r.exec(d, turn, traced)
	if err != nil {
		return engine.Result{}, err
	}
	result := engine.Result{Verdict: verdict(code), ExitCode: code, Error: said}
	if (text == killedByInterrupt || code == exitInterrupted) && r.Signals.interrupted() {
		result.Verdict = engine.Returned
	}
	if code != 0 && r.isLost() {
		result.Verdict = engine.Returned
	}
	traced.end(&result)
	return result, nil
}

func (r *run) isLost() bool {
	select {
	case <-r.Lost: // never, when it is nil
		return true
	default:
		return false
	}
}

// account counts a result.
func (r *run) account(d *engine.Delivery, result engine.Result) {
	if result.Verdict == engine.Succeeded {
		r.sum.Delivered += int64(len(d.Events))
		if r.Progress != nil {
			r.Progress(r.sum)
		}
		return
	}
	r.sum.Failed++
	if r.Turns != nil && r.Key != "" && lanes.IsProbe(lanes.Session(d.Key)) {
		return // it is expected to fail (L-22)
	}
	r.Warn("%s", r.describe(d, result))
}

// The exit codes with a separate meaning, from sysexits.h.
const (
	exitDataErr     = 65
	exitTempFail    = 75
	exitInterrupted = 130 // what a shell says of a command that SIGINT has killed
)

func verdict(code int64) engine.Verdict {
	switch code {
	case 0:
		return engine.Succeeded
	case exitTempFail:
		return engine.Deferred
	case exitDataErr:
		return engine.Rejected
	}
	return engine.Failed
}
