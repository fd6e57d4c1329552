package engine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"

	"thread/event"
	"thread/index"
	"thread/internal/planted"
)

// releases says that this build attends to what is scheduled.
const releases = true

// schedule puts an entry with these fields into the queue.
func (tx *Tx) schedule(at time.Time, fields []byte) (key []byte, err error) {
	b, err := tx.later(bucketScheduled)
	if err != nil {
		return nil, err
	}
	seq, err := b.NextSequence()
	if err != nil {
		return nil, err
	}
	key = binary.BigEndian.AppendUint64(nil, uint64(at.UnixMilli()))
	key = binary.BigEndian.AppendUint64(key, seq)
	return key, index.Put(b, key, index.AppendSum(fields, key))
}

// putSchedule stores s with its next time.
func (tx *Tx) putSchedule(s *Schedule, next time.Time) error {
	key, err := tx.schedule(next, appendField(nil, fieldSchedule, s.Name))
	if err != nil {
		return err
	}
	v := draftFields(&s.Draft)
	v = appendField(v, fieldSpec, s.Spec)
	v = appendField(v, fieldNext, string(key))
	name := scheduleKey(s.Name)
	b := tx.b.Bucket(bucketSchedules)
	if err := index.Put(b, name, index.AppendSum(v, name)); err != nil {
		return err
	}
	return tx.notePlanned(b)
}

// release pushes what has fallen due, in the order of time, as much as fits into
// one transaction. It returns the source of the last event, and whether there was
// one.
func (tx *Tx) release() (source string, released bool, err error) {
	if overdue, err := tx.overdue(); !overdue || err != nil {
		return "", false, err
	}
	now := tx.t.now()
	if back, err := tx.setBack(now); err != nil {
		return "", false, err
	} else if back {
		if err := tx.replan(now); err != nil {
			return "", false, err
		}
	}
	createdAt := event.FormatTime(now)
	type entry struct {
		key    []byte
		fields fields
	}
	var due []entry // collected first: a cursor is not to be trusted while its bucket changes
	size := 0
	if err := tx.eachScheduled(func(key, value []byte) (bool, error) {
		if dueOf(key).After(now) {
			return false, nil
		}
		f, err := decodeFields(key, value)
		if err != nil {
			return false, err
		}
		due = append(due, entry{bytes.Clone(key), f})
		size += len(f[fieldContent])
		return len(due) < tx.t.maxGroup && size < maxGroupBytes, nil
	}); err != nil {
		return "", false, err
	}
	for _, e := range due {
		d := draftOf(e.fields)
		if e.fields.schedule() {
			if d, err = tx.repeat(e.fields[fieldSchedule], dueOf(e.key), now); err != nil {
				return "", false, err
			}
		}
		if planted.Bug("release in two transactions") { // see forgetDue
		} else if err := index.Delete(tx.b.Bucket(bucketScheduled), e.key); err != nil {
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
		return s.Draft, index.Delete(tx.b.Bucket(bucketSchedules), scheduleKey(name))
	}
	return s.Draft, tx.putSchedule(&s, next)
}
