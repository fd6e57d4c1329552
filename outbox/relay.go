package outbox

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"thread/engine"
	"thread/event"
	"thread/lock"
)

// Mode says when a relay ends.
type Mode int

const (
	Once       Mode = iota // when nothing is due
	UntilEmpty             // when nothing is pending; what waits is waited for
	Follow                 // when its context ends
)

// PollInterval bounds how long a relay that follows sleeps: a write that the
// operating system does not tell of is seen then (O-10).
const PollInterval = time.Second

// Options are the settings of a relay that are not kept in the thread.
type Options struct {
	Mode Mode
	// Command is the handler, in place of Settings.Handler.
	Command []string
	Env     []string // in the handler's environment, next to ours
	// Stdout and Stderr get what handlers print. May be nil.
	Stdout, Stderr io.Writer
	// Log is told of every record that was handed on or has failed. May be nil.
	Log func(failed bool, format string, args ...any)
	// Recorder keeps the runs of the handler. May be nil.
	Recorder Recorder
	// Work is a locked file that the handler inherits: while it is held, no other relay is
	// to work on the thread. May be nil.
	Work *os.File
	// Lost, when it is closed, ends a handler that runs, at once: another host may relay. May
	// be nil.
	Lost <-chan struct{}

	run func(d *delivery) (execution, error) // of the tests, in place of the handler
}

// Summary counts what a relay has done.
type Summary struct {
	Processed     int64 `json:"processed"`
	Failures      int64 `json:"failures"` // attempts that failed
	Failed        int64 `json:"failed"`   // records that have failed for good
	Triggered     int64 `json:"triggered"`
	Notifications int64 `json:"notifications"`
}

// ErrRelaying is returned when another relay is at work on the thread.
var ErrRelaying = errors.New("another relay is at work")

// ErrCommand is wrapped by the error of a handler that could not be started. Its
// record is as if it had not been touched.
var ErrCommand = errors.New("cannot run the handler")

// reached is called at the places where a test kills the process.
var reached = func(place string) {}

// delivery is a record that is in flight.
type delivery struct {
	id      int64
	attempt int64
	message Message
	payload string
	plan    plan
	runID   string
	running context.Context // ends when the run is cancelled
	receipt *Receipt        // nil: nothing was run

	externalRunID *string // what the handler calls its run, when it is recorded under another id
}

type relay struct {
	Options
	t        *engine.Thread
	feed     *engine.Feed
	settings Settings
	out      *delivery
	quiet    *delivery // that runs nothing, and is settled where it begins
	sum      Summary
	stored   Summary     // what the transactions under way add
	quieted  []*delivery // what they settle and nothing was run for
}

// Relay hands records on, one after the other, in the order of the times from which
// they are available, until o.Mode says that it ends or ctx does; it then returns
// nil. The lock on run/outbox.relay.lock keeps others out for as long as it lives; for a thread
// on a server the caller has the turn of [Consumer].
// A handler that runs when ctx ends may finish, and its result is stored.
//
// Relay returns [ErrRelaying], [ErrCommand], [engine.ErrPaused],
// [engine.ErrNoSubscription] when nothing was ever inserted, and the other errors of
// [engine.Feed].
func Relay(ctx context.Context, t *engine.Thread, o Options) (Summary, error) {
	if t.URL() == "" {
		l, err := lockRelay(t)
		if err != nil {
			return Summary{}, err
		}
		defer l.Close()
	}
	if o.Log == nil {
		o.Log = func(bool, string, ...any) {}
	}
	r := &relay{Options: o, t: t}
	if err := t.View(ctx, func(tx *engine.Tx) (err error) { r.settings, err = ReadSettings(tx); return err }); err != nil {
		return Summary{}, err
	}
	r.feed = t.Feed(Consumer, engine.Policy{Unordered: true, MaxAttempts: r.settings.MaxAttempts, Backoff: r.backoff, AtOnce: r.atOnce, OnSettled: r.settled})
	defer r.feed.Close()
	err := r.loop(ctx)
	return r.sum, err
}

// lockRelay locks the directory for a relay.
func lockRelay(t *engine.Thread) (*lock.File, error) {
	if err := lock.Mkdir(filepath.Join(t.Dir(), "run")); err != nil {
		return nil, err
	}
	l, err := lock.Try(filepath.Join(t.Dir(), "run", "outbox.relay.lock"), lock.Exclusive)
	if errors.Is(err, lock.ErrHeld) {
		err = ErrRelaying
	}
	return l, err
}

// now returns the time of the thread's clock.
func (r *relay) now() (now time.Time) {
	_ = r.t.View(context.Background(), func(tx *engine.Tx) error { now = tx.Now(); return nil }) // without it, any time is ahead
	return now
}

// backoff returns the wait after the n-th failure in a row: twice as long each time,
// drawn out by up to a quarter, at most MaxBackoff.
func (r *relay) backoff(n int64) time.Duration {
	longest := r.settings.MaxBackoff * 4 / 5
	d := longest
	if n-1 < 30 && r.settings.Backoff < longest>>(n-1) {
		d = r.settings.Backoff << (n - 1)
	}
	return d + time.Duration(rand.Int64N(int64(d)/4+1))
}

func (r *relay) loop(ctx context.Context) error {
	var w engine.Watcher
	if r.Mode != Once {
		w, _ = r.t.Watch() // without it, it polls
		if w != nil {
			defer w.Close()
		}
	}
	var result *engine.Result
	for {
		if ctx.Err() != nil {
			if result == nil {
				return nil
			}
			return r.settle(*result)
		}
		d, err := r.next(result)
		reached("stored")
		if err != nil {
			return err
		}
		result = nil
		if len(d.Events) == 0 {
			if r.Mode == Once || r.Mode == UntilEmpty && d.NotBefore.IsZero() {
				return nil
			}
			wait(ctx, w, d.NotBefore)
			continue
		}
		reached("begun")
		res, err := r.deliver(ctx, &d)
		if err != nil {
			return errors.Join(err, r.settle(engine.Result{Verdict: engine.Returned}))
		}
		result = &res
		reached("ended")
	}
}

// wait returns when the thread is written, when it is time, or after PollInterval.
func wait(ctx context.Context, w engine.Watcher, until time.Time) {
	if poll := time.Now().Add(PollInterval); until.IsZero() || poll.Before(until) {
		until = poll
	}
	if w != nil && w.Wait(ctx, until) == nil {
		return
	}
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// busyTries is how often a call is repeated when the thread is busy, each time after
// the engine's own wait: the work is done, and only its result is left to be stored.
const busyTries = 15

func (r *relay) next(result *engine.Result) (d engine.Delivery, err error) {
	for range busyTries {
		r.stored, r.quieted = Summary{}, nil
		if d, err = r.feed.Next(context.Background(), result); errors.Is(err, engine.ErrStale) {
			d, err = r.feed.Next(context.Background(), nil) // the consumer was moved meanwhile
		}
		if !errors.Is(err, engine.ErrBusy) {
			break
		}
	}
	r.count(err)
	return d, err
}

func (r *relay) settle(result engine.Result) (err error) {
	for range busyTries {
		r.stored = Summary{}
		if _, err = r.feed.Settle(context.Background(), result); errors.Is(err, engine.ErrStale) {
			err = nil // the consumer was moved meanwhile
		}
		if !errors.Is(err, engine.ErrBusy) {
			break
		}
	}
	r.count(err)
	return err
}

// count adds what was stored.
func (r *relay) count(err error) {
	if err == nil || errors.Is(err, engine.ErrPaused) {
		r.sum.Processed += r.stored.Processed
		r.sum.Failures += r.stored.Failures
		r.sum.Failed += r.stored.Failed
		r.sum.Triggered += r.stored.Triggered
		r.sum.Notifications += r.stored.Notifications
		for _, d := range r.quieted {
			r.tell(d)
		}
	}
	r.stored, r.quieted = Summary{}, nil
}

// deliver hands a record on. The error says that the handler could not be started.
func (r *relay) deliver(ctx context.Context, d *engine.Delivery) (engine.Result, error) {
	e := &d.Events[0]
	var kept row
	var known, settled bool
	var p plan
	m, invalid := ReadMessage([]byte(e.Content))
	err := r.t.View(context.Background(), func(tx *engine.Tx) error {
		rows, err := tx.Records(tableRows)
		if err != nil {
			return err
		}
		if kept, known, err = getRow(rows, e.ID); err != nil {
			return err
		}
		if !known && invalid == nil {
			if settled, err = pruned(tx, e.ID, m.EventID); err != nil {
				return err
			}
		}
		if r.settings, err = ReadSettings(tx); err != nil || invalid != nil {
			return err
		}
		p, invalid, err = planOf(tx, &m, r.settings)
		return err
	})
	if err != nil {
		return engine.Result{}, err
	}
	r.out = &delivery{id: e.ID, attempt: d.Attempt, payload: e.Content}
	switch err = invalid; {
	case settled:
		return engine.Result{Verdict: engine.Succeeded}, nil
	case !known:
		err = errors.New("it was not stored by thread outbox add")
	case err == nil && !d.Retry && kept.AvailableAt > createdAt(e):
		return engine.Result{Verdict: engine.Postponed, NotBefore: time.UnixMilli(kept.AvailableAt)}, nil
	}
	if err != nil {
		r.Log(true, "outbox: event %d is not a message: %v", e.ID, err)
		return engine.Result{Verdict: engine.Rejected, ExitCode: -1, Error: err.Error()}, nil
	}
	r.out.message, r.out.plan = m, p
	if !p.Trigger {
		r.tell(r.out)
		return engine.Result{Verdict: engine.Succeeded}, nil
	}
	return r.trigger(ctx, r.out)
}

// tell logs a delivery that runs nothing.
func (r *relay) tell(d *delivery) {
	m := &d.message
	r.Log(false, "outbox: event_id=%s type=%s trace_id=%s notify=%v trigger=false reason=%q", m.EventID, m.EventType, m.TraceID, d.plan.Notify, d.plan.Reason)
}

// atOnce settles a message that starts nothing in the transaction that has found it, with
// others of its kind: it needs no process outside. All else is for deliver.
func (r *relay) atOnce(tx *engine.Tx, d *engine.Delivery) (bool, error) {
	e := &d.Events[0]
	rows, err := tx.Records(tableRows)
	if err != nil {
		return false, err
	}
	kept, known, err := getRow(rows, e.ID)
	if err != nil || !known || !d.Retry && kept.AvailableAt > createdAt(e) {
		return false, err
	}
	m, err := ReadMessage([]byte(e.Content))
	if err != nil {
		return false, nil // deliver rejects it
	}
	settings, err := ReadSettings(tx)
	if err != nil {
		return false, err
	}
	quiet := &delivery{id: e.ID, attempt: d.Attempt, message: m}
	var invalid error
	if quiet.plan, invalid, err = planOf(tx, &m, settings); err != nil || invalid != nil {
		return false, err // deliver rejects it
	}
	if quiet.plan.Trigger { // the notification does not wait for the agent
		if err := r.notify(tx, e.ID, quiet, &kept); err != nil || !kept.Notified {
			return false, err
		}
		return false, putRow(rows, e.ID, &kept)
	}
	r.quiet = quiet
	r.quieted = append(r.quieted, quiet)
	return true, nil
}

// planOf decides about a message by the rules of the thread. invalid says why it is not one by
// these.
func planOf(tx *engine.Tx, m *Message, s Settings) (p plan, invalid, err error) {
	rules, err := ReadRules(tx)
	if err != nil {
		return p, nil, err
	}
	if invalid = rules.Check(m); invalid == nil {
		p, invalid = rules.plan(m, s)
	}
	return p, invalid, nil
}

func createdAt(e *event.Event) int64 {
	ms, _ := event.ParseTime(e.CreatedAt)
	return ms
}
