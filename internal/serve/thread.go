package serve

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"thread/engine"
	"thread/internal/dispatch"
	"thread/internal/socket"
	"thread/internal/watch"
)

// retryPause is the pause before another try to release what is scheduled.
const retryPause = time.Second

var errGone = errors.New("the thread directory is gone")

// mtimeGranularity is how old a modification has to be before its time tells it from a
// later one: file systems count in ticks, the coarsest in 2 s.
const mtimeGranularity = 2 * time.Second

// listen makes the two sockets. No other process has t yet, or t.mu is held.
func (t *thread) listen() error {
	pings, err := t.local.Listen()
	if err != nil {
		return err
	}
	control, err := socket.Replace(filepath.Join(t.place, "run"), controlSocket)
	if err != nil {
		pings.Close()
		return err
	}
	t.pings, t.control = pings, control
	return nil
}

// begin takes pings, and looks for what came before.
func (t *thread) begin() {
	if t.remote != nil {
		t.remote.Watch(func() { t.wake(wakeNew) }, t.answerText)
	}
	t.receiveAll()
	t.wake(wakeNew)
}

// receiveAll answers at the sockets until they are closed.
func (t *thread) receiveAll() {
	if t.pings == nil {
		return
	}
	go t.receive(t.pings)
	go accept(t.control, maxRequests, t.handleConn, refuseConn)
}

func (t *thread) receive(pings *dispatch.Pings) {
	for {
		p, err := pings.Next()
		if err != nil {
			return // closed
		}
		if p.Push {
			t.pushes.Add(1)
		}
		t.wake(wakeUpOf(p))
	}
}

// close lets pushes find no process any more. Handlers continue.
func (t *thread) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	t.closed = true
	close(t.gone)
	if t.pings != nil {
		t.pings.Close()
		t.control.Close()
		t.s.giveBack()
	}
	if t.alarm != nil {
		t.alarm.Stop()
	}
	t.r.Close()
}

func (t *thread) isClosed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed
}

// wake asks for a pass.
func (t *thread) wake(w wakeUp) {
	t.wakes.Add(1)
	t.s.changes.tell()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pending.add(w)
	if t.news != nil {
		close(t.news)
		t.news = nil
	}
	if t.reconciling || t.closed {
		return
	}
	t.reconciling = true
	go t.reconcile()
}

// changed returns a channel that is closed when the thread may have changed.
func (t *thread) changed() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.news == nil {
		t.news = make(chan struct{})
	}
	return t.news
}

// reconcile makes passes until no caller asks for it any more.
func (t *thread) reconcile() {
	if t.local != nil { // a server that does not answer keeps no other thread waiting
		t.s.passes <- struct{}{}
		defer func() { <-t.s.passes }()
	}
	for {
		t.mu.Lock()
		w := t.pending
		t.pending = wakeUp{}
		t.reconciling = w.set && !t.closed
		on := t.reconciling
		t.mu.Unlock()
		if !on {
			return
		}
		t.reconcileOnce(w)
	}
}

func (t *thread) reconcileOnce(w wakeUp) {
	before, err := t.stamp()
	if err != nil {
		return // the sweep drops the thread
	}
	if time.Since(before.modified) < mtimeGranularity {
		before = stamp{}
	}
	ctx := context.Background()
	due, err := t.r.Due(ctx)
	if err == nil {
		err = t.setAlarm(ctx)
	}
	if err != nil {
		before = stamp{} // so that the sweep asks again, too
		switch {
		case t.remote != nil: // it is logged, and looked at again soon
		case errors.Is(err, engine.ErrBusy):
			time.AfterFunc(retryPause, func() { t.wake(w) })
		default:
			t.s.repeats.say(slog.LevelError, "due consumers not found", "thread", t.dir, "error", err)
		}
	}
	t.mu.Lock()
	t.seen = before
	t.mu.Unlock()
	if err == nil {
		t.leaveUndue(due)
	}
	for i := range due {
		t.enqueue(&due[i].Subscription, w)
	}
	t.retain()
}

// leaveUndue takes out of their lanes what is not due any more: consumers that were paused
// or unsubscribed, or have nothing unread (L-15).
func (t *thread) leaveUndue(due []engine.Due) {
	still := make(map[string]bool, len(due))
	for i := range due {
		still[due[i].Consumer] = true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leave(func(c *consumer) bool { return !still[c.name] })
}

// retainPause is the pause between two looks at the limits of a thread that no process
// pushes to.
const retainPause = 10 * time.Minute

// retain drops what the thread is not to keep, one thread after the other.
func (t *thread) retain() {
	if !t.retaining.CompareAndSwap(false, true) {
		return
	}
	t.retainAt.Store(time.Now().Add(retainPause).Unix())
	go func() {
		defer t.retaining.Store(false)
		if t.local != nil {
			t.s.retains.Lock()
			defer t.s.retains.Unlock()
		}
		if t.isClosed() {
			return
		}
		if err := dispatch.Retain(context.Background(), t.t); err != nil {
			t.s.repeats.say(slog.LevelWarn, "old events not dropped", "thread", t.dir, "error", err)
		}
		if err := dispatch.Forget(context.Background(), t.t); err != nil {
			t.s.repeats.say(slog.LevelWarn, "files of unsubscribed consumers not removed", "thread", t.dir, "error", err)
		}
	}()
}

// there returns an error when the directory is gone.
func (t *thread) there() error {
	if t.remote != nil {
		return nil
	}
	_, err := os.Stat(t.dir)
	return err
}

// stamp is zero for a thread on a server.
func (t *thread) stamp() (stamp, error) {
	if t.remote != nil {
		return stamp{}, nil
	}
	at, size, err := watch.Written(t.dir)
	return stamp{at, size}, err
}

// check is the sweep's visit. It returns errGone when there is nothing left to
// serve.
func (t *thread) check() error {
	if t.remote != nil {
		return nil // it looks by itself
	}
	now, err := t.stamp()
	if errors.Is(err, os.ErrNotExist) {
		return errGone
	}
	t.mu.Lock()
	changed := err != nil || now != t.seen
	// A timer stands still while the host sleeps; the time of day does not.
	changed = changed || !t.alarmAt.IsZero() && time.Now().After(t.alarmAt)
	named := t.pings != nil && t.pings.Reachable()
	t.mu.Unlock()
	if !named {
		again, err := t.reopen()
		if err != nil {
			t.s.repeats.say(slog.LevelWarn, "cannot listen for pushes", "thread", t.dir, "error", err)
		}
		changed = changed || again || err != nil
	}
	if changed {
		t.wake(wakeNew)
	} else if at := t.retainAt.Load(); at != 0 && (time.Now().Unix() >= at || time.Now().Unix() < at-int64(2*retainPause/time.Second)) {
		t.retain()
	}
	return nil
}

// reopen listens again after run/ was deleted, or now that there are descriptors
// for it. It returns false when there are none.
func (t *thread) reopen() (again bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.pings == nil && !t.s.keepOpen() {
		return false, nil
	}
	pings, control := t.pings, t.control
	if err = t.local.Renew(); err == nil {
		err = t.listen()
	}
	if err != nil {
		if pings == nil {
			t.r.Close()
			t.s.giveBack()
		}
		return false, err
	}
	if pings != nil {
		pings.Close()
		control.Close()
	}
	t.s.notices.remove(t.dir) // it may be another directory by now
	t.s.notices.add(t.dir)
	t.receiveAll()
	return true, nil
}

// setAlarm asks for a pass at the time for which something is scheduled next. The
// pass releases it.
func (t *thread) setAlarm(ctx context.Context) error {
	at, err := t.t.NextScheduled(ctx)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.alarm != nil {
		t.alarm.Stop()
	}
	// Without the monotonic reading, as the schedule is by the time of day.
	t.alarmAt = at.Round(0)
	if at.IsZero() || t.closed {
		return nil
	}
	delay := time.Until(at)
	if delay <= 0 {
		delay = retryPause // it should have been released: no hurry to fail again
	}
	t.alarm = time.AfterFunc(delay, func() { t.wake(wakeNew) })
	return nil
}
