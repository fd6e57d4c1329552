package dispatch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"thread/engine"
	"thread/lock"
)

// # What is scheduled soon
//
// Without a server, the detached dispatch of the command that schedules
// an event waits until that falls due, if that is within MaxTimerWait. There is one
// these process of a thread, which holds run/.timer.lock; it has the socket
// run/.timer, through which it learns of earlier times. It sleeps in between, and
// when it gives the lock back, it looks again, as everybody does.
//
// It is a convenience, and no service: it ends with the host, or when it is killed,
// and then the next command that uses the thread releases what is due. So it does
// not wait for schedules, which have no end, nor for long.

// MaxTimerWait is how far away an event may be for a detached process to wait for
// it: longer than the delay of any retry, and short enough that a host rarely goes
// down meanwhile, and that a process which no process knows of is soon gone.
const MaxTimerWait = time.Hour

const (
	timerSocket = ".timer"
	timerLock   = ".timer.lock"
)

// Rescheduled is called when an event was scheduled for the given time. It tells a
// resident process of the thread, or the one that waits; without either it starts
// one that waits. It reports whether another process will release the event at its time.
func Rescheduled(ctx context.Context, t *engine.Thread, at time.Time) (awaited bool, err error) {
	r := newDispatcher(t, Options{})
	switch {
	case t.URL() != "":
		return false, nil
	case r.ping(pingSchedule, ""):
		return true, nil
	case os.Getenv(envDispatch) == wakeNone || time.Until(at) > MaxTimerWait:
		return false, nil
	case r.sendTo(timerSocket, pingSchedule, ""):
		return true, nil
	}
	err = r.startDispatch()
	return err == nil, err
}

// RescheduledForever is Rescheduled for what is repeated: only a server
// attends to that.
func RescheduledForever(t *engine.Thread) (awaited bool) {
	return t.URL() == "" && newDispatcher(t, Options{}).ping(pingSchedule, "")
}

// awaitScheduled waits for delayed events that fall due soon and releases them,
// until there is none, or another process does so. The engine starts a dispatch for
// what is released.
func (r *dispatcher) awaitScheduled(ctx context.Context) error {
	for failures := 0; ; {
		at, err := r.nextDelayed(ctx)
		if at.IsZero() || err != nil {
			return err
		}
		if !at.After(time.Now()) { // it could not be released, as on a full disk
			if failures++; failures == maxTries {
				return errUnreleased
			}
			wait(ctx, backoff(failures))
			continue
		}
		failures = 0
		if err := r.prepare(); err != nil {
			return err
		}
		held, err := lock.Try(filepath.Join(r.run, timerLock), lock.Exclusive)
		if errors.Is(err, lock.ErrHeld) {
			// Without a socket its holder is about to look: it has just begun, or ends.
			r.sendTo(timerSocket, pingSchedule, "")
			return nil
		}
		if err != nil {
			return err
		}
		err = r.holdTimer(ctx)
		release(held)
		if err != nil {
			return err
		}
	}
}

var errUnreleased = errors.New("a delayed event is due and could not be released")

// holdTimer waits, with the lock, until something is due or there is news.
func (r *dispatcher) holdTimer(ctx context.Context) error {
	pings, err := r.listenAt(timerSocket)
	if err != nil {
		return err
	}
	defer pings.Close()
	at, err := r.nextDelayed(ctx) // what came before there was a socket
	if at.IsZero() || err != nil {
		return err
	}
	news := make(chan struct{})
	go func() {
		defer close(news)
		_, _ = pings.Next()
	}()
	// The working directory's file system may be unmounted meanwhile. Handlers are
	// started where the push was made, if that is still there.
	if dir, err := os.Getwd(); err == nil && os.Chdir("/") == nil {
		defer func() { _ = os.Chdir(dir) }()
	}
	debug.FreeOSMemory()
	a := newAlarm(at)
	defer a.stop()
	select {
	case <-a.rings:
	case <-news:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// nextDelayed releases what is due, and returns when the next delayed event is: zero
// if that is far away, or a server attends to it.
func (r *dispatcher) nextDelayed(ctx context.Context) (at time.Time, err error) {
	next, err := retryBusy(ctx, r, func() ([]engine.Delayed, error) { return r.t.Delayed(ctx, 1) })
	if err != nil || len(next) == 0 || time.Until(next[0].At) > MaxTimerWait || r.ping(pingSchedule, "") {
		return time.Time{}, err
	}
	return next[0].At, nil
}
