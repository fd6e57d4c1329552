package engine

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/robfig/cron/v3"

	"thread/internal/store"
)

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
