package bolt

import (
	"math"
	"slices"
	"strings"

	"thread/event"
	"thread/index"
	"thread/internal/store/bolt/disk"
)

// Event implements store.Tx.
func (tx *Tx) Event(id int64) (e event.Event, ok bool, err error) {
	c, found, err := tx.record(id)
	if !found || err != nil {
		return event.Event{ID: id}, false, err
	}
	err = tx.fill(&e, id, &c.rec)
	if !c.rec.Pieces {
		e.Content = strings.Clone(e.Content)
	}
	return e, err == nil, err
}

// Oldest implements store.Tx.
func (tx *Tx) Oldest() (int64, error) {
	if err := index.CheckPath(tx.events, nil); err != nil {
		return 0, err
	}
	first, _ := tx.events.Cursor().First()
	if first == nil {
		return 0, nil
	}
	return mustID(first), nil
}

// BeforeNewest implements store.Tx.
func (tx *Tx) BeforeNewest(n int64) (int64, error) {
	if n >= tx.st.Stored {
		return 0, nil
	}
	if err := index.CheckTree(tx.events); err != nil {
		return 0, err
	}
	if err := tx.groups.flush(); err != nil {
		return 0, err
	}
	c := tx.events.Cursor()
	var ids []int64 // of a group
	last := int64(math.MaxInt64)
	for k, v := c.Last(); k != nil; k, v = c.Prev() {
		g, err := disk.OpenUnchecked(k, v)
		if err != nil {
			return 0, err
		}
		var r disk.Record
		for ids = ids[:0]; ; ids = append(ids, g.ID) {
			if more, err := g.Next(&r); err != nil {
				return 0, err
			} else if !more {
				break
			}
		}
		if ids[len(ids)-1] > last {
			return 0, disk.CorruptEvent(k)
		}
		last = ids[0] - 1
		for _, id := range slices.Backward(ids) {
			if id > tx.st.Head {
				continue // of a batch that did not end
			}
			if n == 0 {
				return id, nil
			}
			n--
		}
	}
	return 0, nil
}

// mustID is eventID, 0 for what is no id.
func mustID(key []byte) int64 {
	id, err := disk.EventID(key)
	if err != nil {
		return 0
	}
	return id
}
