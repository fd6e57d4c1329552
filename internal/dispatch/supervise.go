package dispatch

import (
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"sync"

	"thread/engine"
	"thread/lock"
)

// Supervise is the body of the hidden subcommand. It expects to be a process of
// its own, started by this package, and returns when there is nothing left to do.
func Supervise(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("supervise is started by dispatch, not by hand")
	}
	var dir, consumer, author string
	var o Options
	var parent, takeovers int
	var after string
	var ready bool
	for rest := args[1:]; len(rest) > 0; rest = rest[2:] {
		if len(rest) == 1 {
			return errors.New("supervise: no value for " + rest[0])
		}
		switch name, value := rest[0], rest[1]; name {
		case "-thread":
			dir = value
		case "-consumer":
			consumer = value
		case "-author":
			author = value
		case "-after":
			after = value
		case "-ready":
			ready = true
		case "-max":
			o.MaxHandlers, _ = strconv.Atoi(value)
		case "-parent":
			parent, _ = strconv.Atoi(value)
		case "-takeovers":
			takeovers, _ = strconv.Atoi(value)
		default:
			return errors.New("supervise: unknown argument " + name)
		}
	}
	s := &supervisor{}
	if ready {
		s.ready = readyFile()
	}
	if consumer != "" {
		// A dispatch of an earlier version hands two locks over, and has let go of them
		// itself when this pipe ends. They are among what is closed now.
		_, _ = io.Copy(io.Discard, os.Stdin)
	}
	closeInherited()
	if args[0] == modeServerStandby {
		return runServerStandby(ctx, parent)
	}
	t, err := openThread(ctx, dir)
	if err != nil {
		return err
	}
	defer t.Close()
	r := newDispatcher(t, o)
	r.takeovers, r.after = takeovers, after
	switch args[0] {
	case modeWork, modeWake:
		adoptOrphans()
		s.begin(r)
		s.first = true
		if args[0] == modeWork {
			err = s.work(ctx)
		} else {
			err = s.wake(ctx, author)
		}
	case modeStandby:
		err = r.runStandby(ctx, parent)
	default:
		err = errors.New("supervise: unknown mode " + args[0])
	}
	if err != nil {
		r.log.Error("supervise: %v", err)
	}
	return err
}

// runServerStandby is the standby process of a server.
func runServerStandby(ctx context.Context, parent int) error {
	state, stop, err := readState(readLink)
	if stop || err != nil {
		return err
	}
	adoptOrphans()
	rooms := make([]*dispatcher, 0, len(state.dirs))
	var all sync.WaitGroup
	for _, dir := range state.dirs {
		t, err := openThread(ctx, dir)
		if err != nil {
			continue // gone
		}
		r := newDispatcher(t, Options{})
		rooms = append(rooms, r)
		outputs := r.copyOutputs(state.runs)
		all.Go(outputs.Wait)
	}
	awaitParent(parent)
	for _, r := range rooms {
		if r.ping(pingLook, "") {
			continue // there is a successor
		}
		s := newSupervisor(r)
		s.lost = r.lostConsumers(&state)
		due, err := r.due(ctx)
		if err == nil && len(due) == 0 && len(s.lost) == 0 {
			continue
		}
		r.log.Warn("supervise: the server ended, taking over")
		all.Go(func() {
			if err := s.work(ctx); err != nil {
				r.log.Error("supervise: %v", err)
			}
		})
	}
	all.Wait()
	return nil
}

// openThread opens a thread so that scheduled events that a look releases on
// its way get a separate dispatch. It is one whose handlers this process may
// run.
func openThread(ctx context.Context, dir string) (t *engine.Thread, err error) {
	if err := Own(dir); err != nil {
		return nil, err
	}
	t, err = engine.Open(dir, OwnFile(dir), engine.WithOnRelease(func(source string) {
		_ = Wake(ctx, t, source) // which logs it
	}))
	return t, err
}

// runRule decides, under the consumer's lock, whether it must run.
type runRule func(ctx context.Context, d engine.Due, n note) (bool, error)

// rulePending is the rule after a push: what has unread events runs.
func (r *dispatcher) rulePending(context.Context, engine.Due, note) (bool, error) { return true, nil }

// ruleNew is the rule of all other looks: a consumer whose last supervisor
// stopped runs only if a matching event was pushed since. One that was left by a
// server that was told to end is run by the next server.
func (r *dispatcher) ruleNew(ctx context.Context, d engine.Due, n note) (bool, error) {
	if !n.halted() && (n.State != stateLeft || r.max == serverSlots) {
		return true, nil
	}
	if d.Retried != n.SeenRetried {
		return true, nil // a dead letter was sent back
	}
	d, err := r.dueFor(ctx, d.Consumer, n.Seen)
	return d.First != 0, err
}

// claim tries to get the right to run consumer, without waiting. The claim is
// not nil if and only if the result is claimed.
//
//  1. take <c>.lock and then the record's, or return held: who has the record's
//     only has had a <c>.lock that was deleted, and looks when it releases both
//  2. ask <c>.busy, or return retrying: its holder is going to wait for <c>.lock
//  3. look: must it run, or has a run lost its supervisor?
//  4. take a place in its lane, and a slot
//  5. if not: release both locks, and then repeat the step that failed
//
// Without step 5, an event whose own dispatch saw the lock held in steps 2 to 4
// would belong to no process. The same goes for room that was in hand when the repeated
// attempt found nothing to run: recheck. A run that has lost its supervisor has its
// place still: it needs a slot only.
func (r *dispatcher) claim(ctx context.Context, consumer string, rule runRule) (*claim, claimResult, error) {
	var got *room
	giveBack := false
	fail := func(a claimResult, err error) (*claim, claimResult, error) {
		if got != nil || giveBack {
			got.release()
			a = recheck
		}
		return nil, a, err
	}
	look := func(record *lock.File) (c *claim, err error) {
		c = &claim{note: r.readNote(consumer)}
		if record != nil {
			c.lost = lostRun(readRecord(record), c.note)
		}
		if c.due, err = r.dueFor(ctx, consumer, 0); err != nil {
			return nil, err
		}
		c.due.Consumer = consumer // also when it has no subscription any more
		if c.lost != nil {
			return c, nil
		}
		if c.due.First != 0 {
			if ok, err := rule(ctx, c.due, c.note); ok || err != nil {
				return c, err
			}
		}
		return nil, nil
	}
	for {
		l, record, err := r.tryLocks(consumer) // model: claim
		if errors.Is(err, lock.ErrHeld) {
			return fail(held, nil)
		}
		if err != nil {
			return fail(held, err)
		}
		back := func() { release(l); release(record) }
		if busy, err := r.supervised(consumer); busy || err != nil {
			back()
			return fail(retrying, err)
		}
		c, err := look(record)
		if err != nil {
			back()
			return fail(notDue, err)
		}
		if c == nil {
			back()
			if c, err := look(nil); c == nil || err != nil { // model: not-due
				return fail(notDue, err)
			}
			continue
		}
		lane := c.due.Lane
		if c.lost != nil {
			lane = ""
		}
		if got != nil && got.lane != lane { // it was changed
			got.release()
			got, giveBack = nil, true
		}
		why := claimed
		if got == nil {
			got, why, err = r.tryRoom(lane)
		}
		if got != nil {
			if err = got.name(consumer); err == nil {
				c.lock, c.record, c.room = l, record, got
				return c, claimed, nil
			}
		}
		back()
		if err == nil {
			got, why, err = r.tryRoom(lane)
		}
		if got == nil || err != nil {
			return fail(why, err)
		}
	}
}

// tryLocks takes the two locks of a consumer, or returns lock.ErrHeld.
func (r *dispatcher) tryLocks(consumer string) (l, record *lock.File, err error) {
	if l, err = lock.Try(r.handlerLockPath(consumer), lock.Exclusive); err != nil {
		return nil, nil, err
	}
	if record, err = r.tryRecord(consumer); err != nil {
		release(l)
		return nil, nil, err
	}
	return l, record, nil
}
