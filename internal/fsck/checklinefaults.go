package fsck

import (
	"fmt"
	"path/filepath"

	"thread/internal/store"
	"thread/jsonlog"
)

// bad notes a fault of a file, or of its line n, about an event.
func (m *lineCheck) bad(f *lineFile, n, id int64, format string, args ...any) {
	f.bad = true
	name := filepath.Base(f.path)
	place := name
	if n > 0 {
		place = fmt.Sprintf("%s line %d", name, n)
	}
	m.add(Fault{Place: place, What: fmt.Sprintf(format, args...), File: name, Line: n, Event: id})
}

// beyond names a line of an event that comes before the next one.
func (m *lineCheck) beyond(f *lineFile, l *jsonlog.Lines, id int64) error {
	if id <= m.last {
		m.bad(f, l.Number, id, "is of event %d, after event %d", id, m.last)
		return nil
	}
	first := m.state.Head + 1
	err := m.s.View(m.ctx, func(tx store.Tx) error {
		id, err := tx.Oldest()
		if id > 0 {
			first = min(first, id)
		}
		return err
	})
	if err != nil {
		return err
	}
	if m.gone = max(m.gone, first-1); id <= m.gone {
		// Meanwhile. Events that were read ahead may be gone, too, in another prune.
		for m.have && m.e.ID <= m.gone {
			if err := m.advance(); err != nil {
				return err
			}
		}
		return m.pruned(f, l, id)
	}
	m.bad(f, l.Number, id, "is of event %d, which is not in the database", id)
	return nil
}

// foreign reports whether a line stands before our first one and may have been
// there before it.
func (m *lineCheck) foreign(f *lineFile, l *jsonlog.Lines, id int64, ok bool) bool {
	log := &m.state.Log
	switch {
	case m.last > 0:
		return false
	case m.start.Known && m.start.Skip == 0:
		return false
	case m.start.Known && m.isNewest(f):
		return l.Offset < m.start.Skip
	case m.start.Known:
		return l.Offset < m.start.Skip || !ok || id < m.start.From
	case m.isNewest(f) && log.First > 0:
		return l.Offset < log.Base
	}
	return !ok
}

// strange describes a line that is not one of an event. The last one of events.jsonl
// may be torn, and heals.
func (m *lineCheck) strange(f *lineFile, l *jsonlog.Lines) error {
	number := l.Number
	if _, err := l.Whole(); err != nil {
		return err
	}
	if m.isNewest(f) && l.Torn() && m.heals() {
		return nil
	}
	m.bad(f, number, 0, "is not the line of an event")
	return nil
}

// pruned checks the line of an event that is not in the database any more, of
// which there is only the outline to be compared.
func (m *lineCheck) pruned(f *lineFile, l *jsonlog.Lines, id int64) error {
	whole, err := l.Whole()
	switch {
	case err != nil:
		return err
	case id <= m.last:
		m.bad(f, l.Number, id, "is of event %d, after event %d", id, m.last)
	case !whole:
		m.bad(f, l.Number, id, "is not the line of an event")
	default:
		m.last = id
	}
	return nil
}

// differs names a line in the place of the next event's. The last one of
// events.jsonl may be torn, and heals.
func (m *lineCheck) differs(f *lineFile, l *jsonlog.Lines) error {
	if _, err := l.Whole(); err != nil {
		return err
	}
	id := m.e.ID
	switch {
	case m.isNewest(f) && l.Torn() && m.heals():
		return nil
	case l.Torn():
		m.bad(f, l.Number, id, "is torn, and differs from event %d", id)
	default:
		m.bad(f, l.Number, id, "differs from event %d", id)
	}
	m.last = id
	return m.advance()
}

// missing names the events before upto that have no line.
func (m *lineCheck) missing(f *lineFile, n, upto int64) error {
	first, last, count := m.e.ID, int64(0), 0
	for m.have && m.e.ID < upto {
		last = m.e.ID
		count++
		if err := m.advance(); err != nil {
			return err
		}
	}
	if count == 0 {
		return nil
	}
	what := fmt.Sprintf("event %d has no line", first)
	if count > 1 {
		what = fmt.Sprintf("events %d to %d have no line", first, last)
	}
	if m.last == 0 && !m.start.Known {
		m.note(filepath.Base(f.path), "%s; whether they ever had is not known, the thread is of an older version", what)
		f.bad = true
		return nil
	}
	if n == 0 {
		m.bad(f, 0, first, "%s", what)
		return nil
	}
	m.bad(f, n, first, "%s before it", what)
	return nil
}
