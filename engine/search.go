package engine

import (
	"errors"
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
	cursor eventCursor
	hit    hit        // the event that is looked at
	row    filter.Row // what the filter sees of it

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
	// bySeries is whether the series say anything, times whether f looks at
	// created_at; nothing matches before earliest or after latest, in milliseconds.
	bySeries, times  bool
	earliest, latest int64
	tables
	judged int64 // series that the filter was asked about
	reads  Reads // what was looked at so far
	primed int64 // every series with an event up to this id was asked, 0: none was
	first  int64 // up to primed, no event below this id matches
}

// tables are by series id.
type tables struct {
	skip  []bool // nothing in it matches; unknown ones are false
	sure  []bool // everything in it matches
	asked []bool // skip and sure are set
	seen  []*index.Series
}

func newVerdicts(f *filter.Filter) *verdicts { return newVerdictsIn(f, tables{}) }

// newVerdictsIn uses the tables of verdicts that are not needed any more: for
// thousands of filters in a row they are most of the work.
func newVerdictsIn(f *filter.Filter, t tables) *verdicts {
	if f != nil && f.Text() == "" {
		f = nil
	}
	clear(t.skip)
	clear(t.sure)
	clear(t.asked)
	v := &verdicts{f: f, tables: t, earliest: math.MinInt64, latest: math.MaxInt64}
	if f == nil {
		return v
	}
	columns := f.Columns()
	v.bySeries = len(columns) == 0
	for _, c := range columns {
		switch c {
		case "source", "type", "subtype":
			v.bySeries = true
		case "created_at":
			v.times = true
			v.earliest, v.latest = millisRange(f.CreatedAtRange())
		}
	}
	return v
}

// series returns the series of a visible event.
func (s *search) series(id uint32) (*index.Series, error) {
	if int64(id) < int64(len(s.seen)) && s.seen[id] != nil {
		return s.seen[id], nil
	}
	series, err := s.tx.dict.Get(id)
	if err == nil {
		s.grow(id)
		s.seen[id] = series
	}
	return series, err
}

// primeAfter is how many blocks a run goes through before it asks the filter
// about all series at once: a short page sees few of them, a long search gains
// from knowing that there is nothing to find.
const primeAfter = 8

func (tx *Tx) search(v *verdicts) *search {
	v.reads.Transactions++
	return &search{tx: tx, verdicts: v, cursor: eventCursor{b: tx.events, c: tx.events.Cursor()}}
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
	blocks := index.BlocksAfter(s.tx.columns, after)
	pos = after
	n, err := s.primeSoon()
	if err != nil {
		return pos, err
	}
	for pos < upto {
		if n == primeAfter && s.bySeries {
			if err := s.prime(); err != nil {
				return pos, err
			}
			if s.first > upto {
				return end, nil
			}
			if s.first-1-index.BlockEvents > pos { // pos may be the greatest id
				pos = s.first - 1
				blocks = index.BlocksAfter(s.tx.columns, pos)
			}
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
			n++
			s.reads.Blocks++
			more, at, err := s.block(&b, pos, upto, fn)
			if err != nil || !more {
				return at, err
			}
		}
		pos = max(pos, min(b.Last, upto))
		if s.late() {
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

// fewSeries is how many series a run asks the filter about before it begins.
const fewSeries = 64

// primeSoon returns how many blocks a run may count as gone through already: all
// of them when the sources in question have few series, which are found with one
// seek.
func (s *search) primeSoon() (int, error) {
	if s.f == nil {
		return 0, nil
	}
	low, high, exact := s.f.SourceRange()
	if exact || s.primed == s.tx.st.head {
		return primeAfter, nil
	}
	if high == "" {
		return 0, nil
	}
	n := 0
	err := s.tx.dict.BySource(low, high, false, func(uint32) error {
		if n++; n > fewSeries {
			return errMany
		}
		return nil
	})
	switch {
	case err == nil:
		return primeAfter, nil
	case errors.Is(err, errMany):
		return 0, nil
	}
	return 0, err
}

// errMany ends a count.
var errMany = errors.New("more than a few")

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
		if i = b.Next(i, s.skip); i == b.Count {
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
	if err := s.ask(h.series); err != nil {
		return false, err
	}
	if s.skip[h.series] || s.sure[h.series] {
		return s.sure[h.series], nil
	}
	if err := s.load(h); err != nil {
		return false, err
	}
	if s.matcher == nil {
		s.matcher = s.f.Matcher()
	}
	series, err := s.series(h.series)
	if err != nil {
		return false, err
	}
	s.row = filter.Row{ID: h.id, Source: series.Source, Type: series.Type, Content: text(h.rec.content)}
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

// ask sets what the filter says of a series. The tables grow after it was found
// only: the number in a torn record can be billions.
func (s *search) ask(id uint32) error {
	if int64(id) < int64(len(s.asked)) && s.asked[id] {
		return nil
	}
	series, err := s.series(id)
	if err != nil {
		return err
	}
	s.grow(id)
	sub := ""
	if series.Subtype != nil {
		sub = *series.Subtype
	}
	s.judged++
	v := s.f.Series(series.Source, series.Type, sub, series.Subtype != nil)
	s.skip[id], s.sure[id], s.asked[id] = v == filter.No, v == filter.Yes, true
	return nil
}

// prime asks the filter about every series that can match and has a visible
// event.
func (s *search) prime() error {
	if s.primed == s.tx.st.head || s.f == nil {
		return nil
	}
	n, err := s.tx.visibleSeries()
	if err != nil {
		return err
	}
	s.primed, s.first = s.tx.st.head, math.MaxInt64
	ask := func(id uint32) error {
		if id > n {
			return nil
		}
		if err := s.ask(id); err != nil || s.skip[id] {
			return err
		}
		series, err := s.series(id)
		if err == nil {
			s.first = min(s.first, series.First)
		}
		return err
	}
	low, high, exact := s.f.SourceRange()
	if low == "" && high == "" && !exact {
		for id := uint32(1); id <= n; id++ {
			if err := ask(id); err != nil {
				return err
			}
		}
		return nil
	}
	s.grow(n)
	setAll(s.skip)
	clear(s.sure)
	setAll(s.asked)
	return s.tx.dict.BySource(low, high, exact, func(id uint32) error {
		if id <= n {
			s.skip[id], s.asked[id] = false, false
		}
		return ask(id)
	})
}

// setAll makes all of b true, at the speed of a copy.
func setAll(b []bool) {
	if len(b) > 0 {
		b[0] = true
	}
	for n := 1; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

// visibleSeries returns the largest id of a series with a visible event. Ids
// above it belong to a batch that is not complete and may be given again.
func (tx *Tx) visibleSeries() (uint32, error) {
	n, err := tx.dict.Len()
	for ; err == nil && n > 0; n-- {
		series, err := tx.dict.Get(n)
		if err != nil {
			return 0, err
		}
		if series.First <= tx.st.head {
			break
		}
	}
	return n, err
}

func (t *tables) grow(id uint32) {
	if n := int(id) + 1 - len(t.skip); n > 0 {
		t.skip = append(t.skip, make([]bool, n)...)
		t.sure = append(t.sure, make([]bool, n)...)
		t.asked = append(t.asked, make([]bool, n)...)
		t.seen = append(t.seen, make([]*index.Series, n)...)
	}
}

// load reads the event of h, once.
func (s *search) load(h *hit) error {
	if h.read {
		return nil
	}
	key, v, err := s.cursor.seek(h.id)
	if err != nil {
		return err
	}
	if v == nil {
		return corruptEvent(key)
	}
	h.rec, err = decodeRecord(key, v)
	if err == nil && h.rec.series != h.series {
		err = corruptEvent(key)
	}
	h.read = true
	s.read++
	s.reads.Events++
	return err
}

// fill sets e from a record. Content aliases the database.
func (tx *Tx) fill(e *event.Event, id int64, r *record) error {
	series, err := tx.dict.Get(r.series)
	if err != nil {
		return err
	}
	*e = event.Event{
		ID: id, CreatedAt: tx.timeOf(r),
		Source: series.Source, Type: series.Type, Subtype: series.Subtype, Content: text(r.content),
	}
	return nil
}

// timeOf returns the created_at text of r, which does not alias the database.
func (tx *Tx) timeOf(r *record) string { return tx.createdAt.of(r) }
