package bolt

import (
	"time"
	"unsafe"

	"thread/event"
	"thread/filter"
	"thread/index"
	"thread/internal/store"
	"thread/internal/store/bolt/disk"
)

func (tx *Tx) search(s *store.Selection) *search {
	s.Reads.Transactions++
	p, ok := s.Plan.(*progressOf)
	if !ok {
		p = new(progressOf)
		s.Plan = p
	}
	v := tx.spare
	if tx.spare = nil; v == nil {
		v = new(search)
	}
	*v = search{tx: tx, Selection: s, progressOf: p, cursor: tx.eventCursor()}
	return v
}

// run calls fn for the matching events in (after, upto], in order, until it
// returns false. It returns the id up to which everything was searched: upto at
// the end, less when fn or the deadline ended the run.
func (s *search) run(after, upto int64, fn func(h *hit) (more bool, err error)) (pos int64, err error) {
	after, upto = max(after, 0), min(upto, s.tx.st.Head)
	end := upto
	if s.Filter != nil {
		low, high := s.Filter.IDRange()
		if low > after {
			after = low - 1
		}
		upto = min(upto, high)
	}
	if after >= upto {
		return max(end, after), nil
	}
	pos = after
	start := pos // a run that yields has come further all the same, or it would be repeated for ever
	if err := s.begin(); err != nil {
		return pos, err
	}
	var blocks index.Blocks
	for started := false; pos < upto; {
		if planned, err := s.planOn(); err != nil || !planned {
			return pos, err
		}
		if first := s.plan.first; first > upto {
			return end, nil
		} else if !started || first-1-index.BlockEvents > pos { // pos may be the greatest id
			pos = max(pos, first-1)
			columns, err := s.tx.columnBucket()
			if err != nil {
				return pos, err
			}
			blocks, started = index.BlocksAfter(columns, pos), true
		}
		b, ok, err := blocks.Next()
		if err != nil {
			return pos, err
		}
		if !ok {
			break
		}
		if b.Times.Miss(s.Earliest, s.Latest) {
			s.Reads.BlocksPassed++
		} else {
			s.gone += int64(b.Count)
			s.Reads.Blocks++
			more, at, err := s.block(&b, pos, upto, fn)
			if err != nil || !more {
				return at, err
			}
		}
		pos = max(pos, min(b.Last, upto))
		if pos > start && s.yields() {
			return pos, nil
		}
	}
	if pos < upto {
		t, err := s.tx.loadTail(s.tx.st.Head)
		if err != nil {
			return pos, err
		}
		if !t.times.Miss(s.Earliest, s.Latest) {
			s.Reads.Tail += int64(len(t.ids))
			if more, at, err := s.block(t.asBlock(), pos, upto, fn); err != nil || !more {
				return at, err
			}
		}
	}
	return end, nil
}

// WriterCheckTime is how long a run continues before it looks for a waiting writer,
// which takes some 5 µs.
const WriterCheckTime = 200 * time.Microsecond

// yields reports whether the slice has ended.
func (s *search) yields() bool {
	if s.deadline.IsZero() {
		return false
	}
	now := time.Now()
	if now.After(s.writerCheck) {
		s.writerCheck = now.Add(WriterCheckTime)
		return now.After(s.deadline) || s.tx.t.WriterWaits()
	}
	return now.After(s.deadline)
}

// yieldEvery is how many events are read between two readings of the clock.
const yieldEvery = 64

func (s *search) block(b *index.Block, after, upto int64, fn func(h *hit) (bool, error)) (more bool, pos int64, err error) {
	pos = after
	for i := b.After(after); ; i++ {
		if i = b.Next(i, &s.Answers); i == b.Count {
			return true, min(upto, b.Last), nil
		}
		id := b.ID(i)
		if id > upto {
			return true, upto, nil
		}
		h := &s.hit
		*h = hit{ID: id, series: b.Series(i)}
		match, err := s.matches(h)
		if err != nil {
			return false, pos, err
		}
		if match {
			if more, err := fn(h); err != nil || !more {
				return false, id, err
			}
		}
		pos = id
		if h.read && s.read%yieldEvery == 0 && s.yields() {
			return false, pos, nil
		}
	}
}

func (s *search) matches(h *hit) (bool, error) {
	if s.Filter == nil {
		return true, nil
	}
	switch answer, err := s.ask(h.series); {
	case err != nil:
		return false, err
	case answer != index.Open:
		return answer == index.All, nil
	}
	if err := s.load(h); err != nil {
		return false, err
	}
	s.row = filter.Row{ID: h.ID}
	// What is decoded of the series is kept no longer than a slice.
	if s.BySeries {
		series, err := s.tx.dict().Get(h.series)
		if err != nil {
			return false, err
		}
		s.row.Source, s.row.Type = series.Source, series.Type
		if series.Subtype != nil {
			s.row.Subtype, s.row.HasSubtype = *series.Subtype, true
		}
	}
	if s.Contents {
		if err := s.loadContent(h); err != nil {
			return false, err
		}
		s.row.Content = Text(h.rec.Content)
	}
	if s.Times {
		s.row.CreatedAt = s.tx.timeOf(&h.rec)
	}
	return s.Match(&s.row)
}

// Text is b as a string that is valid as long as b is.
func Text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// loadContent reads the content of a hit whose event was read.
func (s *search) loadContent(h *hit) error {
	if !h.rec.Pieces || h.rec.Content != nil {
		return nil
	}
	content, err := s.tx.content(h.ID, &h.rec)
	h.rec.Content = content
	return err
}

// fill sets e from a record. Content aliases the database, unless it is large.
func (tx *Tx) fill(e *event.Event, id int64, r *disk.Record) error {
	series, err := tx.dict().Get(r.Series)
	if err != nil {
		return err
	}
	content, err := tx.content(id, r)
	if err != nil {
		return err
	}
	*e = event.Event{
		ID: id, CreatedAt: tx.timeOf(r),
		Source: series.Source, Type: series.Type, Subtype: series.Subtype, Content: Text(content),
	}
	return nil
}

// timeOf returns the created_at text of r, which does not alias the database.
func (tx *Tx) timeOf(r *disk.Record) string { return tx.createdAt.Of(r) }
