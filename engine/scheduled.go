package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/robfig/cron/v3"

	"thread/event"
	"thread/internal/store"
)

// What is to be pushed later is kept apart from the events, and gets its id when
// it falls due, so that ids stay in the order of delivery and progress means what
// it always does. It is released by the first transaction after its time, in any
// process: a write releases before it does anything else, and a read that finds
// something due has it released before it reads.
//
// See package store for the records.

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

// A clock may have been ahead, by years where a host begins without one, when the
// next time of a schedule or the time of a delay was computed. Nothing waits for
// that time: once the clock is set back, what waits is planned again, so that no
// schedule is later than its next time from now, and no delay longer than it was
// from now. An event for a time of day (PushAt) waits for that time by any clock.

// maxReplanned bounds what one transaction plans again. The next one continues.
const maxReplanned = 10000

// replan plans again what was planned by a clock that was ahead of now.
func (tx *Tx) replan(now time.Time) error {
	type move struct {
		key   []byte
		entry store.ScheduledEntry
		at    time.Time
	}
	var moves []move // collected first: a cursor is not to be trusted while its bucket changes
	size := 0
	err := tx.eachScheduled(func(key, value []byte) (bool, error) {
		e, err := store.DecodeScheduled(key, value)
		at := store.DueOf(key)
		if err == nil {
			at, err = tx.latest(&e, at, now)
		}
		if errors.Is(err, ErrCorrupt) {
			return true, nil // it keeps no process from writing before it is due
		}
		if err != nil {
			return false, err
		}
		if at.Before(store.DueOf(key)) {
			moves = append(moves, move{bytes.Clone(key), e, at})
			size += len(e.Draft.Content)
		}
		return len(moves) < maxReplanned && size < maxReleasedBytes, nil
	})
	if err != nil {
		return err
	}
	for _, m := range moves {
		if err := tx.s.Delete(store.Scheduled, m.key); err != nil {
			return err
		}
		if m.entry.Repeats {
			s, err := tx.scheduleNamed(m.entry.Schedule)
			if err != nil {
				return err
			}
			if err = tx.putSchedule(&s, m.at); err != nil {
				return err
			}
			continue
		}
		key := store.ScheduledKey(m.at, store.SequenceOf(m.key)) // it keeps its id
		m.entry.Since = now
		if err := tx.s.Put(store.Scheduled, key, m.entry.Encode(key)); err != nil {
			return err
		}
	}
	if len(moves) == maxReplanned || size >= maxReleasedBytes {
		return nil // there may be more
	}
	return tx.s.SetSequence(store.Schedules, planTime(now))
}

// latest returns the latest time at which a clock that was never wrong can have
// planned an entry, due itself if that is not earlier.
func (tx *Tx) latest(e *store.ScheduledEntry, due, now time.Time) (time.Time, error) {
	if !e.Repeats {
		if !e.Since.IsZero() && e.Since.After(now) {
			return now.Add(due.Sub(e.Since)), nil
		}
		return due, nil
	}
	s, err := tx.scheduleNamed(e.Schedule)
	if err != nil {
		return due, err
	}
	times, _, err := parseSpec(s.Spec)
	if err != nil {
		return due, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	// A time of day that has come once is not repeated because a clock was
	// corrected by a little. An interval knows no time of day.
	skew := clockSkew
	if _, every := times.(cron.ConstantDelaySchedule); every {
		skew = planSkew
	}
	if next := times.Next(now.Add(skew)); next.IsZero() || !next.Before(due) {
		return due, nil
	}
	return times.Next(now), nil
}

// scheduleNamed returns the schedule of a queue entry.
func (tx *Tx) scheduleNamed(name string) (s store.Schedule, err error) {
	key := store.ScheduleKey(name)
	v, err := tx.s.Get(store.Schedules, key)
	if err != nil {
		return s, err
	}
	if v == nil {
		return s, fmt.Errorf("%w: no schedule %q", ErrCorrupt, name)
	}
	return store.DecodeSchedule(key, v)
}

// The bounds of what one transaction releases. The first is a variable for the tests.
var maxReleased = 10000

const maxReleasedBytes = 32 << 20

// releases says that this build attends to what is scheduled.
const releases = true

// release pushes what has fallen due, in the order of time, as much as fits into
// one transaction. It returns the source of the last event, and whether there was
// one.
func (tx *Tx) release() (source string, released bool, err error) {
	if overdue, err := tx.overdue(); !overdue || err != nil {
		return "", false, err
	}
	now := tx.now()
	if back, err := tx.setBack(now); err != nil {
		return "", false, err
	} else if back {
		if err := tx.replan(now); err != nil {
			return "", false, err
		}
	}
	createdAt := event.FormatTime(now)
	type entry struct {
		key []byte
		store.ScheduledEntry
	}
	var due []entry // collected first: a cursor is not to be trusted while its bucket changes
	size := 0
	if err := tx.eachScheduled(func(key, value []byte) (bool, error) {
		if store.DueOf(key).After(now) {
			return false, nil
		}
		e, err := store.DecodeScheduled(key, value)
		if err != nil {
			return false, err
		}
		due = append(due, entry{bytes.Clone(key), e})
		size += len(e.Draft.Content)
		return len(due) < maxReleased && size < maxReleasedBytes, nil
	}); err != nil {
		return "", false, err
	}
	for _, e := range due {
		d := e.Draft
		if e.Repeats {
			if d, err = tx.repeat(e.Schedule, store.DueOf(e.key), now); err != nil {
				return "", false, err
			}
		}
		if err := tx.s.Delete(store.Scheduled, e.key); err != nil {
			return "", false, err
		}
		if _, _, err := tx.pushOnce(&d, createdAt); err != nil {
			return "", false, err
		}
		source = d.Source
	}
	return source, len(due) > 0, nil
}

// repeat returns the event of a schedule that was due and puts its next time into
// the queue. A schedule that names no further time is removed.
func (tx *Tx) repeat(name string, due, now time.Time) (d event.Draft, err error) {
	s, err := tx.scheduleNamed(name)
	if err != nil {
		return d, err
	}
	spec, _, err := parseSpec(s.Spec)
	if err != nil {
		return d, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	next := spec.Next(due)
	if !next.IsZero() && !next.After(now) {
		next = spec.Next(now) // missed ones are made up for by this one
	}
	if next.IsZero() {
		return s.Draft, tx.s.Delete(store.Schedules, store.ScheduleKey(name))
	}
	return s.Draft, tx.putSchedule(&s, next)
}
