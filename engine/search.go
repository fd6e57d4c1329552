package engine

import (
	"math"
	"time"
	"unsafe"

	"thread/event"
	"thread/filter"
	"thread/index"
)

// search finds the events that match a filter, in id order, and reads as few as
// it can: first the series decide, off the column, and only where they leave it
// open is the event read.
type search struct {
	tx *Tx
	*verdicts
	cursor  eventCursor
	hit     hit          // the event that is looked at
	row     filter.Row   // what the filter sees of it
	ofTypes *typeAnswers // once asked

	// deadline ends a run early, so that writers need not wait for a long one, and
	// after glance a waiting writer does. They are looked at between blocks and
	// every few dozen events that are read.
	deadline, glance time.Time
	read             int // events read
}

// verdicts is what a search knows of its filter. It may be kept for a later
// transaction: series ids never change their meaning.
type verdicts struct {
	f       *filter.Filter // nil: everything matches
	matcher *filter.Matcher
	// bySeries is whether the series say anything, byType whether their types do,
	// times and contents whether f looks at created_at and content; nothing matches
	// before earliest or after latest, in milliseconds.
	bySeries, byType bool
	times, contents  bool
	earliest, latest int64

	answers index.Answers
	judged  int64 // series that the filter was asked about
	reads   Reads // what was looked at so far
	gone    int64 // events whose series were gone through
	plan    plan
}

func newVerdicts(f *filter.Filter) *verdicts { return newVerdictsIn(f, index.Answers{}) }

// newVerdictsIn uses the memory of answers that are not needed any more: for
// thousands of filters in a row they are most of the work.
func newVerdictsIn(f *filter.Filter, spare index.Answers) *verdicts {
	if f != nil && f.Text() == "" {
		f = nil
	}
	spare.Clear()
	v := &verdicts{f: f, answers: spare, earliest: math.MinInt64, latest: math.MaxInt64}
	if f == nil {
		return v
	}
	columns := f.Columns()
	v.bySeries = len(columns) == 0
	for _, c := range columns {
		switch c {
		case "type", "subtype":
			v.bySeries, v.byType = true, true
		case "source":
			v.bySeries = true
		case "content":
			v.contents = true
		case "created_at":
			v.times = true
			v.earliest, v.latest = millisRange(f.CreatedAtRange())
		}
	}
	v.byType = v.byType || v.bySeries && len(columns) == 0
	return v
}

func (tx *Tx) search(v *verdicts) *search {
	v.reads.Transactions++
	return &search{tx: tx, verdicts: v, cursor: tx.eventCursor()}
}

// hit is a matching event. rec is only read when the search was told to read
// events, or had to.
type hit struct {
	id     int64
	series uint32
	rec    record
	read   bool
}

// run calls fn for the matching events in (after, upto], in order, until it
// returns false. It returns the id up to which everything was looked at: upto at
// the end, less when fn or the deadline ended the run.
func (s *search) run(after, upto int64, fn func(h *hit) (more bool, err error)) (pos int64, err error) {
	after, upto = max(after, 0), min(upto, s.tx.st.head)
	end := upto
	if s.f != nil {
		low, high := s.f.IDRange()
		if low > after {
			after = low - 1
		}
		upto = min(upto, high)
	}
	if after >= upto {
		return max(end, after), nil
	}
	pos = after
	start := pos // a run that is late has come further all the same, or it would be repeated for ever
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
			blocks, started = index.BlocksAfter(s.tx.columns, pos), true
		}
		b, ok, err := blocks.Next()
		if err != nil {
			return pos, err
		}
		if !ok {
			break
		}
		if b.Times.Miss(s.earliest, s.latest) {
			s.reads.BlocksPassed++
		} else {
			s.gone += int64(b.Count)
			s.reads.Blocks++
			more, at, err := s.block(&b, pos, upto, fn)
			if err != nil || !more {
				return at, err
			}
		}
		pos = max(pos, min(b.Last, upto))
		if pos > start && s.late() {
			return pos, nil
		}
	}
	if pos < upto {
		t, err := s.tx.loadTail(s.tx.st.head)
		if err != nil {
			return pos, err
		}
		if !t.times.Miss(s.earliest, s.latest) {
			s.reads.Tail += int64(len(t.ids))
			if more, at, err := s.block(t.asBlock(), pos, upto, fn); err != nil || !more {
				return at, err
			}
		}
	}
	return end, nil
}

// glanceTime is how long a run goes on before it looks for a waiting writer, which
// takes some 5 µs.
const glanceTime = 200 * time.Microsecond

func (s *search) late() bool {
	if s.deadline.IsZero() {
		return false
	}
	now := time.Now()
	if now.After(s.glance) {
		s.glance = now.Add(glanceTime)
		return now.After(s.deadline) || s.tx.t.writerWaits()
	}
	return now.After(s.deadline)
}

// lateEvery is how many events are read between two looks at the clock.
const lateEvery = 64

func (s *search) block(b *index.Block, after, upto int64, fn func(h *hit) (bool, error)) (more bool, pos int64, err error) {
	pos = after
	for i := b.After(after); ; i++ {
		if i = b.Next(i, &s.answers); i == b.Count {
			return true, min(upto, b.Last), nil
		}
		id := b.ID(i)
		if id > upto {
			return true, upto, nil
		}
		h := &s.hit
		*h = hit{id: id, series: b.Series(i)}
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
		if h.read && s.read%lateEvery == 0 && s.late() {
			return false, pos, nil
		}
	}
}

func (s *search) matches(h *hit) (bool, error) {
	if s.f == nil {
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
	if s.matcher == nil {
		s.matcher = s.f.Matcher()
	}
	series, err := s.tx.dict.Get(h.series)
	if err != nil {
		return false, err
	}
	s.row = filter.Row{ID: h.id, Source: series.Source, Type: series.Type}
	if s.contents {
		if err := s.loadContent(h); err != nil {
			return false, err
		}
		s.row.Content = text(h.rec.content)
	}
	if s.times {
		s.row.CreatedAt = s.tx.timeOf(&h.rec)
	}
	if series.Subtype != nil {
		s.row.Subtype, s.row.HasSubtype = *series.Subtype, true
	}
	return s.matcher.Match(&s.row)
}

// text is b as a string that is valid as long as b is.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// load reads the event of h, once.
func (s *search) load(h *hit) error {
	if h.read {
		return nil
	}
	found, err := s.cursor.seek(h.id)
	if err != nil {
		return err
	}
	if !found || s.cursor.rec.series != h.series {
		return corruptEvent(eventKey(h.id))
	}
	h.rec, h.read = s.cursor.rec, true
	s.read++
	s.reads.Events++
	return nil
}

// loadContent reads the content of a hit whose event was read.
func (s *search) loadContent(h *hit) error {
	if !h.rec.pieces || h.rec.content != nil {
		return nil
	}
	content, err := s.tx.content(h.id, &h.rec)
	h.rec.content = content
	return err
}

// fill sets e from a record. Content aliases the database, unless it is large.
func (tx *Tx) fill(e *event.Event, id int64, r *record) error {
	series, err := tx.dict.Get(r.series)
	if err != nil {
		return err
	}
	content, err := tx.content(id, r)
	if err != nil {
		return err
	}
	*e = event.Event{
		ID: id, CreatedAt: tx.timeOf(r),
		Source: series.Source, Type: series.Type, Subtype: series.Subtype, Content: text(content),
	}
	return nil
}

// timeOf returns the created_at text of r, which does not alias the database.
func (tx *Tx) timeOf(r *record) string { return tx.createdAt.of(r) }
