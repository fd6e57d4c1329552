package pgstore_test

import (
	"math"
	"time"

	"github.com/jackc/pgx/v5"

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

// found is an event as it is read: its content, when that was asked for and is short.
type found struct {
	id        int64
	createdAt string
	series    int64
	content   []byte // nil: not read
}

// shortContent is up to where a content is read with its event. A row of events with
// longer ones could be more than fits in memory.
const shortContent = 4096

func (tx *tx) read(s span, most int) ([]found, error) {
	if err := tx.flush(); err != nil {
		return nil, err
	}
	// Two statements, so that the plan for all events is the primary key from one end to
	// the other.
	where, args := "", []any{tx.store.thread, max(s.after, tx.floor), s.upto, s.contents, shortContent, most}
	if s.series != nil {
		where, args = "AND series = ANY ($7)", append(args, s.series)
	}
	return rows(tx, `SELECT id, created_at, series, CASE WHEN $4 AND octet_length(content) <= $5 THEN content END FROM events
		WHERE thread = $1 AND id > $2 AND id <= $3 `+where+` ORDER BY id LIMIT $6`, args,
		func(r pgx.CollectableRow) (f found, err error) {
			err = r.Scan(&f.id, &f.createdAt, &f.series, &f.content)
			return f, err
		})
}

func (tx *tx) content(f *found) (string, error) {
	if f.content == nil {
		if _, err := tx.row("SELECT content FROM events WHERE thread = $1 AND id = $2", []any{tx.store.thread, f.id}, &f.content); err != nil {
			return "", err
		}
	}
	return string(f.content), nil
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
			if err == nil {
				err = fn(&e)
			}
			if err != nil {
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
// those that may match, nil when the filter leaves that to the events.
func (tx *tx) verdicts(sel *store.Selection) ([]int64, error) {
	if sel.Filter == nil || !sel.BySeries {
		return nil, nil
	}
	all, err := tx.readSeries(nil)
	if err != nil {
		return nil, err
	}
	may := []int64{}
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
		}
	}
	return may, nil
}

// scan calls fn for the events that match, until it returns false.
func (tx *tx) scan(q *store.Scan, contents bool, fn func(f *found) (bool, error)) (pos int64, err error) {
	sel := q.Selection
	sel.Reads.Transactions++
	pos = q.After
	end := max(q.After, min(q.Upto, tx.last))
	may, err := tx.verdicts(sel)
	if err != nil {
		return pos, err
	}
	if may != nil && len(may) == 0 {
		return end, nil
	}
	began := time.Now()
	for n := firstEvents; ; n = mostEvents {
		list, err := tx.read(span{pos, end, may, contents || sel.Contents}, n)
		if err != nil {
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
		if q.Slice && time.Since(began) >= sliceTime {
			return pos, nil
		}
	}
}

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
	return tx.scan(&q, false, func(f *found) (bool, error) { return fn(f.id) })
}

// Page implements store.Tx.
func (tx *tx) Page(q store.Scan, limit int64, page []event.Event) ([]event.Event, int64, error) {
	size := 0
	pos, err := tx.scan(&q, true, func(f *found) (bool, error) {
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
