package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"thread/internal/store"
)

// What is to be pushed later is kept apart from the events, and gets its id when
// it falls due, so that ids stay in the order of delivery and progress means what
// it always does. It is released by the first transaction after its time, in any
// process: a write releases before it does anything else, and a read that finds
// something due has it released before it reads.
//
// See package store for the records.

// eachScheduled calls fn for the entries of the queue, in order, while it returns
// true.
func (tx *Tx) eachScheduled(fn func(key, value []byte) (bool, error)) error {
	return tx.s.Ascend(store.Scheduled, nil, func(k, v []byte) (bool, error) {
		if !store.IsScheduledKey(k) {
			return false, fmt.Errorf("%w: bucket scheduled, key %x", ErrCorrupt, k)
		}
		return fn(k, v)
	})
}

// nextScheduled returns when something falls due next, zero for never.
func (tx *Tx) nextScheduled() (at time.Time, err error) {
	err = tx.eachScheduled(func(key, _ []byte) (bool, error) {
		at = store.DueOf(key)
		return false, nil
	})
	return at, err
}

// countScheduled counts the entries of the queue; each schedule has one.
func (tx *Tx) countScheduled() (n int64, err error) {
	err = tx.eachScheduled(func(_, _ []byte) (bool, error) {
		n++
		return true, nil
	})
	return n, err
}

// errOverdue ends a read that has found something to release.
var errOverdue = errors.New("scheduled events are due")

// overdue reports whether something has to be released, or planned again.
func (tx *Tx) overdue() (bool, error) {
	if !releases {
		return false, nil
	}
	at, err := tx.nextScheduled()
	if at.IsZero() || err != nil {
		return false, err
	}
	if now := tx.now(); at.After(now) {
		return tx.setBack(now)
	}
	return true, nil
}

// planSkew is clockSkew for what is planned from a clock, where nothing but the
// precision of schedules speaks for any.
const planSkew = time.Second

// epochMillis is the beginning of 2026, when this was written. A clock before it
// was not set yet, as on a host that begins in 1970: nothing is planned again by it,
// or everything would be due when it is set.
const epochMillis = 1767225600000

// setBack reports whether the clock was ahead of now when something was planned
// from it, or may have been.
func (tx *Tx) setBack(now time.Time) (bool, error) {
	if now.UnixMilli() < epochMillis {
		return false, nil
	}
	planned, err := tx.s.Sequence(store.Schedules)
	if err != nil || planned == 0 {
		return err == nil && tx.hasSchedules(), err
	}
	return planned > planTime(now.Add(planSkew)), nil
}

// hasSchedules reports whether there is a schedule. Older versions did not note when
// they planned one.
func (tx *Tx) hasSchedules() (found bool) {
	err := tx.s.Ascend(store.Schedules, nil, func(_, _ []byte) (bool, error) {
		found = true
		return false, nil
	})
	return found && err == nil
}

// planTime is now as the bucket schedules notes it: never 0, nor before 1970.
func planTime(now time.Time) uint64 { return uint64(max(1, now.UnixMilli())) }

// notePlanned notes in the bucket schedules that something was planned now.
func (tx *Tx) notePlanned() error {
	planned, err := tx.s.Sequence(store.Schedules)
	if err != nil {
		return err
	}
	return tx.s.SetSequence(store.Schedules, max(planned, planTime(tx.now())))
}

// NextScheduled returns the time at which something falls due next, the zero
// time when nothing is scheduled. What is due is released before; where that
// cannot be done, the time is a second from now, to try again.
func (t *Thread) NextScheduled(ctx context.Context) (at time.Time, err error) {
	if !releases {
		return at, nil
	}
	err = t.read(ctx, func(tx *Tx) (err error) {
		at, err = tx.nextScheduled()
		return err
	})
	if now := t.now(); !at.IsZero() && !at.After(now) {
		at = now.Add(time.Second)
	}
	return at, err
}
