package fsck

import (
	"bytes"
	"fmt"

	"thread/index"
	"thread/internal/store"
	"thread/internal/store/bolt/disk"
)

// The checks of single records, in the order in which the buckets are visited:
// series, columns, events, subscriptions, progress.

func (c *checker) column(e *disk.Element) {
	b, err := index.DecodeBlock(bytes.Clone(e.Key), bytes.Clone(e.Value))
	if err != nil {
		c.faultf(fmt.Sprintf("column block %x", e.Key), "%v", err)
		return
	}
	if b.Last > c.st.Head && b.Last <= c.pages.now.Head {
		c.pages.over = c.pages.sliced // complete since the check began; its events are the tail of then
		return
	}
	if b.Last > c.st.Head {
		c.note(fmt.Sprintf("column block %d", b.First), "was left by a batch that did not end; the next push clears it")
		return
	}
	if n := len(c.blocks); n > 0 && b.First <= c.blocks[n-1].Last {
		c.faultf(fmt.Sprintf("column block %d", b.First), "overlaps the one before")
	}
	c.blocks = append(c.blocks, b)
}

// event checks a group of events.
func (c *checker) event(e *disk.Element) {
	id, err := disk.EventID(e.Key)
	if err != nil || id <= 0 {
		c.report.Events++
		c.faultf(fmt.Sprintf("event key %x", e.Key), "is not an id")
		return
	}
	g, err := disk.OpenGroup(e.Key, e.Value)
	sound := err == nil
	if !sound {
		g, err = disk.OpenUnchecked(e.Key, e.Value)
	}
	last := id
	for err == nil {
		var r disk.Record
		var more bool
		if more, err = g.Next(&r); !more {
			break
		}
		if last = g.ID; sound {
			c.oneEvent(g.ID, &r)
		} else {
			c.oneEvent(g.ID, nil)
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

// oneEvent checks an event; r is nil when it is damaged.
func (c *checker) oneEvent(id int64, r *disk.Record) {
	if id > c.st.Head && id <= c.pages.now.Head {
		c.pages.over = c.pages.sliced // pushed since the check began
		return
	}
	c.report.Events++
	c.pages.far.Tell("checking events", c.report.Events, c.st.Stored)
	place := fmt.Sprintf("event %d", id)
	if id > c.st.Head {
		if c.beyond++; c.beyond == 1 {
			c.note(place, "and what follows was left by a batch that did not end; the next push clears it")
		}
		return
	}
	if id <= c.lastID {
		c.faultf(place, "comes after event %d", c.lastID)
		return
	}
	if c.lastID == 0 {
		c.oldestID = id
	}
	c.lastID = id
	c.inColumn(id, r)
	if r == nil {
		return
	}
	if first := c.series.of.Get(r.Series).first; first == 0 {
		c.faultf(place, "belongs to series %d, which is missing", r.Series)
	} else if first > id {
		c.faultf(place, "is older than the first event %d of its series %d", first, r.Series)
	}
	if r.Pieces {
		c.contents = append(c.contents, largeContent{id: id, Assembly: disk.Assembly{Size: r.Size, Want: r.Sum}})
	}
}

// piece checks a piece of a content. They come in the order of the events.
func (c *checker) piece(e *disk.Element) {
	id, n, crc, ok := disk.SplitPieceKey(e.Key, e.Value)
	if !ok {
		c.faultf(fmt.Sprintf("piece %x", e.Key), "is damaged: its checksum does not fit")
		return
	}
	if id > c.st.Head {
		c.pages.over = c.pages.sliced // newer, or noted with the event
		return
	}
	c.contentsBefore(id)
	if len(c.contents) == 0 || c.contents[0].id != id {
		c.faultf(fmt.Sprintf("piece %x", e.Key), "is of event %d, which has none", id)
		return
	}
	if !c.contents[0].Add(n, crc, len(e.Value)) {
		c.faultf(fmt.Sprintf("event %d", id), "piece %d of its content does not follow the one before", n)
	}
}

// contentsBefore checks whether the contents of events before id were whole.
func (c *checker) contentsBefore(id int64) {
	for ; len(c.contents) > 0 && c.contents[0].id < id; c.contents = c.contents[1:] {
		if l := &c.contents[0]; !l.Whole() {
			c.faultf(fmt.Sprintf("event %d", l.id), "its content is not whole: %d of %d bytes are there", l.Have, l.Size)
		}
	}
}

// inColumn compares the next visible event with the column. r is nil when it is
// damaged.
func (c *checker) inColumn(id int64, r *disk.Record) {
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
		case b.Series(c.inBlock) != r.Series:
			c.faultf(place, "is of series %d, but the column says %d", r.Series, b.Series(c.inBlock))
		case b.Times.Known() && (r.Verbatim != nil || b.Times.Miss(r.At, r.At)):
			c.fault(place, "has a created_at outside of what the column says")
		}
		c.inBlock++
		return
	}
	c.tail++
	c.tailIDs = append(c.tailIDs, id)
}

func (c *checker) totals() {
	c.seriesTotals()
	for ; c.block < len(c.blocks); c.block, c.inBlock = c.block+1, 0 {
		for b := &c.blocks[c.block]; c.inBlock < b.Count; c.inBlock++ {
			c.faultf(fmt.Sprintf("event %d", b.ID(c.inBlock)), "is in the column but not in the database")
		}
	}
	if c.tail != c.st.Tail {
		c.faultf("bucket meta", "%d events lie behind the last column block, the state says %d", c.tail, c.st.Tail)
	}
	stored := c.tail
	for i := range c.blocks {
		stored += int64(c.blocks[i].Count)
	}
	if stored != c.st.Stored {
		c.faultf("bucket meta", "%d events are there, the state says %d", stored, c.st.Stored)
	}
	if c.lastID != c.st.Head && c.st.Stored > 0 {
		c.faultf("bucket meta", "the newest event is %d, the state says %d", c.lastID, c.st.Head)
	}
}

func (c *checker) subscription(e *disk.Element) {
	s, err := store.DecodeSubscription(e.Key, e.Value)
	if err != nil {
		c.faultf(fmt.Sprintf("subscription %q", e.Key), "the record is damaged: its checksum does not fit")
		return
	}
	if err := c.ordinal(s); err != nil {
		c.faultf(fmt.Sprintf("subscription %q", s.Consumer), "%v", err)
	}
}

// ordinal returns an error for a place in the order that is another subscription's.
func (c *checker) ordinal(s *store.Subscription) (err error) {
	if c.ordinals == nil {
		c.ordinals = make(map[uint64]string)
	}
	if other, taken := c.ordinals[s.Ordinal]; taken {
		err = fmt.Errorf("has the place of %q in the order", other)
	}
	c.ordinals[s.Ordinal] = s.Consumer
	return err
}

func (c *checker) progress(e *disk.Element) {
	p, err := store.DecodeProgress(e.Key, e.Value)
	switch {
	case err != nil || len(e.Key) == 0:
		c.faultf(fmt.Sprintf("progress %q", e.Key), "the record is damaged: its checksum does not fit")
	case p.LastAcked < 0 || p.Newest < 0 || p.Newest > c.pages.now.Head:
		c.faultf(fmt.Sprintf("progress %q", e.Key), "was made at event %d, but the newest is %d", p.Newest, c.pages.now.Head)
	}
}
