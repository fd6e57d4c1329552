package bolt

import (
	"math"
	"strings"
	"time"

	"thread/event"
	"thread/index"
	"thread/internal/store"
	"thread/internal/store/bolt/disk"
)

// SliceTime is how long a slice is. A variable for the tests.
var SliceTime = 4 * time.Millisecond

const (
	sliceBytes = 1 << 20

	shortPage = 128 // events that memory is allocated for at once
)

// Scan implements store.Tx.
func (tx *Tx) Scan(q store.Scan, fn func(id int64) (more bool, err error)) (pos int64, err error) {
	s := tx.scan(&q)
	pos, err = s.run(q.After, q.Upto, func(h *hit) (bool, error) { return fn(h.ID) })
	tx.spare = s
	return pos, err
}

// ScanSeries implements store.Tx.
func (tx *Tx) ScanSeries(q store.Scan, fn func(e *event.Event, read func() error) (more bool, err error)) (pos int64, err error) {
	s := tx.scan(&q)
	var contents arena
	var e event.Event
	var at *hit
	read := func() error {
		if err := s.load(at); err != nil {
			return err
		}
		if err := s.loadContent(at); err != nil {
			return err
		}
		e.CreatedAt, e.Content = tx.timeOf(&at.rec), contents.take(&at.rec)
		return nil
	}
	return s.run(q.After, q.Upto, func(h *hit) (bool, error) {
		series, err := tx.dict().Get(h.series)
		if err != nil {
			return false, err
		}
		at = h
		e = event.Event{ID: h.ID, Source: series.Source, Type: series.Type, Subtype: series.Subtype}
		return fn(&e, read)
	})
}

func (tx *Tx) scan(q *store.Scan) *search {
	if q.Long {
		tx.readAhead()
	}
	s := tx.search(q.Selection)
	if q.Long && !tx.Writable() { // what it finds is visible, and stays
		if s.known == nil {
			s.known = new(index.Known)
		}
		tx.dict().SetKnown(s.known)
	}
	if q.Slice {
		s.setDeadline()
	}
	return s
}

func (s *search) setDeadline() {
	now := time.Now()
	s.deadline, s.writerCheck = now.Add(SliceTime), now.Add(WriterCheckTime)
}

// Page implements store.Tx.
func (tx *Tx) Page(q store.Scan, limit int64, page []event.Event) (events []event.Event, pos int64, err error) {
	s := tx.scan(&q)
	if page == nil {
		page = make([]event.Event, 0, min(limit, shortPage))
	}
	var contents arena
	pos, err = s.run(q.After, q.Upto, func(h *hit) (bool, error) {
		if err := s.load(h); err != nil {
			return false, err
		}
		if err := s.loadContent(h); err != nil {
			return false, err
		}
		series, err := tx.dict().Get(h.series)
		if err != nil {
			return false, err
		}
		page = append(page, event.Event{
			ID: h.ID, CreatedAt: tx.timeOf(&h.rec),
			Source: series.Source, Type: series.Type, Subtype: series.Subtype, Content: contents.take(&h.rec),
		})
		limit--
		return limit > 0 && contents.size+128*len(page) < sliceBytes, nil
	})
	return page, pos, err
}

// SeriesCount implements store.Tx.
func (tx *Tx) SeriesCount() (int64, error) { return tx.dict().Len() }

// Yield implements store.Tx.
func (tx *Tx) Yield() bool { return !time.Now().Before(tx.began.Add(SliceTime)) }

// arenaBytes is the size of a piece: large enough for the Go runtime to take it
// from the operating system and not to clear it.
const arenaBytes = 64 << 10

// arena copies texts into few large pieces of memory.
type arena struct {
	free []byte
	size int // of all copies
}

// take returns the content of r, copied unless it has separate memory.
func (a *arena) take(r *disk.Record) string {
	if r.Pieces {
		a.size += len(r.Content)
		return Text(r.Content)
	}
	return a.copy(r.Content)
}

func (a *arena) copy(b []byte) string {
	if len(b) > cap(a.free)-len(a.free) {
		// A piece that is not filled costs little: the pages of memory that nothing
		// is written to are not there.
		a.free = make([]byte, 0, max(len(b), arenaBytes))
	}
	start := len(a.free)
	a.free = append(a.free, b...)
	a.size += len(b)
	return Text(a.free[start:])
}

// ScanNumbers implements store.Numbered.
func (tx *Tx) ScanNumbers(q store.Scan, fn func(number uint32) error) (pos int64, err error) {
	return tx.scan(&q).run(q.After, q.Upto, func(h *hit) (bool, error) { return true, fn(h.series) })
}

// SeriesFrom implements store.Numbered.
func (tx *Tx) SeriesFrom(number uint32, fn func(number uint32, source, typ string, subtype *string) (more bool, err error)) error {
	return tx.dict().Each(number, math.MaxUint32, func(id uint32, v *index.SeriesView) (bool, error) {
		var subtype *string
		if v.HasSubtype {
			subtype = &v.Subtype
		}
		return fn(id, v.Source, v.Type, subtype)
	})
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

// EventsAfter implements store.Tx.
func (tx *Tx) EventsAfter(after int64, fn func(e *event.Event) error) error {
	if after < 0 {
		after = 0
	}
	if after == math.MaxInt64 {
		return nil
	}
	c := tx.eventCursor()
	if err := c.from(after + 1); err != nil {
		return err
	}
	var e event.Event
	for n := 1; ; n++ {
		if n%endedEvery == 0 {
			if err := tx.ended(); err != nil {
				return err
			}
		}
		more, err := c.next()
		if !more || err != nil || c.g.ID > tx.st.Head {
			return err
		}
		if c.g.ID <= after {
			continue
		}
		if err := tx.fill(&e, c.g.ID, &c.rec); err != nil {
			return err
		}
		if err := fn(&e); err != nil {
			return err
		}
	}
}
