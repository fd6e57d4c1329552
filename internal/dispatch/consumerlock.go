package dispatch

import (
	"context"
	"errors"
	"os"
	"time"

	"thread/engine"
	"thread/lock"
)

// ErrHandled says that a consumer is locked: its handler runs or waits to be retried,
// or another process has its ConsumerLock.
var ErrHandled = errors.New("the consumer is being handled")

// ConsumerLock lets one process at a time work for a consumer. It is for a process that
// does a handler's work, be it the handler or started by hand.
type ConsumerLock struct {
	r        *dispatcher
	consumer string
	runID    string     // "" in the consumer's own handler
	own      *lock.File // against others who lock the consumer, in a handler too
	c        *claim     // nil in the consumer's own handler, whose supervisor has it
	standby  *standby   // takes over if this process is killed
	newest   int64      // when the consumer was locked
	retried  int64
}

// LockConsumer locks consumer without waiting, or returns ErrHandled. In the consumer's
// own handler its supervisor has the lock already; of several processes of one handler
// one gets a ConsumerLock.
func LockConsumer(ctx context.Context, t *engine.Thread, consumer string) (*ConsumerLock, error) {
	r := newDispatcher(t, Options{})
	if err := r.prepare(); err != nil {
		return nil, err
	}
	held := &ConsumerLock{r: r, consumer: consumer}
	own, err := tryLock(r.path(consumer, ".turn"))
	if err != nil {
		return nil, err
	}
	held.own = own
	if held.Supervised() {
		return held, nil
	}
	c := &claim{}
	c.lock, c.record, err = r.tryLocks(consumer)
	if err == nil {
		c.supervisorLock, err = tryLock(r.supervisorLockPath(consumer))
	}
	if err == nil {
		err = r.clearFor(ctx, consumer, c.record)
	}
	var d engine.Due
	if err == nil {
		d, err = r.t.DueFor(ctx, consumer, 0)
	}
	if err == nil {
		held.runID = newRunID()
		err = writeRecord(c.record, &record{note: note{RunID: held.runID}, Consumer: consumer, Manual: true})
	}
	if err != nil {
		c.drop()
		release(own)
		if errors.Is(err, lock.ErrHeld) {
			err = ErrHandled
		}
		return nil, err
	}
	held.c, held.newest, held.retried = c, d.Newest, d.Retried
	// The standby would run handlers.
	if os.Getenv(envDispatch) != wakeNone && Own(t.Dir()) == nil {
		held.standby = newStandby(r)
		held.standby.start()
		held.standby.await()
	}
	return held, nil
}

// clearFor ends what is left of a run that has lost its supervisor, if its handler
// has ended. One that goes on is left to a dispatch: ErrHandled.
func (r *dispatcher) clearFor(ctx context.Context, consumer string, file *lock.File) error {
	n := r.readNote(consumer)
	lost := lostRun(readRecord(file), n)
	if lost == nil {
		return nil
	}
	if l := findLeader(lost); l != nil {
		_ = Wake(ctx, r.t, consumer) // which logs it
		return ErrHandled
	}
	limited, cancel := context.WithTimeout(ctx, 2*killGrace)
	defer cancel()
	h := &handler{dispatcher: r, rec: lost, due: engine.Due{Subscription: engine.Subscription{Consumer: consumer}}}
	if err := h.clear(limited, killGrace); err != nil {
		if limited.Err() != nil && ctx.Err() == nil {
			return ErrHandled
		}
		return err
	}
	if n.State != stateRunning {
		return nil
	}
	now := time.Now()
	n.State, n.EndedAt, n.Exit = stateIdle, &now, unknownExit
	return r.writeNote(consumer, n)
}

// Environment is what those who work under the lock have to have in theirs, to be
// found if this process is killed.
func (t *ConsumerLock) Environment() []string {
	if t.runID == "" {
		return nil
	}
	return []string{envRunID + "=" + t.runID}
}

func tryLock(path string) (*lock.File, error) {
	l, err := lock.Try(path, lock.Exclusive)
	if errors.Is(err, lock.ErrHeld) {
		return nil, ErrHandled
	}
	return l, err
}

// Supervised reports whether this process belongs to the consumer's running
// handler, so that a supervisor looks after it. The environment alone does not
// say so: it goes on to whatever a handler leaves behind.
func (t *ConsumerLock) Supervised() bool {
	if t.c != nil || os.Getenv(envConsumer) != t.consumer || !t.r.inHandler() {
		return false
	}
	run := os.Getenv(envRunID)
	if t.r.readNote(t.consumer).RunID == "" { // run/ was deleted
		return run != "" && t.r.recorded(t.consumer, run)
	}
	s, err := Status(t.r.t, t.consumer)
	return err == nil && run != "" && s.Running && s.RunID == run
}

// recorded reports whether the record is of that run of a handler, which is not settled
// then. It asks for no lock, as whoever takes over would see that held.
func (r *dispatcher) recorded(consumer, run string) bool {
	for _, rec := range r.records() {
		if rec.Consumer == consumer && rec.RunID == run {
			return true
		}
	}
	return false
}

// Release releases the lock, and then does what everybody does who releases a
// consumer's lock: it looks again. An event that came since the consumer was locked,
// and a dead letter that was sent back, had a dispatch that saw the lock held.
func (t *ConsumerLock) Release(ctx context.Context) error {
	release(t.own)
	if t.c == nil {
		return nil
	}
	_ = t.c.record.File().Truncate(0) // else the next one finds nobody left
	t.c.drop()
	d, err := t.r.dueFor(ctx, t.consumer, t.newest)
	if err == nil && d.First == 0 && d.Retried != t.retried {
		d, err = t.r.dueFor(ctx, t.consumer, 0)
	}
	if err == nil && d.First != 0 {
		err = Wake(ctx, t.r.t, t.consumer)
	}
	if t.standby != nil && err == nil {
		t.standby.stop() // else it looks
	}
	return err
}
