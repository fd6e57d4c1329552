package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"thread/engine"
	"thread/internal/command"
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
	own      *lock.File // the work lock, against others who lock the consumer, in a handler too
	c        *claim     // nil in the consumer's own handler, whose supervisor has it
	standby  *standby   // takes over if this process is killed
	dead     int64      // events that became dead letters in this run of the handler
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
	if held.Supervised() {
		var err error
		if held.own, err = tryLock(r.workLockPath(consumer)); err != nil {
			return nil, err
		}
		run := os.Getenv(envRunID)
		if w := readWork(held.own.File()); w.run == run {
			held.dead = w.dead
		}
		work{run: run, dead: held.dead}.write(held.own.File()) // its supervisor finds it there
		return held, nil
	}
	held.c, held.runID = &claim{}, newRunID()
	if err := held.claim(ctx, r, consumer); err != nil {
		held.c.drop()
		release(held.own)
		if errors.Is(err, lock.ErrHeld) {
			err = ErrHandled
		}
		return nil, err
	}
	// The standby would run handlers.
	if os.Getenv(envDispatch) != wakeNone && Own(t.Dir()) == nil {
		held.standby = newStandby(r)
		held.standby.start()
		held.standby.await()
	}
	return held, nil
}

// TakeNext is engine.Thread.Next, also after a process that was killed with events of the
// consumer.
func TakeNext(ctx context.Context, t *engine.Thread, consumer string, o engine.NextOptions) (engine.Lease, error) {
	l, err := t.Next(ctx, consumer, o)
	if !errors.Is(err, engine.ErrOut) {
		return l, err
	}
	held, err := LockConsumer(ctx, t, consumer)
	if err != nil {
		return l, err
	}
	o.TakeOver = true
	l, err = t.Next(ctx, consumer, o)
	if rerr := held.Release(ctx); err == nil {
		err = rerr
	}
	return l, err
}

// claim takes what a supervisor has of the consumer. With an error, what was taken is to be
// released.
func (l *ConsumerLock) claim(ctx context.Context, r *dispatcher, consumer string) (err error) {
	if l.c.lock, l.c.record, err = r.tryLocks(consumer); err != nil {
		return err
	}
	if l.c.supervisorLock, err = tryLock(r.supervisorLockPath(consumer)); err != nil {
		return err
	}
	if err = r.clearFor(ctx, consumer, l.c.record); err != nil {
		return err
	}
	if l.own, err = r.lockWork(ctx, consumer); err != nil {
		return err
	}
	d, err := r.t.DueFor(ctx, consumer, 0)
	if err != nil {
		return err
	}
	l.newest, l.retried = d.Newest, d.Retried
	return writeRecord(l.c.record, &record{note: note{RunID: l.runID}, Consumer: consumer, Manual: true})
}

// clearFor ends what is left of a run that has lost its supervisor, if its handler
// has ended. One that continues is left to a dispatch: ErrHandled.
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

// lockWork takes the work lock of a consumer that is run by no other process, as the caller
// has its handler lock: a process that holds the work lock is left of a command whose
// consume was killed, and is ended.
func (r *dispatcher) lockWork(ctx context.Context, consumer string) (*lock.File, error) {
	path := r.workLockPath(consumer)
	l, err := command.TakeTree(ctx, path, &command.Left{Trees: []string{path}}, killGrace, r.saysEnded(consumer))
	if errors.Is(err, lock.ErrHeld) {
		return nil, cmp.Or(ctx.Err(), ErrHandled)
	}
	return l, err
}

// write replaces the content. What cannot be written is missed only if this process is killed.
func (w work) write(f *os.File) {
	state := workGoesOn
	if w.released {
		state = workReleased
	}
	text := fmt.Sprintln(w.run, w.dead, state)
	if _, err := f.WriteAt([]byte(text), 0); err == nil {
		_ = f.Truncate(int64(len(text)))
	}
}

// Dead adds to the number of events that became dead letters in this run of the handler.
func (t *ConsumerLock) Dead(n int64) { t.dead += n }

// Work is the lock that the commands inherit which work under the ConsumerLock: it is held
// until the ConsumerLock is released, or until the last of them has ended.
func (t *ConsumerLock) Work() *os.File { return t.own.File() }

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
// say so: it continues to whatever a handler leaves behind.
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
// then. It asks for no lock, as the process that takes over would see that held.
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
	if t.c == nil {
		work{run: os.Getenv(envRunID), dead: t.dead, released: true}.write(t.own.File())
	}
	release(t.own)
	if t.c == nil {
		return nil
	}
	_ = t.c.record.File().Truncate(0) // else the next one finds no process left
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

// Turns returns what to ask for turns, nil when this process is not a handler of a server.
func (t *ConsumerLock) Turns() *Turns {
	if t.c != nil || !t.Supervised() {
		return nil
	}
	return newTurns(t.r.t.Dir(), t.r.run, t.consumer)
}
