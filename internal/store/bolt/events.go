package bolt

import (
	"fmt"
	"strings"

	"thread/event"
	"thread/index"
	"thread/internal/store"
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
	events, err := tx.eventBucket()
	if err != nil {
		return 0, err
	}
	if err := index.CheckPath(events, nil); err != nil {
		return 0, err
	}
	first, _ := events.Cursor().First()
	if first == nil {
		return 0, nil
	}
	return mustID(first), nil
}

// BeforeNewest implements store.Tx. It counts in the columns: to read the events themselves,
// which lie far apart, made pushes wait for seconds where a million of them were to stay.
func (tx *Tx) BeforeNewest(n int64) (int64, error) {
	if n >= tx.st.Stored {
		return 0, nil
	}
	if err := tx.groups.flush(); err != nil {
		return 0, err
	}
	columns, err := tx.columnBucket()
	if err != nil {
		return 0, err
	}
	last, _, err := index.LastBlock(columns)
	if err != nil {
		return 0, err
	}
	var tail []int64 // behind the blocks
	next := tx.eventCursor()
	for err = next.from(last.Last + 1); err == nil; {
		var more bool
		if more, err = next.next(); !more || next.g.ID > tx.st.Head {
			break
		}
		if next.g.ID > last.Last { // a group may begin before it
			tail = append(tail, next.g.ID)
		}
	}
	if err != nil {
		return 0, err
	}
	if n < int64(len(tail)) {
		return tail[len(tail)-1-int(n)], nil
	}
	n -= int64(len(tail))
	if err := index.CheckTree(columns); err != nil {
		return 0, err
	}
	c := columns.Cursor()
	for k, v := c.Last(); k != nil; k, v = c.Prev() {
		b, err := index.DecodeBlock(k, v)
		if err != nil {
			return 0, err
		}
		count := min(b.Count, max(0, b.After(tx.st.Head))) // the rest is of a batch that did not end
		if n < int64(count) {
			return b.ID(count - 1 - int(n)), nil
		}
		n -= int64(count)
	}
	return 0, fmt.Errorf("%w: the columns have fewer events than are stored", store.ErrCorrupt)
}

// mustID is eventID, 0 for what is not an id.
func mustID(key []byte) int64 {
	id, err := disk.EventID(key)
	if err != nil {
		return 0
	}
	return id
}
