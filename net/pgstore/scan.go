package pgstore

import (
	"math"
	"strconv"
	"time"

	"thread/event"
	"thread/filter"
	"thread/index"
	"thread/internal/store"
)

// span says which events are read.
type span struct {
	after, upto int64
	series      []int64 // nil: all
	contents    bool    // the short ones, at once
}

// shortContent is up to where a content is read with its event. A row of events with
// longer ones could be more than fits in memory.
const shortContent = 4096

func (tx *tx) read(s span, most int) ([]found, error) {
	if err := tx.flushEvents(); err != nil {
		return nil, err
	}
	// Two statements, so that the plan for all events is the primary key from one end to
	// the other.
	events := tx.reads(s, most)
	r, err := tx.do(append([]statement{events}, tx.seriesOfEvents(events)...)...)
	if err != nil {
		return nil, err
	}
	for _, s := range r[1:] {
		tx.know(s.rows)
	}
	return foundIn(r[0]), nil
}

const fromEvents = " FROM events WHERE thread = $1 AND id > $2 AND id <= $3 "

// reads is the statement by which events are read.
func (tx *tx) reads(s span, most int) statement {
	where, args := "", []value{text(tx.store.thread), int8(max(s.after, tx.floor)), int8(s.upto), int8(int64(most)), int8(s.shortest())}
	if s.series != nil {
		where, args = "AND series = ANY ($6)", append(args, ids(s.series))
	}
	return sql("SELECT id, created_at, series, CASE WHEN octet_length(content) <= $5 THEN content END"+fromEvents+where+" ORDER BY id LIMIT $4", args...)
}

// seriesOfEvents reads the series of what a statement of reads finds, unless they are known.
func (tx *tx) seriesOfEvents(events statement) []statement {
	if tx.whole || len(events.args) > 5 { // of a span with series
		return nil
	}
	return []statement{sql("SELECT id, source, type, subtype FROM series WHERE thread = $1 AND id = ANY (ARRAY(SELECT series"+fromEvents+"ORDER BY id LIMIT $4))", events.args[:4]...)}
}

func foundIn(r rowset) []found {
	events := make([]found, len(r.rows))
	for i, r := range r.rows {
		events[i] = found{number(r[0]), string(r[1]), number(r[2]), r[3]}
	}
	return events
}

// shortest is up to which length contents are read at once.
func (s *span) shortest() int64 {
	if s.contents {
		return shortContent
	}
	return -1
}

func (tx *tx) content(f *found) (string, error) {
	if f.content == nil {
		rows, err := tx.rows("SELECT content FROM events WHERE thread = $1 AND id = $2", text(tx.store.thread), int8(f.id))
		if err == nil && len(rows) == 0 {
			err = tx.fail(store.ErrCorrupt)
		}
		if err != nil {
			return "", err
		}
		f.content = notNil(rows[0][0])
	}
	return string(f.content), nil
}

// manySeries is how many series are read with the first statements of a transaction: where
// there are more, a filter costs a round trip.
const manySeries = 64

func firstSeries(thread value) statement {
	return often("SELECT id, source, type, subtype FROM series WHERE thread = $1 ORDER BY id LIMIT "+strconv.Itoa(manySeries+1), thread)
}

// setSeries notes what firstSeries has read. It is all there is until the transaction
// makes another one.
func (tx *tx) setSeries(rows [][][]byte) {
	if all := tx.know(rows); len(rows) <= manySeries {
		tx.all, tx.whole = all, true
	}
}

// know notes series that were read.
func (tx *tx) know(rows [][][]byte) []*series {
	list := make([]*series, len(rows))
	for i, r := range rows {
		s := &series{id: number(r[0]), source: string(r[1]), typ: string(r[2]), sub: string(r[3]), hasSub: r[3] != nil}
		list[i], tx.series[s.id] = s, s
	}
	return list
}

// readSeries returns the series with these ids, nil for all there are.
func (tx *tx) readSeries(which []int64) ([]*series, error) {
	if tx.whole && which == nil {
		return tx.all, tx.failed
	}
	if err := tx.flushEvents(); err != nil {
		return nil, err
	}
	rows, err := tx.rows("SELECT id, source, type, subtype FROM series WHERE thread = $1 AND ($2::bigint[] IS NULL OR id = ANY ($2)) ORDER BY id", text(tx.store.thread), ids(which))
	list := tx.know(rows)
	if err == nil && which == nil {
		tx.all, tx.whole = list, true
	}
	return list, err
}

// SeriesCount implements store.Tx.
func (tx *tx) SeriesCount() (int64, error) {
	if err := tx.flushEvents(); err != nil {
		return 0, err
	}
	rows, err := tx.rows("SELECT count(*) FROM series WHERE thread = $1", text(tx.store.thread))
	if err != nil {
		return 0, err
	}
	return number(rows[0][0]), nil
}

func (tx *tx) seriesByID(id int64) (*series, error) {
	if s := tx.series[id]; s != nil {
		return s, nil
	}
	list, err := tx.readSeries([]int64{id})
	if err == nil && len(list) == 0 {
		err = tx.fail(store.ErrCorrupt)
	}
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

func (tx *tx) event(f found) (e event.Event, err error) {
	s, err := tx.seriesByID(f.series)
	if err != nil {
		return e, err
	}
	content, err := tx.content(&f)
	return event.Event{ID: f.id, CreatedAt: f.createdAt, Source: s.source, Type: s.typ, Subtype: s.subtype(), Content: content}, err
}

// How many events are read at once: the first time fewer.
const (
	firstEvents = 64
	mostEvents  = 1000
)

// EventsAfter implements store.Tx.
func (tx *tx) EventsAfter(after int64, fn func(e *event.Event) error) error {
	for n := firstEvents; ; n = mostEvents {
		list, err := tx.read(span{after: after, upto: math.MaxInt64, contents: true}, n)
		if err != nil {
			return err
		}
		for _, f := range list {
			e, err := tx.event(f)
			if err != nil {
				return err
			}
			if err = fn(&e); err != nil {
				return err
			}
			after = f.id
		}
		if len(list) < n {
			return nil
		}
	}
}

// verdicts asks the filter about the series that it was not asked about, and returns
// those that may match, nil when all may or the filter leaves that to the events. exact
// says that each of their events does.
func (tx *tx) verdicts(sel *store.Selection) (may []int64, exact bool, err error) {
	if sel.Filter == nil || !sel.BySeries {
		return nil, sel.Filter == nil, nil
	}
	all, err := tx.readSeries(nil)
	if err != nil {
		return nil, false, err
	}
	if sel.Plan != tx.epoch { // the answers may be about the series of another server
		sel.Answers.Clear()
		sel.Plan = tx.epoch
	}
	may, exact = []int64{}, true
	for _, s := range all {
		// Series of a transaction that has not been committed may get another meaning.
		answer := sel.Answers.Get(uint32(s.id))
		if answer == index.Unasked || tx.writable {
			v := sel.Filter.Series(s.source, s.typ, s.sub, s.hasSub)
			sel.Asked++
			answer = store.AnswerOf(v)
			if !tx.writable {
				sel.Answers.Set(uint32(s.id), answer)
			}
		}
		if answer != index.None {
			may = append(may, s.id)
			exact = exact && answer == index.All
		}
	}
	if len(may) == len(all) {
		may = nil // all of one index, and not some of another
	}
	return may, exact, nil
}

// scan calls fn for the events that match, until it returns false, which it will after so
// many as are wanted.
func (tx *tx) scan(q *store.Scan, want int64, contents bool, fn func(f *found) (bool, error)) (pos int64, err error) {
	sel := q.Selection
	sel.Reads.Transactions++
	pos = q.After
	end := max(q.After, min(q.Upto, tx.head))
	may, exact, err := tx.verdicts(sel)
	if err != nil {
		return pos, err
	}
	if may != nil && len(may) == 0 {
		return end, nil
	}
	began, first := time.Now(), firstEvents
	if exact {
		first = int(max(1, min(want, firstEvents)))
	}
	ahead := tx.ahead[sel]
	delete(tx.ahead, sel)
	for n := first; ; n = mostEvents {
		var list []found
		if ahead.is(pos, end) {
			list, n = ahead.list, ahead.most
		} else if list, err = tx.read(span{pos, end, may, contents || sel.Contents}, n); err != nil {
			return pos, err
		}
		for i := range list {
			f := &list[i]
			sel.Reads.Events++
			ok, err := tx.match(sel, f)
			if err != nil {
				return pos, err
			}
			more := true
			if ok {
				sel.Reads.Matched++
				if more, err = fn(f); err != nil {
					return pos, err
				}
			}
			if pos = f.id; !more {
				return pos, nil
			}
		}
		if len(list) < n {
			return end, nil
		}
		if q.Slice && (ahead != nil || time.Since(began) >= sliceTime) {
			return pos, nil
		}
	}
}

func (a *readAhead) is(after, upto int64) bool { return a != nil && a.after == after && a.upto == upto }

func (tx *tx) match(sel *store.Selection, f *found) (bool, error) {
	if sel.Filter == nil {
		return true, nil
	}
	s, err := tx.seriesByID(f.series)
	if err != nil {
		return false, err
	}
	row := filter.Row{ID: f.id, CreatedAt: f.createdAt, Source: s.source, Type: s.typ, Subtype: s.sub, HasSubtype: s.hasSub}
	if sel.Contents {
		if row.Content, err = tx.content(f); err != nil {
			return false, err
		}
	}
	return sel.Match(&row)
}

// Scan implements store.Tx.
func (tx *tx) Scan(q store.Scan, fn func(id int64) (more bool, err error)) (int64, error) {
	return tx.scan(&q, firstEvents, false, func(f *found) (bool, error) { return fn(f.id) })
}

// ScanSeries implements store.Tx.
func (tx *tx) ScanSeries(q store.Scan, fn func(e *event.Event, read func() error) (more bool, err error)) (int64, error) {
	return tx.scan(&q, firstEvents, false, func(f *found) (bool, error) {
		s, err := tx.seriesByID(f.series)
		if err != nil {
			return false, err
		}
		e := event.Event{ID: f.id, Source: s.source, Type: s.typ, Subtype: s.subtype()}
		return fn(&e, func() (err error) {
			e, err = tx.event(*f)
			return err
		})
	})
}

// Page implements store.Tx.
func (tx *tx) Page(q store.Scan, limit int64, page []event.Event) ([]event.Event, int64, error) {
	size := 0
	pos, err := tx.scan(&q, limit, true, func(f *found) (bool, error) {
		e, err := tx.event(*f)
		if err != nil {
			return false, err
		}
		page = append(page, e)
		size += len(e.Content)
		limit--
		return limit > 0 && size < 1<<20, nil
	})
	return page, pos, err
}

// Learn implements store.Tx: the verdicts are asked for with every scan.
func (tx *tx) Learn([]*store.Selection) (bool, error) { return true, tx.failed }
