package dispatch

import (
	"context"
	"errors"

	"thread/engine"
	"thread/lock"
)

// claim is the right to run a consumer's handler: its lock and a slot.
type claim struct {
	due  engine.Due // what is unread
	note note       // what the last supervisor wrote
	lock *lock.File
	slot *lock.File
	busy *lock.File // nil until the supervisor takes it
}

// answer says how an attempt to claim a consumer went.
type answer int

const (
	claimed   answer = iota
	held             // another process has the consumer's lock, and looks when it releases it
	engaged          // a supervisor waits to retry it
	unwanted         // it need not run
	slotless         // every slot is held, and their holders look when they release them
	undecided        // a slot was held for nothing meanwhile: look at every consumer again
)

// want decides, under the consumer's lock, whether it must run.
type want func(ctx context.Context, d engine.Due, n note) (bool, error)

// wantPending is the rule after a push: what has unread events runs.
func (r *room) wantPending(context.Context, engine.Due, note) (bool, error) { return true, nil }

// wantFresh is the rule of all other looks: a consumer whose last supervisor
// stopped runs only if a matching event was pushed since.
func (r *room) wantFresh(ctx context.Context, d engine.Due, n note) (bool, error) {
	if !n.halted() {
		return true, nil
	}
	if d.Retried != n.SeenRetried {
		return true, nil // a dead letter was sent back
	}
	d, err := r.dueFor(ctx, d.Consumer, n.Seen)
	return d.First != 0, err
}

// claim tries to get the right to run consumer, without waiting. The claim is
// not nil if and only if the answer is claimed.
//
//  1. take <c>.lock, or answer held
//  2. ask <c>.busy, or answer engaged: its holder is going to wait for <c>.lock
//  3. look: must it run?
//  4. take a slot
//  5. if not: release <c>.lock, and then repeat the step that failed
//
// Without step 5, an event whose own dispatch saw the lock held in steps 2 to 4
// would be nobody's. The same goes for a slot that was in hand when the repeated
// attempt found nothing to run: undecided.
func (r *room) claim(ctx context.Context, consumer string, wanted want) (*claim, answer, error) {
	var slot *lock.File
	fail := func(a answer, err error) (*claim, answer, error) {
		if slot != nil {
			release(slot)
			a = undecided
		}
		return nil, a, err
	}
	look := func() (d engine.Due, n note, ok bool, err error) {
		if d, err = r.dueFor(ctx, consumer, 0); err != nil || d.First == 0 {
			return
		}
		n = r.readNote(consumer)
		ok, err = wanted(ctx, d, n)
		return
	}
	for {
		l, err := lock.Try(r.lockPath(consumer), lock.Exclusive)
		if errors.Is(err, lock.ErrHeld) {
			return fail(held, nil)
		}
		if err != nil {
			return fail(held, err)
		}
		if busy, err := r.engaged(consumer); busy || err != nil {
			release(l)
			return fail(engaged, err)
		}
		d, n, ok, err := look()
		if err != nil {
			release(l)
			return fail(unwanted, err)
		}
		if !ok {
			passing("unwanted")
			release(l)
			if _, _, ok, err := look(); !ok || err != nil {
				return fail(unwanted, err)
			}
			continue
		}
		if slot == nil {
			slot, err = r.trySlot()
		}
		if slot != nil {
			return &claim{due: d, note: n, lock: l, slot: slot}, claimed, nil
		}
		release(l)
		if err == nil {
			slot, err = r.trySlot()
		}
		if slot == nil {
			return fail(slotless, err)
		}
	}
}

// drop gives everything back.
func (c *claim) drop() {
	release(c.busy)
	release(c.lock)
	release(c.slot)
	c.busy, c.lock, c.slot = nil, nil, nil
}
