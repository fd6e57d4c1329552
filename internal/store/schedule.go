package store

import (
	"encoding/binary"
	"fmt"
	"time"

	"thread/event"
	"thread/index"
)

// # What is scheduled
//
// scheduled, the queue in the order of time:
//
//	key    due   8  milliseconds since 1970, not negative
//	       seq   8  the table's sequence: equal times keep their order
//	value        a draft record, or a field schedule with the name of one
//
// schedules, what is repeated:
//
//	key    'n' and the name
//	value  a draft record with the fields spec and next, the key in scheduled
//
// A draft record of an event that is delayed, and not for a time of day, has a
// field since, the time from which its delay counts. The sequence of the table
// schedules is the latest time, in milliseconds since 1970, at which the clock
// was seen when something was planned from it; 0 for not known.
//
// Both values consist of fields, and end in a crc over key and value. Directories of
// older versions do not have these tables.
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

	scheduledKeyBytes = 16
)

// ScheduledKey is the key of an entry in table scheduled.
func ScheduledKey(due time.Time, seq uint64) []byte {
	key := binary.BigEndian.AppendUint64(nil, uint64(due.UnixMilli()))
	return binary.BigEndian.AppendUint64(key, seq)
}

// DueOf returns the time in a ScheduledKey.
func DueOf(key []byte) time.Time { return time.UnixMilli(int64(binary.BigEndian.Uint64(key))) }

// SequenceOf returns the number in a ScheduledKey.
func SequenceOf(key []byte) uint64 { return binary.BigEndian.Uint64(key[8:]) }

// IsScheduledKey reports whether key has the form of one.
func IsScheduledKey(key []byte) bool { return len(key) == scheduledKeyBytes }

// ScheduledEntry is an entry of table scheduled: what is to be pushed, or, if it is one of
// a schedule, its name.
type ScheduledEntry struct {
	Draft    event.Draft
	Schedule string // its name, if
	Repeats  bool
	Since    time.Time // from when a delay counts, zero for a time of day
}

// Encode returns the record for key.
func (s *ScheduledEntry) Encode(key []byte) []byte {
	var b []byte
	if s.Repeats {
		b = appendField(nil, fieldSchedule, s.Schedule)
	} else {
		b = draftFields(&s.Draft)
		if !s.Since.IsZero() {
			b = appendField(b, fieldSince, uint64Text(uint64(s.Since.UnixMilli())))
		}
	}
	return index.AppendSum(b, key)
}

// DecodeScheduled reads a record; ErrCorrupt if it is not valid. Whether the key is
// one is not read.
func DecodeScheduled(key, value []byte) (s ScheduledEntry, err error) {
	f, err := decodeFields(key, value)
	if err != nil {
		return s, err
	}
	if s.Schedule, s.Repeats = f[fieldSchedule]; s.Repeats {
		return s, nil
	}
	s.Draft = draftOf(f)
	if v := f[fieldSince]; len(v) == 8 {
		s.Since = time.UnixMilli(int64(binary.BigEndian.Uint64([]byte(v))))
	}
	return s, nil
}

// Schedule pushes an event again and again. Table schedules, by [ScheduleKey].
type Schedule struct {
	Name  string
	Spec  string
	Draft event.Draft
	Next  []byte // its key in table scheduled
}

// ScheduleKey is the key of a schedule.
func ScheduleKey(name string) []byte { return append([]byte{'n'}, name...) }

// Encode returns the record.
func (s *Schedule) Encode() []byte {
	b := draftFields(&s.Draft)
	b = appendField(b, fieldSpec, s.Spec)
	b = appendField(b, fieldNext, string(s.Next))
	return index.AppendSum(b, ScheduleKey(s.Name))
}

// DecodeSchedule reads a record; ErrCorrupt if it is not valid.
func DecodeSchedule(key, value []byte) (s Schedule, err error) {
	f, err := decodeFields(key, value)
	if err != nil {
		return s, err
	}
	if len(key) < 2 || len(f[fieldNext]) != scheduledKeyBytes {
		return s, fmt.Errorf("%w: schedule %q", ErrCorrupt, key)
	}
	return Schedule{Name: string(key[1:]), Spec: f[fieldSpec], Draft: draftOf(f), Next: []byte(f[fieldNext])}, nil
}

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

func draftOf(f map[uint64]string) event.Draft {
	d := event.Draft{Source: f[fieldSource], Type: f[fieldType], Content: f[fieldContent]}
	if s, ok := f[fieldSubtype]; ok {
		d.Subtype = &s
	}
	if d.DedupeKey = f[fieldKey]; len(f[fieldWindow]) == 8 {
		d.DedupeWindow = time.Duration(binary.BigEndian.Uint64([]byte(f[fieldWindow])))
	}
	return d
}

// decodeFields checks the crc of a value and returns its fields by tag.
func decodeFields(key, value []byte) (map[uint64]string, error) {
	b, ok := index.CheckSum(key, value)
	f := map[uint64]string{}
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
