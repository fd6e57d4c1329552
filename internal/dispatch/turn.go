package dispatch

import (
	"context"
	"errors"
	"os"
	"time"

	"thread/engine"
	"thread/lock"
)

// ErrHandled says that a consumer's turn is somebody else's: its handler runs,
// waits to be retried, or another process has taken the turn.
var ErrHandled = errors.New("the consumer is being handled")

// Turn is the right to be the only one who works for a consumer. It is for a
// process that does a handler's work, be it the handler or started by hand.
type Turn struct {
	r        *room
	consumer string
	runID    string     // "" in the consumer's own handler
	own      *lock.File // against others who ask for the turn, in a handler too
	c        *claim     // nil in the consumer's own handler, whose supervisor has it
	guard    *guardian  // takes over if this process is killed
	newest   int64      // when the turn was taken
	retried  int64
}

// TakeTurn takes the turn of consumer without waiting, or returns ErrHandled. In
// the consumer's own handler the turn is that of its supervisor; of several
// processes of one handler one gets it.
func TakeTurn(ctx context.Context, t *engine.Thread, consumer string) (*Turn, error) {
	r := newRoom(t, Options{})
	if err := r.prepare(); err != nil {
		return nil, err
	}
	turn := &Turn{r: r, consumer: consumer}
	own, err := tryTurn(r.path(consumer, ".turn"))
	if err != nil {
		return nil, err
	}
	turn.own = own
	if turn.Supervised() {
		return turn, nil
	}
	c := &claim{}
	c.lock, c.record, err = r.tryLocks(consumer)
	if err == nil {
		c.busy, err = tryTurn(r.busyPath(consumer))
	}
	if err == nil {
		err = r.clearFor(ctx, consumer, c.record)
	}
	var d engine.Due
	if err == nil {
		d, err = r.t.DueFor(ctx, consumer, 0)
	}
	if err == nil {
		turn.runID = newRunID()
		err = writeRecord(c.record, &record{note: note{RunID: turn.runID}, Consumer: consumer, Turn: true})
	}
	if err != nil {
		c.drop()
		release(own)
		if errors.Is(err, lock.ErrHeld) {
			err = ErrHandled
		}
		return nil, err
	}
	turn.c, turn.newest, turn.retried = c, d.Newest, d.Retried
	// The guard would run handlers.
	if os.Getenv(envDispatch) != wakeNone && Own(t.Dir()) == nil {
		turn.guard = newGuardian(r)
		turn.guard.start()
	}
	return turn, nil
}

// clearFor ends what is left of a run that has lost its supervisor, if its handler
// has ended. One that goes on is left to a dispatch: ErrHandled.
func (r *room) clearFor(ctx context.Context, consumer string, file *lock.File) error {
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
	h := &handler{room: r, rec: lost, due: engine.Due{Subscription: engine.Subscription{Consumer: consumer}}}
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

// Environment is what those who work for the turn have to have in theirs, to be
// found if this process is killed.
func (t *Turn) Environment() []string {
	if t.runID == "" {
		return nil
	}
	return []string{envRunID + "=" + t.runID}
}

func tryTurn(path string) (*lock.File, error) {
	l, err := lock.Try(path, lock.Exclusive)
	if errors.Is(err, lock.ErrHeld) {
		return nil, ErrHandled
	}
	return l, err
}

// Supervised reports whether this process belongs to the consumer's running
// handler, so that a supervisor looks after it. The environment alone does not
// say so: it goes on to whatever a handler leaves behind.
func (t *Turn) Supervised() bool {
	if t.c != nil || os.Getenv(envConsumer) != t.consumer || !t.r.inHandler() {
		return false
	}
	run := os.Getenv(envRunID)
	s, err := Status(t.r.t, t.consumer)
	return err == nil && run != "" && s.Running && s.RunID == run
}

// Give gives the turn back, and then does what everybody does who releases a
// consumer's lock: it looks again. An event that came since the turn was taken,
// and a dead letter that was sent back, had a dispatch that saw the lock held.
func (t *Turn) Give(ctx context.Context) error {
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
	if t.guard != nil && err == nil {
		t.guard.dismiss() // else it looks
	}
	return err
}
