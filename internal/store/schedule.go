package store

import (
	"encoding/binary"
	"fmt"
	"time"

	"thread/event"
	"thread/internal/store/rec"
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
//
// The tags of the fields are the fields of walkDraft, 5 schedule, 6 spec, 7 next, 10 since.
const scheduledKeyBytes = 16

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

func (s *ScheduledEntry) walk(w *rec.Walk) {
	if s.Repeats = w.Has(5, s.Repeats); s.Repeats {
		w.Must(5, &s.Schedule)
		return
	}
	walkDraft(w, &s.Draft)
	w.Time(10, &s.Since)
}

// Encode returns the record for key.
func (s *ScheduledEntry) Encode(key []byte) []byte { return rec.Encode(key, s.walk) }

// DecodeScheduled reads a record; ErrCorrupt if it is not valid. Whether the key is
// one is not read.
func DecodeScheduled(key, value []byte) (s ScheduledEntry, err error) {
	return s, decode("schedule record %x", key, value, s.walk)
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

func (s *Schedule) walk(w *rec.Walk) {
	next := string(s.Next)
	walkDraft(w, &s.Draft)
	w.Must(6, &s.Spec)
	w.Must(7, &next)
	s.Next = []byte(next)
}

// Encode returns the record.
func (s *Schedule) Encode() []byte { return rec.Encode(ScheduleKey(s.Name), s.walk) }

// DecodeSchedule reads a record; ErrCorrupt if it is not valid.
func DecodeSchedule(key, value []byte) (s Schedule, err error) {
	if err := decode("schedule record %x", key, value, s.walk); err != nil {
		return s, err
	}
	if len(key) < 2 || len(s.Next) != scheduledKeyBytes {
		return s, fmt.Errorf("%w: schedule %q", ErrCorrupt, key)
	}
	s.Name = string(key[1:])
	return s, nil
}

func walkDraft(w *rec.Walk, d *event.Draft) {
	w.Must(1, &d.Source)
	w.Must(2, &d.Type)
	w.Opt(3, &d.Subtype)
	if w.Has(8, d.DedupeKey != "") {
		w.Must(8, &d.DedupeKey)
		window := uint64(d.DedupeWindow)
		w.Uint(9, &window)
		d.DedupeWindow = time.Duration(window)
	}
	w.Must(4, &d.Content)
}
