//go:build !noserve

package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"thread/event"
	"thread/index"
	"thread/internal/planted"
)

// releases says that this build attends to what is scheduled.
const releases = true

var cronParser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// parseSpec returns the times of a spec.
func parseSpec(spec string) (cron.Schedule, error) {
	if strings.Contains(spec, "TZ=") {
		return nil, invalidf("schedule %q: a time zone cannot be given", spec)
	}
	if every, ok := strings.CutPrefix(spec, "@every "); ok {
		// The parser makes whole seconds, and at least one, of any duration.
		d, err := time.ParseDuration(every)
		if err == nil && (d < time.Second || d%time.Second != 0) {
			return nil, invalidf("schedule %q: the duration is not a number of whole seconds from 1s", spec)
		}
	}
	s, err := cronParser.Parse(spec)
	if err != nil {
		return nil, invalidf("schedule %q: %v", spec, err)
	}
	return s, nil
}

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
	v := appendDraftFields(nil, &s.Draft)
	v = appendField(v, fieldSpec, s.Spec)
	v = appendField(v, fieldNext, string(key))
	name := scheduleKey(s.Name)
	return index.Put(tx.b.Bucket(bucketSchedules), name, index.AppendSum(v, name))
}

// release pushes what has fallen due, in the order of time, as much as fits into
// one transaction. It returns the source of the last event, and whether there was
// one.
func (tx *Tx) release() (source string, released bool, err error) {
	if overdue, err := tx.overdue(); !overdue || err != nil {
		return "", false, err
	}
	now := tx.t.now()
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
	key := scheduleKey(name)
	b, err := index.Bucket(tx.b, bucketSchedules)
	if b == nil {
		return d, errors.Join(err, fmt.Errorf("%w: no schedule %q", ErrCorrupt, name))
	}
	v, err := index.Get(b, key)
	if err != nil {
		return d, err
	}
	s, _, err := decodeSchedule(key, v)
	if err != nil {
		return d, err
	}
	spec, err := parseSpec(s.Spec)
	if err != nil {
		return d, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	next := spec.Next(due)
	if !next.IsZero() && !next.After(now) {
		next = spec.Next(now) // missed ones are made up for by this one
	}
	if next.IsZero() {
		return s.Draft, index.Delete(b, key)
	}
	return s.Draft, tx.putSchedule(&s, next)
}
