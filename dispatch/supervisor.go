package dispatch

import (
	"context"
	"errors"
	"os"
	"time"

	"thread/engine"
	"thread/internal/planted"
	"thread/lock"
)

// passing is called at points where the tests stop a process.
var passing = func(point string) {}

// supervisor runs handlers one after the other. It holds a consumer's lock and a
// slot only while a handler runs; while one waits to be retried it holds only
// that consumer's busy lock, and others run.
type supervisor struct {
	*room
	queue   []engine.Due       // seen due, not looked at again yet
	waiting map[string]*waiter // to be retried
	guard   *guardian
	host    *Host // nil in a process of its own
}

type waiter struct {
	at   time.Time
	busy *lock.File
	note note
}

func newSupervisor(r *room) *supervisor {
	return &supervisor{room: r, waiting: map[string]*waiter{}, guard: newGuardian(r)}
}

// work runs c, if not nil, and then every consumer it finds due, until a look
// after the last release finds none and no retry is left.
//
// When the thread cannot be read, work tries again with the back-off, and then
// ends; the next push starts afresh. When ctx ends, so does work, and the guard
// takes over.
func (s *supervisor) work(ctx context.Context, c *claim) error {
	s.guard.start()
	wait(ctx, pause(s.takeovers))
	passing("working")
	for failures := 0; ; {
		more, err := s.step(ctx, c)
		c = nil
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			failures = 0
		} else if failures++; failures == maxTries || s.gone() {
			s.guard.dismiss()
			return err
		} else {
			s.log.Error("supervise: %v", err)
			more = true
			wait(ctx, backoff(failures))
		}
		if !more {
			s.guard.dismiss()
			return nil
		}
	}
}

// step runs one handler: that of c, or of the next consumer if c is nil, or of
// the next that waits. It reports whether there may be more to do.
func (s *supervisor) step(ctx context.Context, c *claim) (more bool, err error) {
	if c == nil {
		c, err = s.next(ctx)
	}
	if c == nil && err == nil {
		if len(s.waiting) == 0 {
			return false, nil
		}
		c, err = s.nextWaiting(ctx)
	}
	if c != nil && err == nil {
		err = s.serve(ctx, c)
	}
	return true, err
}

// gone reports whether the directory was deleted.
func (s *supervisor) gone() bool {
	_, err := os.Stat(s.t.Dir())
	return errors.Is(err, os.ErrNotExist)
}

// wait waits until the time is over, or ctx.
func wait(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// next claims the next consumer that has to run, and starts further supervisors
// for the others while there are slots. It returns nil when a look at all
// consumers found nothing to run, when there is no slot, or when a resident
// process has taken it upon itself to look.
func (s *supervisor) next(ctx context.Context) (*claim, error) {
	if planted.Bug("no look after the release") {
		return nil, nil
	}
	if err := s.prepare(); err != nil {
		return nil, err
	}
	if s.ping(pingLook, "") {
		s.queue = nil
		return nil, nil
	}
	var mine *claim
	for fresh := false; ; {
		for len(s.queue) > 0 {
			consumer := s.queue[0].Consumer
			c, a, err := s.claim(ctx, consumer, s.wantFresh)
			if a == slotless && err == nil {
				return mine, nil
			}
			s.queue = s.queue[1:]
			switch {
			case err != nil:
				s.report("supervise", consumer, err)
			case a == undecided:
				fresh = false
			case a == claimed && c.note.State == stateRunning:
				// Its supervisor was killed: treat the run as failed.
				if err := s.takeOver(ctx, c); err != nil {
					s.report("supervise", consumer, err)
				}
				fresh = false
			case a == claimed && mine == nil:
				mine = c
				s.logSpawned(c)
			case a == claimed:
				if err := s.spawn(c); err != nil {
					s.report("supervise", consumer, err)
				}
			}
		}
		if mine != nil {
			return mine, nil
		}
		if fresh {
			return nil, nil
		}
		due, err := s.due(ctx)
		if err != nil {
			return nil, err
		}
		for _, d := range due {
			if d.Err == nil {
				s.queue = append(s.queue, d)
			}
		}
		fresh = true
	}
}

// takeOver treats the run that c's note tells of as one that was killed, which
// it then is.
func (s *supervisor) takeOver(ctx context.Context, c *claim) error {
	var err error
	if c.busy, err = lock.Open(ctx, s.busyPath(c.due.Consumer), lock.Exclusive); err == nil {
		err = s.clear(ctx, c.due.Consumer)
	}
	if err != nil {
		c.drop()
		return err
	}
	n := c.note
	s.log.Warn("supervise: consumer=%s run=%s lost its supervisor", c.due.Consumer, n.RunID)
	now := time.Now()
	n.EndedAt, n.Exit, n.Seen = &now, "supervisor was killed", c.due.Newest
	n.SeenRetried = c.due.Retried
	return s.settle(c, n, ending{pending: true})
}

// settle decides what follows an ending, notes it, and gives back what is not
// needed for it.
func (s *supervisor) settle(c *claim, n note, e ending) error {
	consumer := c.due.Consumer
	v, delay := decide(e, &n.streak)
	n.RetryAt = nil
	at := time.Now().Add(delay)
	switch v {
	case done, again:
		n.State = stateIdle
	case retry:
		n.State, n.RetryAt = stateWaiting, &at
	case stopped:
		n.State = stateStopped
	case stalled:
		n.State = stateStalled
	}
	// Before the release: afterwards the note is somebody else's.
	err := s.writeNote(consumer, n)
	passing("decided")
	switch v {
	case again:
		s.log.Info("supervise: consumer=%s runs again: events are pending", consumer)
	case retry:
		s.log.Warn("supervise: consumer=%s runs again in %v: %s", consumer, delay, n.Exit)
		s.waiting[consumer] = &waiter{at: at, busy: c.busy, note: n}
		c.busy = nil
	case stopped:
		s.log.Warn("supervise: consumer=%s stopped: its handler left its events unread; the next push runs it", consumer)
	case stalled:
		s.log.Error("supervise: consumer=%s stalled after %d failed runs, the last one: %s; the next push runs it", consumer, n.Failures, n.Exit)
	}
	c.drop()
	if v == again {
		s.queue = append(s.queue, c.due)
	}
	return err
}

// nextWaiting waits for the earliest retry and claims its consumer again. It
// returns nil if that need not run any more, or if there is no slot for it.
func (s *supervisor) nextWaiting(ctx context.Context) (*claim, error) {
	var consumer string
	for c, w := range s.waiting {
		if consumer == "" || w.at.Before(s.waiting[consumer].at) {
			consumer = c
		}
	}
	w := s.waiting[consumer]
	if wait(ctx, time.Until(w.at)); ctx.Err() != nil {
		return nil, ctx.Err()
	}
	delete(s.waiting, consumer)
	if err := s.prepare(); err != nil {
		release(w.busy)
		return nil, err
	}
	// Who holds the lock now is about to find that busy is held.
	l, err := lock.Open(ctx, s.lockPath(consumer), lock.Exclusive)
	if err != nil {
		release(w.busy)
		return nil, err
	}
	c := &claim{lock: l, busy: w.busy, note: w.note}
	c.due, err = s.dueFor(ctx, consumer, 0)
	if err == nil && c.due.First != 0 {
		c.slot, err = s.trySlot()
	}
	if c.slot == nil {
		// No slot: the supervisors that hold them find this consumer due, with
		// its streak in the note. Not due: another look follows.
		c.drop()
		return nil, err
	}
	s.logSpawned(c)
	return c, nil
}
