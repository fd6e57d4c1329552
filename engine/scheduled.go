package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/bbolt"

	"thread/index"
)

// What is to be pushed later is kept apart from the events, and gets its id when
// it falls due, so that ids stay in the order of delivery and progress means what
// it always does. It is released by the first transaction after its time, in any
// process: a write releases before it does anything else, and a read that finds
// something due has it released before it reads.
//
// scheduled, the queue in the order of time:
//
//	key    due   8  milliseconds since 1970, not negative
//	       seq   8  the bucket's sequence: equal times keep their order
//	value        a draft record, or a 'schedule' field with the name of one
//
// schedules, what is repeated:
//
//	key    'n' and the name
//	value  a draft record with the fields spec and next, the key in scheduled
//
// A draft record of an event that is delayed, and not for a time of day, has a
// field since, the time from which its delay counts. The sequence of the bucket
// schedules is the latest time, in milliseconds since 1970, at which the clock
// was seen when something was planned from it; 0 for not known.
//
// Both values consist of fields as a subscription record does, and end in a crc
// over key and value. Directories of older versions do not have the buckets.
var (
	bucketScheduled = []byte("scheduled")
	bucketSchedules = []byte("schedules")
)

const scheduledKeyBytes = 16

// eachScheduled calls fn for the entries of the queue, in order, while it returns
// true.
func (tx *Tx) eachScheduled(fn func(key, value []byte) (bool, error)) error {
	b, err := index.Bucket(tx.b, bucketScheduled)
	if b == nil {
		return err
	}
	return index.Range(b, nil, func(k, v []byte) (bool, error) {
		if len(k) != scheduledKeyBytes {
			return false, fmt.Errorf("%w: bucket scheduled, key %x", ErrCorrupt, k)
		}
		return fn(k, v)
	})
}

// nextScheduled returns when something falls due next, zero for never.
func (tx *Tx) nextScheduled() (at time.Time, err error) {
	err = tx.eachScheduled(func(key, _ []byte) (bool, error) {
		at = dueOf(key)
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

// overdue reports whether something has to be released, or planned anew.
func (tx *Tx) overdue() (bool, error) {
	if !releases {
		return false, nil
	}
	at, err := tx.nextScheduled()
	if at.IsZero() || err != nil {
		return false, err
	}
	if now := tx.t.now(); at.After(now) {
		return tx.setBack(now)
	}
	return true, nil
}

// planSkew is clockSkew for what is planned from a clock, where nothing but the
// precision of schedules speaks for any.
const planSkew = time.Second

// epochMillis is the beginning of 2026, when this was written. A clock before it
// was not set yet, as on a host that begins in 1970: nothing is planned by it anew,
// or everything would be due when it is set.
const epochMillis = 1767225600000

// setBack reports whether the clock was ahead of now when something was planned
// from it, or may have been.
func (tx *Tx) setBack(now time.Time) (bool, error) {
	b, err := index.Bucket(tx.b, bucketSchedules)
	if b == nil || now.UnixMilli() < epochMillis {
		return false, err
	}
	return b.Sequence() == 0 || b.Sequence() > planTime(now.Add(planSkew)), nil
}

// planTime is now as the bucket schedules notes it: never 0, nor before 1970.
func planTime(now time.Time) uint64 { return uint64(max(1, now.UnixMilli())) }

// notePlanned notes in the bucket schedules that something was planned now.
func (tx *Tx) notePlanned(schedules *bbolt.Bucket) error {
	return schedules.SetSequence(max(schedules.Sequence(), planTime(tx.t.now())))
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

func dueOf(key []byte) time.Time { return time.UnixMilli(int64(binary.BigEndian.Uint64(key))) }
