package bolt

import (
	"thread/index"
	"thread/internal/store/bolt/disk"
)

// eventCursor reads events upwards. Most of the time the next one is near.
type eventCursor struct {
	tx    *Tx
	c     *index.Cursor // from the first use on
	steps index.Steps
	k     []byte      // the key of the group
	g     disk.Group  // that is being read
	rec   disk.Record // the event read last, which has the id g.id
	last  int64       // that id; ids must rise
	begin func(key, value []byte) (disk.Group, error)
}

func (tx *Tx) eventCursor() eventCursor {
	return eventCursor{tx: tx, begin: disk.OpenGroup}
}

// from goes to the group that holds the event with that id, if there is one. Next
// then reads the events of this group and those after it.
func (e *eventCursor) from(id int64) (err error) {
	if err := e.tx.groups.flush(); err != nil {
		return err
	}
	events, err := e.tx.eventBucket()
	if err != nil {
		return err
	}
	if e.c == nil {
		e.c = events.Cursor()
	}
	e.last = 0
	e.k, e.g = nil, disk.Group{}
	k, v, err := index.Floor(events, e.c, disk.EventKey(id))
	if k == nil || err != nil {
		return err
	}
	e.g, err = e.begin(k, v)
	if err != nil {
		return err
	}
	e.k = k
	return nil
}

// next reads the next event, and reports whether there is one.
func (e *eventCursor) next() (more bool, err error) {
	for {
		if more, err = e.g.Next(&e.rec); err != nil {
			return false, err
		}
		if more {
			if e.g.ID <= e.last {
				return false, disk.CorruptEvent(e.g.Key)
			}
			e.last = e.g.ID
			return true, nil
		}
		if more, err = e.step(); !more || err != nil {
			return false, err
		}
	}
}

// step goes to the next group.
func (e *eventCursor) step() (more bool, err error) {
	if e.k == nil {
		return false, nil
	}
	if err := e.steps.Check(e.c.Bucket(), e.k); err != nil {
		return false, err
	}
	k, v := e.c.Next()
	if e.k = k; k == nil {
		e.g = disk.Group{}
		return false, nil
	}
	e.g, err = e.begin(k, v)
	return err == nil, err
}

// seek reads the event with that id, and reports whether it is there.
func (e *eventCursor) seek(id int64) (found bool, err error) {
	jumped := e.k == nil || id <= e.last
	if jumped {
		if err := e.from(id); err != nil {
			return false, err
		}
	}
	for {
		more, err := e.g.Next(&e.rec)
		if err != nil {
			return false, err
		}
		if more {
			if e.g.ID <= e.last {
				return false, disk.CorruptEvent(e.g.Key)
			}
			if e.last = e.g.ID; e.last >= id {
				return e.last == id, nil
			}
			continue
		}
		switch {
		case e.k == nil || jumped:
			return false, nil
		case e.last+1 == id:
			if more, err = e.step(); !more || err != nil {
				return false, err
			}
		default:
			if err := e.from(id); err != nil {
				return false, err
			}
		}
		jumped = true
	}
}

// record reads the event with that id, and reports whether it is there and visible.
func (tx *Tx) record(id int64) (c eventCursor, found bool, err error) {
	c = tx.eventCursor()
	if id > tx.st.Head || id <= 0 {
		return c, false, nil
	}
	found, err = c.seek(id)
	return c, found, err
}

// Has implements store.Tx.
func (tx *Tx) Has(id int64) (bool, error) {
	c := tx.eventCursor()
	if id > tx.st.Head || id <= 0 {
		return false, nil
	}
	c.begin = disk.OpenUnchecked
	return c.seek(id)
}
