package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/robfig/cron/v3"

	"thread/index"
)

// A clock may have been ahead, by years where a host begins without one, when the
// next time of a schedule or the time of a delay was computed. Nothing waits for
// such a time: once the clock is set back, what waits is planned anew, so that no
// schedule is later than its next time from now, and no delay longer than it was
// from now. An event for a time of day (PushAt) waits for that time by any clock.

// maxReplanned bounds what one transaction plans anew. The next one goes on.
const maxReplanned = 10000

// replan plans anew what was planned by a clock that was ahead of now.
func (tx *Tx) replan(now time.Time) error {
	type move struct {
		key    []byte
		fields fields
		at     time.Time
	}
	var moves []move // collected first: a cursor is not to be trusted while its bucket changes
	size := 0
	err := tx.eachScheduled(func(key, value []byte) (bool, error) {
		f, err := decodeFields(key, value)
		at := dueOf(key)
		if err == nil {
			at, err = tx.latest(f, at, now)
		}
		if errors.Is(err, ErrCorrupt) {
			return true, nil // it keeps nobody from writing before it is due
		}
		if err != nil {
			return false, err
		}
		if at.Before(dueOf(key)) {
			moves = append(moves, move{bytes.Clone(key), f, at})
			size += len(f[fieldContent])
		}
		return len(moves) < maxReplanned && size < maxGroupBytes, nil
	})
	if err != nil {
		return err
	}
	for _, m := range moves {
		if err := index.Delete(tx.b.Bucket(bucketScheduled), m.key); err != nil {
			return err
		}
		if m.fields.schedule() {
			s, err := tx.scheduleNamed(m.fields[fieldSchedule])
			if err == nil {
				err = tx.putSchedule(&s, m.at)
			}
			if err != nil {
				return err
			}
			continue
		}
		d := draftOf(m.fields)
		if _, err := tx.schedule(m.at, appendSince(draftFields(&d), now)); err != nil {
			return err
		}
	}
	if len(moves) == maxReplanned || size >= maxGroupBytes {
		return nil // there may be more
	}
	return tx.b.Bucket(bucketSchedules).SetSequence(planTime(now))
}

// latest returns the latest time at which a clock that was never wrong can have
// planned an entry, due itself if that is not earlier.
func (tx *Tx) latest(f fields, due, now time.Time) (time.Time, error) {
	if !f.schedule() {
		if since, ok := sinceOf(f); ok && since.After(now) {
			return now.Add(due.Sub(since)), nil
		}
		return due, nil
	}
	s, err := tx.scheduleNamed(f[fieldSchedule])
	if err != nil {
		return due, err
	}
	times, _, err := parseSpec(s.Spec)
	if err != nil {
		return due, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	// A time of day that has come once does not come again because a clock was
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
func (tx *Tx) scheduleNamed(name string) (s Schedule, err error) {
	key := scheduleKey(name)
	b, err := index.Bucket(tx.b, bucketSchedules)
	if b == nil {
		return s, errors.Join(err, fmt.Errorf("%w: no schedule %q", ErrCorrupt, name))
	}
	v, err := index.Get(b, key)
	if err != nil {
		return s, err
	}
	s, _, err = decodeSchedule(key, v)
	return s, err
}

func appendSince(b []byte, since time.Time) []byte {
	return appendField(b, fieldSince, uint64Text(uint64(since.UnixMilli())))
}

func sinceOf(f fields) (since time.Time, ok bool) {
	if len(f[fieldSince]) != 8 {
		return since, false
	}
	return time.UnixMilli(int64(binary.BigEndian.Uint64([]byte(f[fieldSince])))), true
}
