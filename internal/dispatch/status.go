package dispatch

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"thread/engine"
	"thread/lock"
)

// State is what is known of a consumer's handler, for people. Times are nil when
// there is none.
type State struct {
	Running      bool
	RunningSince *time.Time
	RunID        string     // of the running handler
	LastExit     string     // "exit 0", "exit 3", "killed by SIGKILL", "timed out after 5m0s"; "": never ended
	LastExitAt   *time.Time // when
	Failures     int        // failed runs in a row, without progress in between
	RetryAt      *time.Time // a supervisor waits to run it again
	// Stalled is set after the last try in a row has failed: the next push, or
	// thread dispatch, starts afresh.
	Stalled bool
	// Stopped is set when the handler ended well but left events unread, and
	// nothing new came: the next push runs it again.
	Stopped bool
	// Left is set when the server that ran the handler was told to end: the next push
	// or server runs it again.
	Left bool
	// Unpopped is set when the last run exited 0 and had popped nothing: its events stay
	// unread.
	Unpopped bool
	// Interrupted is set when the supervisor was killed while the handler ran or
	// waited for a retry, and no process has taken over yet.
	Interrupted bool
}

// Status returns what is known of a consumer's handler. It changes nothing, and
// it holds up no dispatch. An unknown consumer has the zero State.
func Status(t *engine.Thread, consumer string) (State, error) {
	r := newDispatcher(t, Options{})
	n := r.readNote(consumer)
	supervised := false
	// The probe would create the file.
	if _, err := os.Lstat(r.supervisorLockPath(consumer)); err == nil {
		if supervised, err = r.supervised(consumer); err != nil {
			return State{}, err
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return State{}, err
	}
	s := State{LastExit: n.Exit, LastExitAt: n.EndedAt, Failures: n.Failures, Unpopped: n.Unpopped}
	s.Stalled, s.Stopped, s.Left = n.State == stateStalled, n.State == stateStopped, n.State == stateLeft
	switch {
	case n.State == stateRunning && supervised:
		s.Running, s.RunID, s.RunningSince = true, n.RunID, &n.StartedAt
	case n.State == stateWaiting && supervised:
		s.RetryAt = n.RetryAt
	case n.State == stateRunning || n.State == stateWaiting:
		s.Interrupted = true
	}
	return s, nil
}

// Running returns the first consumer in the order of subscription whose handler runs, ""
// for none.
func Running(ctx context.Context, t *engine.Thread) (string, error) {
	info, err := t.Info(ctx)
	if err != nil {
		return "", err
	}
	for i := range info.Subscriptions {
		consumer := info.Subscriptions[i].Consumer
		if s, err := Status(t, consumer); err != nil || s.Running {
			return consumer, err
		}
	}
	return "", nil
}

// supervised reports whether a supervisor runs the consumer or waits to retry it.
// Both this question and others like it take the lock shared, so that askers do
// not see each other; a supervisor that takes it waits until they are gone.
func (r *dispatcher) supervised(consumer string) (bool, error) {
	return isHeld(r.supervisorLockPath(consumer))
}

func isHeld(path string) (bool, error) {
	l, err := lock.Try(path, lock.Shared)
	if errors.Is(err, lock.ErrHeld) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	release(l)
	return false, nil
}

// ActiveRun is a consumer whose handler runs or waits to be tried again.
type ActiveRun struct {
	Consumer string
	Running  bool
	RunID    string // of the running handler
	PID      int    // of its first process, 0 when it is not known
	Since    time.Time
	RetryAt  time.Time // of one that waits
	Log      int64     // where in OutputPath begins what a running handler has printed
}

// Active returns what is known of the consumers whose handlers run or wait to be tried
// again, whichever process supervises them, by name. It changes nothing, and it holds up no
// dispatch.
func Active(ctx context.Context, t *engine.Thread) (list []ActiveRun, err error) {
	r := newDispatcher(t, Options{})
	info, err := t.Info(ctx)
	if err != nil {
		return nil, err
	}
	var consumers []string
	for i := range info.Subscriptions {
		consumers = append(consumers, info.Subscriptions[i].Consumer)
	}
	records := map[string]*record{}
	for _, rec := range r.records() {
		records[rec.Consumer] = rec
		consumers = append(consumers, rec.Consumer) // it may be unsubscribed
	}
	slices.Sort(consumers)
	for _, c := range slices.Compact(consumers) {
		s, err := Status(t, c)
		if err != nil {
			return nil, err
		}
		switch {
		case s.Running:
			a := ActiveRun{Consumer: c, Running: true, RunID: s.RunID, Since: *s.RunningSince}
			if rec := records[c]; rec != nil && rec.RunID == s.RunID {
				a.PID, a.Log = rec.PID, rec.Log
			}
			list = append(list, a)
		case s.RetryAt != nil:
			a := ActiveRun{Consumer: c, RetryAt: *s.RetryAt}
			if s.LastExitAt != nil {
				a.Since = *s.LastExitAt
			}
			list = append(list, a)
		}
	}
	slices.SortFunc(list, func(a, b ActiveRun) int { return strings.Compare(a.Consumer, b.Consumer) })
	return list, nil
}
