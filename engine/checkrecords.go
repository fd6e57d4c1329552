package engine

import (
	"bytes"
	"fmt"

	"thread/index"
)

// The checks of single records, in the order in which the buckets are visited:
// series, columns, events, subscriptions, progress.

func (c *checker) column(e *element) {
	b, err := index.DecodeBlock(bytes.Clone(e.key), bytes.Clone(e.value))
	if err != nil {
		c.faultf(fmt.Sprintf("column block %x", e.key), "%v", err)
		return
	}
	if b.Last > c.st.head && b.Last <= c.pages.now.head {
		c.pages.over = c.pages.sliced // complete since the check began; its events are the tail of then
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

// event looks at a group of events.
func (c *checker) event(e *element) {
	id, err := eventID(e.key)
	if err != nil || id <= 0 {
		c.report.Events++
		c.faultf(fmt.Sprintf("event key %x", e.key), "is not an id")
		return
	}
	g, err := openGroup(e.key, e.value)
	sound := err == nil
	if !sound {
		g, err = openUnchecked(e.key, e.value)
	}
	last := id
	for err == nil {
		var r record
		var more bool
		if more, err = g.next(&r); !more {
			break
		}
		if last = g.id; sound {
			c.oneEvent(g.id, &r)
		} else {
			c.oneEvent(g.id, nil)
		}
	}
	switch {
	case sound && err == nil:
	case last == id:
		c.fault(fmt.Sprintf("event %d", id), "the record is damaged: its checksum does not fit")
	default:
		c.fault(fmt.Sprintf("events %d to %d", id, last), "the record that holds them is damaged: its checksum does not fit")
	}
}

// oneEvent looks at an event; r is nil when it is damaged.
func (c *checker) oneEvent(id int64, r *record) {
	if id > c.st.head && id <= c.pages.now.head {
		c.pages.over = c.pages.sliced // pushed since the check began
		return
	}
	c.report.Events++
	place := fmt.Sprintf("event %d", id)
	if id > c.st.head {
		if c.beyond++; c.beyond == 1 {
			c.note(place, "and what follows was left by a batch that did not end; the next push clears it")
		}
		return
	}
	if id <= c.lastID {
		c.faultf(place, "comes after event %d", c.lastID)
		return
	}
	c.lastID = id
	c.inColumn(id, r)
	if r == nil {
		return
	}
	if first := c.series.of.Get(r.series).first; first == 0 {
		c.faultf(place, "belongs to series %d, which is missing", r.series)
	} else if first > id {
		c.faultf(place, "is older than the first event %d of its series %d", first, r.series)
	}
	if r.pieces {
		c.contents = append(c.contents, largeContent{id: id, assembly: assembly{size: r.size, want: r.sum}})
	}
}

// largeContent is one whose pieces are looked for.
type largeContent struct {
	id int64
	assembly
}

// piece looks at a piece of a content. They come in the order of the events.
func (c *checker) piece(e *element) {
	id, n, crc, ok := splitPieceKey(e.key, e.value)
	if !ok {
		c.faultf(fmt.Sprintf("piece %x", e.key), "is damaged: its checksum does not fit")
		return
	}
	if id > c.st.head {
		c.pages.over = c.pages.sliced // newer, or noted with the event
		return
	}
	c.contentsBefore(id)
	if len(c.contents) == 0 || c.contents[0].id != id {
		c.faultf(fmt.Sprintf("piece %x", e.key), "is of event %d, which has none", id)
		return
	}
	if !c.contents[0].add(n, crc, len(e.value)) {
		c.faultf(fmt.Sprintf("event %d", id), "piece %d of its content does not follow the one before", n)
	}
}

// contentsBefore looks whether the contents of events before id were whole.
func (c *checker) contentsBefore(id int64) {
	for ; len(c.contents) > 0 && c.contents[0].id < id; c.contents = c.contents[1:] {
		if l := &c.contents[0]; !l.whole() {
			c.faultf(fmt.Sprintf("event %d", l.id), "its content is not whole: %d of %d bytes are there", l.have, l.size)
		}
	}
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
	c.seriesTotals()
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
	case p.LastAcked < 0 || p.Newest < 0 || p.Newest > c.pages.now.head:
		c.faultf(fmt.Sprintf("progress %q", e.key), "was made at event %d, but the newest is %d", p.Newest, c.pages.now.head)
	}
}
