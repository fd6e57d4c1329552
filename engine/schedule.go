package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"thread/event"
	"thread/index"
)

const (
	fieldSource   = 1
	fieldType     = 2
	fieldSubtype  = 3
	fieldContent  = 4
	fieldSchedule = 5
	fieldSpec     = 6
	fieldNext     = 7  // 16 bytes
	fieldKey      = 8  // dedupe key
	fieldWindow   = 9  // 8 bytes, nanoseconds
	fieldSince    = 10 // 8 bytes, milliseconds since 1970
)

// Errors about schedules.
var (
	ErrScheduleExists = errors.New("schedule exists")
	ErrNoSchedule     = errors.New("no such schedule")
)

// Schedule pushes an event again and again.
//
// Times that pass while no process touches the thread are made up for by one
// event, however many they were; the next one comes at the first time of the
// schedule after that. No event is later than the first time of the schedule after
// now, by whatever clock it was planned: when the clock was ahead and is set back, the
// next time is computed anew. One that is set back by up to five minutes repeats no
// time of day; it postpones the next event until it shows its time.
type Schedule struct {
	Name string // valid UTF-8, 1 to event.MaxNameBytes bytes
	// Spec is a cron expression of five fields (minute, hour, day of month, month,
	// day of week, 0 and 7 are Sunday, in the local time of the process that computes
	// the next time), @hourly, @daily, @weekly, @monthly or @yearly, or @every and a
	// duration of whole seconds, at least 1 s, also in days (d) and weeks (w). It is
	// stored without 7, d and w, in other words for the same times.
	Spec  string
	Draft event.Draft
	Next  time.Time // set by Schedules and AddSchedule
}

// Delayed is an event that is to be pushed once.
type Delayed struct {
	At    time.Time
	Draft event.Draft
}

// PushAt stores an event that gets its id, and is seen by consumers, at the given
// time or at the first use of the thread after it. It is durable when PushAt
// returns nil. A time that is over is now; e is the event then, and otherwise
// has the id 0.
//
// The errors are those of Push; ErrInvalid also for a time before 1970 or after
// the year 9999.
func (t *Thread) PushAt(ctx context.Context, d event.Draft, at time.Time) (e event.Event, err error) {
	if err := d.Validate(); err != nil {
		return e, err
	}
	if at.UnixMilli() < 0 || at.UTC().Year() > 9999 {
		return e, invalidf("time %v is out of range", at)
	}
	err = t.Update(ctx, func(tx *Tx) error {
		if !at.After(tx.t.now()) {
			e, err = tx.Push(d)
			return err
		}
		_, err := tx.schedule(at, draftFields(&d))
		return err
	})
	return e, err
}

// PushAfter is PushAt for a time from now, and returns that time. The event comes
// no later than that long from now by any clock: one that was ahead, and is set
// back meanwhile, makes the delay begin anew.
func (t *Thread) PushAfter(ctx context.Context, d event.Draft, delay time.Duration) (e event.Event, at time.Time, err error) {
	if err := d.Validate(); err != nil {
		return e, at, err
	}
	err = t.Update(ctx, func(tx *Tx) error {
		now := tx.t.now()
		if at = now.Add(delay); delay <= 0 {
			e, err = tx.Push(d)
			return err
		}
		if now.UnixMilli() < 0 || at.UTC().Year() > 9999 {
			return invalidf("time %v is out of range", at)
		}
		b, err := tx.later(bucketSchedules)
		if err == nil {
			err = tx.notePlanned(b)
		}
		if err == nil {
			_, err = tx.schedule(at, appendSince(draftFields(&d), now))
		}
		return err
	})
	return e, at, err
}

// AddSchedule stores a schedule and returns the time of its first event. It
// returns ErrScheduleExists for a name that is taken, and ErrInvalid for a spec
// that is none or names no time at all, and for a draft out of bounds.
func (t *Thread) AddSchedule(ctx context.Context, s Schedule) (next time.Time, err error) {
	spec, stored, err := parseSpec(s.Spec)
	if err != nil {
		return next, err
	}
	given := s.Spec
	s.Spec = stored
	if err := s.Draft.Validate(); err != nil {
		return next, err
	}
	if s.Name == "" || len(s.Name) > event.MaxNameBytes || !utf8.ValidString(s.Name) {
		return next, invalidf("the name of a schedule is UTF-8 of 1 to %d bytes", event.MaxNameBytes)
	}
	err = t.Update(ctx, func(tx *Tx) error {
		b, err := tx.later(bucketSchedules)
		if err != nil {
			return err
		}
		v, err := index.Get(b, scheduleKey(s.Name))
		if err != nil {
			return err
		}
		if v != nil {
			return fmt.Errorf("%w: %q", ErrScheduleExists, s.Name)
		}
		if next = spec.Next(t.now()); next.IsZero() {
			return invalidf("schedule %q names no time", given)
		}
		return tx.putSchedule(&s, next)
	})
	return next, err
}

// RemoveSchedule removes a schedule; the events that it pushed stay. It returns
// ErrNoSchedule when there is none of that name.
func (t *Thread) RemoveSchedule(ctx context.Context, name string) error {
	return t.Update(ctx, func(tx *Tx) error {
		b, err := index.Bucket(tx.b, bucketSchedules)
		if err != nil {
			return err
		}
		var v []byte
		if b != nil {
			v, err = index.Get(b, scheduleKey(name))
		}
		if v == nil {
			return errors.Join(err, fmt.Errorf("%w: %q", ErrNoSchedule, name))
		}
		_, next, err := decodeSchedule(scheduleKey(name), v)
		if err != nil {
			return err
		}
		if err := index.Delete(tx.b.Bucket(bucketScheduled), next); err != nil {
			return err
		}
		return index.Delete(b, scheduleKey(name))
	})
}

// Schedules returns all schedules by name.
func (t *Thread) Schedules(ctx context.Context) (list []Schedule, err error) {
	err = t.read(ctx, func(tx *Tx) error {
		list = nil
		b, err := index.Bucket(tx.b, bucketSchedules)
		if b == nil {
			return err
		}
		return index.Range(b, nil, func(k, v []byte) (bool, error) {
			s, _, err := decodeSchedule(k, v)
			list = append(list, s)
			return true, err
		})
	})
	return list, err
}

// Delayed returns the events that wait for their time, in that order, at most
// limit, or all for limit 0.
func (t *Thread) Delayed(ctx context.Context, limit int) (list []Delayed, err error) {
	err = t.read(ctx, func(tx *Tx) error {
		list = nil
		return tx.eachScheduled(func(key, value []byte) (bool, error) {
			f, err := decodeFields(key, value)
			if err != nil {
				return false, err
			}
			if !f.schedule() {
				list = append(list, Delayed{At: dueOf(key), Draft: draftOf(f)})
			}
			return limit == 0 || len(list) < limit, nil
		})
	})
	return list, err
}

func scheduleKey(name string) []byte { return append([]byte{'n'}, name...) }

func sequenceOf(key []byte) uint64 { return binary.BigEndian.Uint64(key[8:]) }

func draftFields(d *event.Draft) (b []byte) {
	b = appendField(b, fieldSource, d.Source)
	b = appendField(b, fieldType, d.Type)
	if d.Subtype != nil {
		b = appendField(b, fieldSubtype, *d.Subtype)
	}
	if d.DedupeKey != "" {
		b = appendField(b, fieldKey, d.DedupeKey)
		b = appendField(b, fieldWindow, uint64Text(uint64(d.DedupeWindow)))
	}
	return appendField(b, fieldContent, d.Content)
}

// fields are those of a decoded value, by tag.
type fields map[uint64]string

// schedule reports whether they are those of a queue entry of a schedule.
func (f fields) schedule() bool {
	_, ok := f[fieldSchedule]
	return ok
}

func draftOf(f fields) event.Draft {
	d := event.Draft{Source: f[fieldSource], Type: f[fieldType], Content: f[fieldContent]}
	if s, ok := f[fieldSubtype]; ok {
		d.Subtype = &s
	}
	if d.DedupeKey = f[fieldKey]; len(f[fieldWindow]) == 8 {
		d.DedupeWindow = time.Duration(binary.BigEndian.Uint64([]byte(f[fieldWindow])))
	}
	return d
}

// decodeFields checks the crc of a value and returns its fields.
func decodeFields(key, value []byte) (fields, error) {
	b, ok := index.CheckSum(key, value)
	f := fields{}
	for ok && len(b) > 0 {
		tag, w := binary.Uvarint(b)
		n, w2 := binary.Uvarint(b[max(w, 0):])
		if ok = w > 0 && w2 > 0 && n <= uint64(len(b)-w-w2); ok {
			f[tag] = string(b[w+w2 : w+w2+int(n)])
			b = b[w+w2+int(n):]
		}
	}
	if !ok {
		return nil, fmt.Errorf("%w: schedule record %x", ErrCorrupt, key)
	}
	return f, nil
}

func decodeSchedule(key, value []byte) (s Schedule, next []byte, err error) {
	f, err := decodeFields(key, value)
	if err != nil {
		return s, nil, err
	}
	if len(key) < 2 || len(f[fieldNext]) != scheduledKeyBytes {
		return s, nil, fmt.Errorf("%w: schedule %q", ErrCorrupt, key)
	}
	next = []byte(f[fieldNext])
	return Schedule{Name: string(key[1:]), Spec: f[fieldSpec], Draft: draftOf(f), Next: dueOf(next)}, next, nil
}
