package dispatch

import (
	"context"
	"errors"
	"os"
	"runtime"
	"time"

	"thread/engine"
	"thread/lock"
)

// testPoint is called at points where the tests stop a process.
var testPoint = func(point string) {}

// Hooks is what a server adds to one run. A nil Abort never fires.
type Hooks struct {
	Env   func(runID string, first int64) []string // called before the handler starts, with its first unread event; added to its environment
	Ended func(ok bool)                            // called when it has ended, before another can run; nil for none
	Abort <-chan struct{}                          // closed: end the handler as if its time was up
	Stop  <-chan struct{}                          // closed: the same, and leave the consumer to the next push or server
	Ends  func() bool                              // reports whether the process is told to end: nothing is run again then; nil for never

	// Start calls start once, which starts the handler, and returns its error. A
	// handler is at work before start returns: what others learn of it must not
	// be older than what they are told of the run, which Start can see to with a
	// lock. Nil for no process.
	Start func(runID string, start func() (pid int, err error)) error
}

// supervisor runs handlers, each in a separate goroutine. It holds a consumer's
// locks and a slot only while its handler runs; while one waits to be retried it holds
// only that consumer's supervisor lock, and others run.
type supervisor struct {
	*dispatcher
	queue          []engine.Due       // seen due, not looked at again yet
	lost           []string           // consumers whose handlers have lost their supervisor, for the first look
	waiting        map[string]*waiter // to be retried
	running        int
	ended          chan ended
	first          bool // the look that answers a push: see next
	standby        *standby
	standbyStarted bool
	looked         func()   // called once, after the first look; may be nil
	ready          *os.File // tells a dispatch that it was handed over, nil when it is or no process waits
	hooks          *Hooks   // nil in a separate process
}

type waiter struct {
	at             time.Time
	supervisorLock *lock.File
	note           note
}

// ended is what came of one run.
type ended struct {
	consumer string
	waiter   *waiter // not nil: to be retried
	err      error
}

func newSupervisor(r *dispatcher) *supervisor {
	s := &supervisor{}
	s.begin(r)
	return s
}

func (s *supervisor) begin(r *dispatcher) {
	s.dispatcher, s.waiting, s.ended, s.standby = r, map[string]*waiter{}, make(chan ended), newStandby(r)
}

// work runs every consumer that it finds due, until a look after the last release
// finds none and no retry is left.
//
// When the thread cannot be read, work tries again with the back-off, and then
// ends; the next push starts afresh. When ctx ends, so does work, and the standby
// takes over.
func (s *supervisor) work(ctx context.Context) error {
	if s.takeovers > 0 {
		s.startStandby(ctx)
	}
	var err error
	for failures := 0; ; {
		if err == nil {
			err = s.next(ctx) // model: look
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		s.handedOver()
		var again <-chan time.Time
		switch {
		case err != nil:
			failures++
			if (failures >= maxTries || s.isGone()) && s.running == 0 {
				s.leave()
				return err
			}
			s.log.Error("supervise: %v", err)
			if failures < maxTries {
				again = time.After(backoff(failures))
			}
		case s.running == 0 && len(s.waiting) == 0:
			s.leave()
			return nil
		default:
			failures = 0
		}
		err = s.await(ctx, again)
	}
}

// await waits for the end of a run, for a retry that is due, or for again. A
// retry is begun.
func (s *supervisor) await(ctx context.Context, again <-chan time.Time) error {
	var due <-chan time.Time
	if w := s.waiting[s.nextRetry()]; w != nil {
		timer := time.NewTimer(time.Until(w.at))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case e := <-s.ended:
		s.running--
		if e.waiter != nil {
			s.waiting[e.consumer] = e.waiter
		}
		return e.err
	case <-due:
		testPoint("due")
		c, err := s.resume(ctx, s.nextRetry())
		if c != nil {
			s.run(ctx, c)
		}
		return err
	case <-again:
	case <-ctx.Done():
	}
	return nil
}

// claim is the right to run a consumer's handler: its lock, and room for it.
type claim struct {
	due            engine.Due // what is unread
	note           note       // what the last supervisor wrote
	lost           *record    // a run whose supervisor was killed, to be dealt with first
	lock           *lock.File
	record         *lock.File
	room           *room
	supervisorLock *lock.File // nil until the handler is dealt with
}

// run begins to serve a claim.
func (s *supervisor) run(ctx context.Context, c *claim) {
	s.startStandby(ctx)
	if c.lost == nil {
		s.logSpawned(c)
	}
	s.running++
	go func() {
		w, err := s.attempt(ctx, c)
		s.ended <- ended{c.due.Consumer, w, err}
	}()
	runtime.Gosched() // the handler is prepared before the look that follows
}

func (r *dispatcher) logSpawned(c *claim) {
	r.log.Info("dispatch: consumer=%s spawned handler_cmd=\"%s\"", c.due.Consumer, c.due.Handler)
}

// startStandby starts the standby, which each attempt awaits before it does what would
// have to be taken over.
func (s *supervisor) startStandby(ctx context.Context) {
	if s.standbyStarted {
		return
	}
	s.standbyStarted = true
	s.standby.start() // model: standby
	if s.ready != nil || s.takeovers > 0 {
		s.standby.await()
		s.confirm()
		wait(ctx, takeoverDelay(s.takeovers))
		testPoint("working")
	}
}

// awaitStandby returns when there is another process that takes over, be it of this supervisor
// or of the server that it belongs to.
func (s *supervisor) awaitStandby() {
	if s.standby != nil {
		s.standby.await()
	}
	testPoint("working")
}

// leave stops the standby, as all is done.
func (s *supervisor) leave() {
	if s.standbyStarted {
		s.standby.stop() // model: stop
	}
}

// handedOver lets the dispatch go that has started this process, when the first look is
// over.
func (s *supervisor) handedOver() {
	if s.looked != nil {
		s.looked()
		s.looked = nil
	}
	if s.ready != nil {
		s.confirm()
		s.ready.Close()
		s.ready = nil
	}
	s.first = false
}

// confirm tells that dispatch that from now on there is another process that takes over.
func (s *supervisor) confirm() {
	if s.ready != nil {
		_, _ = s.ready.Write([]byte{'k'}) // it may be gone
	}
}

// isGone reports whether the directory was deleted.
func (s *supervisor) isGone() bool {
	_, err := os.Stat(s.t.Dir())
	return errors.Is(err, os.ErrNotExist)
}

// wait waits until the time has ended, or ctx.
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

// passes reports whether a claim for a new run has a place in a lane in which a consumer with
// an older unread event was refused one.
func (c *claim) passes(refused map[string]bool) bool {
	return c.lost == nil && c.room.place != nil && refused[c.due.Lane]
}

// queueHolders queues those who have the places in a lane, once for each lane: should
// supervisor and standby of one have been killed, no other process would look when it ends.
func (s *supervisor) queueHolders(lane string, visited map[string]bool) {
	if visited[lane] {
		return
	}
	visited[lane] = true
	for _, consumer := range s.inLane(lane) {
		s.queue = append(s.queue, engine.Due{Subscription: engine.Subscription{Consumer: consumer, Lane: lane}})
	}
}

// settle decides what follows an ending, notes it, and gives back what is not
// needed for it.
func (s *supervisor) settle(c *claim, n note, e ending) (*waiter, error) {
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
	case left:
		n.State = stateLeft
	}
	// Before the release: afterwards the note is another process's. And before the record:
	// killed between, the note is of the same run.
	err := s.writeNote(consumer, n)
	err = errors.Join(err, c.record.File().Truncate(0))
	testPoint("decided")
	var w *waiter
	switch v {
	case again:
		s.log.Info("supervise: consumer=%s runs again: events are pending", consumer)
	case retry:
		s.log.Warn("supervise: consumer=%s runs again in %v: %s", consumer, delay, n.Exit)
		w = &waiter{at: at, supervisorLock: c.supervisorLock, note: n}
		c.supervisorLock = nil
	case stopped:
		s.log.Warn("supervise: consumer=%s stopped: its handler left its events unread; the next push runs it", consumer)
	case stalled:
		s.log.Error("supervise: consumer=%s stalled after %d failed runs, the last one: %s; the next push runs it", consumer, n.Failures, n.Exit)
	case left:
		s.log.Info("supervise: consumer=%s left with events unread: the server ends; the next push or server runs it", consumer)
	}
	c.drop()
	return w, err
}

// nextRetry returns the consumer whose retry is due first, "" for none.
func (s *supervisor) nextRetry() (consumer string) {
	for c, w := range s.waiting {
		if consumer == "" || w.at.Before(s.waiting[consumer].at) {
			consumer = c
		}
	}
	return consumer
}

// resume claims a consumer again that waits, when its time has come. It
// returns nil if that need not run any more, or if there is no room for it.
func (s *supervisor) resume(ctx context.Context, consumer string) (*claim, error) {
	w := s.waiting[consumer]
	delete(s.waiting, consumer)
	c := &claim{supervisorLock: w.supervisorLock, note: w.note}
	if err := s.reclaim(ctx, c, consumer); err != nil || c.room == nil {
		// No room: the supervisors that have it find this consumer due, with
		// its streak in the note. In any case another look follows.
		c.drop()
		return nil, err
	}
	return c, nil
}

// drop gives everything back.
func (c *claim) drop() {
	release(c.supervisorLock)
	release(c.record)
	release(c.lock)
	c.room.release()
	c.supervisorLock, c.record, c.lock, c.room = nil, nil, nil, nil
}

// reclaim completes the claim of a consumer whose supervisor lock it has. It has no room
// then if the consumer need not run, or cannot.
func (s *supervisor) reclaim(ctx context.Context, c *claim, consumer string) error {
	if err := s.prepare(); err != nil {
		return err
	}
	if same, _ := lock.Names(s.supervisorLockPath(consumer), c.supervisorLock.File()); !same {
		return nil // run/ was deleted: the process that has come meanwhile did not see that it waits
	}
	// Who holds the lock now is about to find that the supervisor lock is held.
	var err error
	if c.lock, err = lock.Open(ctx, s.handlerLockPath(consumer), lock.Exclusive); err != nil {
		return err
	}
	if c.record, err = s.tryRecord(consumer); errors.Is(err, lock.ErrHeld) {
		return nil // its holder looks
	}
	if err != nil {
		return err
	}
	c.due, err = s.dueFor(ctx, consumer, 0)
	if c.due.Consumer = consumer; err != nil || c.due.First == 0 {
		return err
	}
	if c.room, _, err = s.tryRoom(c.due.Lane); err != nil || c.room == nil {
		return err
	}
	return c.room.name(consumer)
}
