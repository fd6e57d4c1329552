package engine

import (
	"bytes"
	"fmt"
	"time"

	"thread/event"
	"thread/internal/store"
)

// The bounds of what one transaction releases. The first is a variable for the tests.
var maxReleased = 10000

const maxReleasedBytes = 32 << 20

// releases says that this build attends to what is scheduled.
const releases = true

// schedule puts an entry into the queue.
func (tx *Tx) schedule(at time.Time, entry *store.ScheduledEntry) (key []byte, err error) {
	seq, err := tx.s.Sequence(store.Scheduled)
	if err != nil {
		return nil, err
	}
	if err = tx.s.SetSequence(store.Scheduled, seq+1); err != nil {
		return nil, err
	}
	key = store.ScheduledKey(at, seq+1)
	return key, tx.s.Put(store.Scheduled, key, entry.Encode(key))
}

// putSchedule stores s with its next time.
func (tx *Tx) putSchedule(s *store.Schedule, next time.Time) (err error) {
	if s.Next, err = tx.schedule(next, &store.ScheduledEntry{Schedule: s.Name, Repeats: true}); err != nil {
		return err
	}
	if err := tx.s.Put(store.Schedules, store.ScheduleKey(s.Name), s.Encode()); err != nil {
		return err
	}
	return tx.notePlanned()
}

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
