package fsck

import (
	"fmt"

	"thread/internal/store"
)

// scheduled checks a record of the bucket scheduled.
func (c *checker) scheduled(key, value []byte) {
	place := fmt.Sprintf("scheduled entry %x", key)
	entry, err := store.DecodeScheduled(key, value)
	switch {
	case err != nil || !store.IsScheduledKey(key):
		c.fault(place, "the record is damaged: its checksum does not fit")
	case entry.Repeats:
		if c.entries == nil {
			c.entries = make(map[string]string)
		}
		c.entries[string(key)] = entry.Schedule
	}
}

// schedule checks a record of the bucket schedules, which comes later.
func (c *checker) schedule(key, value []byte) {
	place := fmt.Sprintf("schedule %q", key)
	s, err := store.DecodeSchedule(key, value)
	if err != nil {
		c.fault(place, "the record is damaged: its checksum does not fit")
		return
	}
	if c.entries[string(s.Next)] != s.Name {
		c.fault(place, "has no entry in bucket scheduled")
	}
	delete(c.entries, string(s.Next))
}

// orphanEntries is called after both.
func (c *checker) orphanEntries() {
	for key, name := range c.entries {
		c.faultf(fmt.Sprintf("scheduled entry %x", key), "is of schedule %q, which is missing", name)
	}
}

// soundSchedules takes what is damaged out of the extras: one record of what is
// due would keep everybody from writing. The entries of schedules are made again
// from the schedules.
func (s *salvage) soundSchedules() {
	queue := []string{string(store.Scheduled)}
	var last uint64 // the highest sequence number in use
	var sound []store.Extra
	for _, x := range s.extras {
		switch {
		case x.Bucket[0] == queue[0] && x.Key == nil:
			last = max(last, x.Sequence)
		case x.Bucket[0] == queue[0]:
			entry, err := store.DecodeScheduled(x.Key, x.Value)
			if err != nil || !store.IsScheduledKey(x.Key) {
				s.problem("scheduled entry %x: the record is damaged", x.Key)
				continue
			}
			if last = max(last, store.SequenceOf(x.Key)); !entry.Repeats {
				sound = append(sound, x)
			}
		case x.Bucket[0] == string(store.Schedules) && x.Key != nil:
			schedule, err := store.DecodeSchedule(x.Key, x.Value)
			if err != nil {
				s.problem("schedule %q: the record is damaged", x.Key)
				continue
			}
			last = max(last, store.SequenceOf(schedule.Next))
			entry := store.ScheduledEntry{Schedule: schedule.Name, Repeats: true}
			sound = append(sound, x, store.Extra{Bucket: queue, Key: schedule.Next, Value: entry.Encode(schedule.Next)})
		default:
			sound = append(sound, x)
		}
	}
	if s.extras = sound; last > 0 {
		s.extras = append(s.extras, store.Extra{Bucket: queue, Sequence: last})
	}
}
