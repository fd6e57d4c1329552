package engine

import (
	"bytes"
	"fmt"

	"thread/index"
)

// The checks of single records, in the order in which the buckets are visited:
// series, columns, events, subscriptions, progress.

func (c *checker) seriesByID(e *element) {
	id, ok := keyID(e.key)
	if !ok || int(id) != len(c.series)+1 {
		c.faultf(fmt.Sprintf("series key %x", e.key), "series ids are not without gaps")
	}
	s, err := index.DecodeSeries(id, e.value)
	if err != nil {
		c.faultf(fmt.Sprintf("series %d", id), "%v", err)
		return
	}
	if c.series == nil {
		c.series, c.byKey = make(map[uint32]*index.Series), make(map[string]uint32)
	}
	c.series[id] = &s
	c.byKey[string(index.SeriesKey(s.Source, s.Type, s.Subtype))] = id
}

func (c *checker) seriesByKey(e *element) {
	id, ok := keyID(e.value)
	if want, known := c.byKey[string(e.key)]; !ok || !known || want != id {
		c.faultf(fmt.Sprintf("series entry %q", e.key), "names series %d, which is another", id)
		return
	}
	delete(c.byKey, string(e.key)) // what is left has no entry
}

func (c *checker) column(e *element) {
	b, err := index.DecodeBlock(bytes.Clone(e.key), bytes.Clone(e.value))
	if err != nil {
		c.faultf(fmt.Sprintf("column block %x", e.key), "%v", err)
		return
	}
	if b.Last > c.st.head {
		c.note(fmt.Sprintf("column block %d", b.First), "was left by a batch that did not end; the next push clears it")
		return
	}
	if n := len(c.blocks); n > 0 && b.First <= c.blocks[n-1].Last {
		c.faultf(fmt.Sprintf("column block %d", b.First), "overlaps the one before")
	}
	c.blocks = append(c.blocks, b)
}

func (c *checker) event(e *element) {
	c.report.Events++
	id, err := eventID(e.key)
	if err != nil || id <= 0 {
		c.faultf(fmt.Sprintf("event key %x", e.key), "is not an id")
		return
	}
	place := fmt.Sprintf("event %d", id)
	r, err := decodeRecord(e.key, e.value)
	if err != nil {
		c.fault(place, "the record is damaged: its checksum does not fit")
	}
	if id > c.st.head {
		if id == c.st.head+1 {
			c.note(place, "and what follows was left by a batch that did not end; the next push clears it")
		}
		return
	}
	if c.lastID = id; err != nil {
		c.inColumn(id, nil)
		return
	}
	if s := c.series[r.series]; s == nil {
		c.faultf(place, "belongs to series %d, which is missing", r.series)
	} else if s.First > id {
		c.faultf(place, "is older than the first event %d of its series %d", s.First, r.series)
	}
	c.inColumn(id, &r)
}

// inColumn compares the next visible event with the column. r is nil when it is
// damaged.
func (c *checker) inColumn(id int64, r *record) {
	place := fmt.Sprintf("event %d", id)
	for c.block < len(c.blocks) {
		b := &c.blocks[c.block]
		if c.inBlock == b.Count {
			c.block, c.inBlock = c.block+1, 0
			continue
		}
		at := b.ID(c.inBlock)
		switch {
		case at < id:
			c.faultf(fmt.Sprintf("event %d", at), "is in the column but not in the database")
			c.inBlock++
			continue
		case at > id:
			c.fault(place, "is missing in the column")
			return
		case r == nil:
		case b.Series(c.inBlock) != r.series:
			c.faultf(place, "is of series %d, but the column says %d", r.series, b.Series(c.inBlock))
		case b.Times.Known() && (r.verbatim != nil || b.Times.Miss(r.at, r.at)):
			c.fault(place, "has a created_at outside of what the column says")
		}
		c.inBlock++
		return
	}
	c.tail++
}

func (c *checker) totals() {
	for _, id := range c.byKey {
		c.faultf(fmt.Sprintf("series %d", id), "has no entry in bucket series")
	}
	for ; c.block < len(c.blocks); c.block, c.inBlock = c.block+1, 0 {
		for b := &c.blocks[c.block]; c.inBlock < b.Count; c.inBlock++ {
			c.faultf(fmt.Sprintf("event %d", b.ID(c.inBlock)), "is in the column but not in the database")
		}
	}
	if c.tail != c.st.tail {
		c.faultf("bucket meta", "%d events lie behind the last column block, the state says %d", c.tail, c.st.tail)
	}
	stored := c.tail
	for i := range c.blocks {
		stored += int64(c.blocks[i].Count)
	}
	if stored != c.st.stored {
		c.faultf("bucket meta", "%d events are there, the state says %d", stored, c.st.stored)
	}
	if c.lastID != c.st.head && c.st.stored > 0 {
		c.faultf("bucket meta", "the newest event is %d, the state says %d", c.lastID, c.st.head)
	}
}

func (c *checker) subscription(e *element) {
	s, err := decodeSubscription(e.key, e.value)
	if err != nil {
		c.faultf(fmt.Sprintf("subscription %q", e.key), "the record is damaged: its checksum does not fit")
		return
	}
	if c.ordinals == nil {
		c.ordinals = make(map[uint64]string)
	}
	if other, taken := c.ordinals[s.ordinal]; taken {
		c.faultf(fmt.Sprintf("subscription %q", s.Consumer), "has the place of %q in the order", other)
	}
	c.ordinals[s.ordinal] = s.Consumer
}

func (c *checker) progress(e *element) {
	p, err := decodeProgress(e.key, e.value)
	switch {
	case err != nil || len(e.key) == 0:
		c.faultf(fmt.Sprintf("progress %q", e.key), "the record is damaged: its checksum does not fit")
	case p.LastAcked < 0 || p.Newest < 0 || p.Newest > c.st.head:
		c.faultf(fmt.Sprintf("progress %q", e.key), "was made at event %d, but the newest is %d", p.Newest, c.st.head)
	}
}
