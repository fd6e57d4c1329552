package fsck

import (
	"bytes"
	"fmt"
	"hash/maphash"

	"thread/index"
	"thread/internal/store/bolt/disk"
)

func (s *seriesCheck) hash(key []byte) uint64 {
	if s.types == nil {
		s.seed, s.types = maphash.MakeSeed(), make(map[uint64]uint32)
	}
	return maphash.Bytes(s.seed, key)
}

// countedSeries notes which series there were when the check began.
func (c *checker) countedSeries() {
	c.series.then = c.pages.series
	c.series.last, _, _ = index.DecodeCounters(c.series.then)
}

// newSeries reports whether a series is new since the check in slices began.
func (c *checker) newSeries(id uint32) bool {
	if !c.pages.sliced || id <= c.series.last {
		return false
	}
	last, _, err := index.DecodeCounters(c.pages.series)
	return err == nil && id <= last
}

func (c *checker) seriesType(e *disk.Element) {
	v, err := index.DecodeType(e.Key, e.Value)
	if err == nil && !bytes.Equal(index.TypeKey(&v), e.Key) {
		err = fmt.Errorf("belongs to another type")
	}
	if err != nil {
		c.faultf(fmt.Sprintf("type entry %q", e.Key), "%v", err)
		return
	}
	key := c.series.hash(e.Key)
	c.series.types[key] = v.ID
}

func (c *checker) seriesByID(e *disk.Element) {
	s := &c.series
	id, ok := keyID(e.Key)
	if c.newSeries(id) {
		c.pages.over = true
		return
	}
	if !ok {
		c.faultf(fmt.Sprintf("series key %x", e.Key), "is not an id of a series")
	}
	v, err := index.ViewSeries(id, e.Value)
	if err != nil || v.First <= 0 {
		c.faultf(fmt.Sprintf("series %d", id), "%v", err)
		return
	}
	facts := seriesFacts{first: v.First, key: s.hash(index.ViewKey(&v))}
	key := s.hash(index.TypeKey(&index.TypeView{Type: v.Type, Subtype: v.Subtype, HasSubtype: v.HasSubtype}))
	if facts.typ, ok = s.types[key]; !ok {
		c.faultf(fmt.Sprintf("series %d", id), "is of a type that is missing")
	}
	*s.of.At(id) = facts
	s.count++
	if n := len(s.ids); n > 0 && s.ids[n-1].last+1 == id {
		s.ids[n-1].last = id
	} else {
		s.ids = append(s.ids, idRange{id, id})
	}
}

func (c *checker) seriesByKey(e *disk.Element) {
	id, ok := keyID(e.Value)
	if ok && c.newSeries(id) {
		return
	}
	facts := c.series.of.Get(id)
	if !ok || facts.first == 0 || facts.key != c.series.hash(e.Key) {
		c.faultf(fmt.Sprintf("series entry %q", e.Key), "names series %d, which is another", id)
		return
	}
	c.series.of.At(id).named = true
}

func (c *checker) typeBlock(e *disk.Element) {
	place := fmt.Sprintf("type block %x", e.Key)
	b, err := index.DecodeBlock(e.Key, e.Value)
	if err != nil {
		c.faultf(place, "%v", err)
		return
	}
	for i := range b.Count {
		id := b.ID(i)
		if id < 1<<32 && c.newSeries(uint32(id)) {
			continue
		}
		facts := c.series.of.Get(uint32(id))
		if id > 1<<32-1 || facts.first == 0 || facts.typ != b.Series(i) {
			c.faultf(place, "says that series %d is of type %d", id, b.Series(i))
			continue
		}
		c.series.of.At(uint32(id)).blocked = true
	}
}

// seriesCounters compares what is counted with what there is.
func (c *checker) seriesCounters() {
	last, count, err := index.DecodeCounters(c.series.then)
	switch {
	case err != nil:
		c.fault("bucket meta", "the counters of series are damaged")
		return
	case count != c.series.count:
		c.faultf("bucket meta", "%d series are there, the counters say %d", c.series.count, count)
	}
	for _, r := range c.series.ids {
		if r.last > last {
			c.faultf(fmt.Sprintf("series %d", r.last), "is above %d, the last id that was given", last)
		}
		for id := r.first; id <= min(r.last, index.TypesCover(last)); id++ {
			if !c.series.of.Get(id).blocked {
				c.faultf(fmt.Sprintf("series %d", id), "is missing in the type blocks")
			}
		}
	}
}

// seriesTotals looks for series without an entry in bucket series. Series of a batch
// that did not end may have none yet.
func (c *checker) seriesTotals() {
	for _, r := range c.series.ids {
		for id := r.first; ; id++ {
			if facts := c.series.of.Get(id); !facts.named && facts.first <= c.st.Head {
				c.faultf(fmt.Sprintf("series %d", id), "has no entry in bucket series")
			}
			if id == r.last {
				break
			}
		}
	}
}
