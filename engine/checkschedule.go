package engine

import (
	"fmt"

	"thread/index"
)

// scheduled looks at a record of the bucket scheduled.
func (c *checker) scheduled(e *element) {
	place := fmt.Sprintf("scheduled entry %x", e.key)
	f, err := decodeFields(e.key, e.value)
	switch {
	case err != nil || len(e.key) != scheduledKeyBytes:
		c.fault(place, "the record is damaged: its checksum does not fit")
	case f.schedule():
		if c.entries == nil {
			c.entries = make(map[string]string)
		}
		c.entries[string(e.key)] = f[fieldSchedule]
	}
}

// schedule looks at a record of the bucket schedules, which comes later.
func (c *checker) schedule(e *element) {
	place := fmt.Sprintf("schedule %q", e.key)
	s, next, err := decodeSchedule(e.key, e.value)
	if err != nil {
		c.fault(place, "the record is damaged: its checksum does not fit")
		return
	}
	if c.entries[string(next)] != s.Name {
		c.fault(place, "has no entry in bucket scheduled")
	}
	delete(c.entries, string(next))
}

// orphanEntries is called after both.
func (c *checker) orphanEntries() {
	for key, name := range c.entries {
		c.faultf(fmt.Sprintf("scheduled entry %x", key), "is of schedule %q, which is missing", name)
	}
}

// soundSchedules takes what is damaged out of the extras: one record of what is
// due would keep everybody from writing. The entries of schedules are made anew
// from the schedules.
func (s *salvage) soundSchedules() {
	queue := []string{string(bucketScheduled)}
	var last uint64 // the highest sequence number in use
	var sound []Extra
	for _, x := range s.extras {
		switch {
		case x.Bucket[0] == queue[0] && x.Key == nil:
			last = max(last, x.Sequence)
		case x.Bucket[0] == queue[0]:
			f, err := decodeFields(x.Key, x.Value)
			if err != nil || len(x.Key) != scheduledKeyBytes {
				s.problem("scheduled entry %x: the record is damaged", x.Key)
				continue
			}
			if last = max(last, sequenceOf(x.Key)); !f.schedule() {
				sound = append(sound, x)
			}
		case x.Bucket[0] == string(bucketSchedules) && x.Key != nil:
			schedule, next, err := decodeSchedule(x.Key, x.Value)
			if err != nil {
				s.problem("schedule %q: the record is damaged", x.Key)
				continue
			}
			last = max(last, sequenceOf(next))
			entry := index.AppendSum(appendField(nil, fieldSchedule, schedule.Name), next)
			sound = append(sound, x, Extra{Bucket: queue, Key: next, Value: entry})
		default:
			sound = append(sound, x)
		}
	}
	if s.extras = sound; last > 0 {
		s.extras = append(s.extras, Extra{Bucket: queue, Sequence: last})
	}
}
