package fsck

import (
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"path/filepath"

	"thread/engine"
	"thread/event"
	"thread/internal/progress"
	"thread/internal/store"
	"thread/jsonlog"
)

// lineCheck goes through the lines of events*.jsonl and the events side by side,
// both in pieces. Every event from the start of the log on must have its line, and
// every line must be its event's.
//
// A line is known by being equal to its event, not by the id in it, so that a
// damaged id does not put those behind it out of step.
//
// These are not faults: lines of events that were pruned; what stood in the
// directory before the thread, or came with an import; and what the next push
// completes, which is what a crash may leave: the last lines of events.jsonl.
type lineCheck struct {
	*checker
	ctx context.Context
	far progress.Report
	lineFiles
	files []*lineFile

	next func() (event.Event, error, bool)
	e    event.Event // the next event that must have a line
	have bool        // there is one
	last int64       // id of the last line
	gone int64       // the last event that was pruned before the check
	buf  []byte
}

// lineFile is one of events*.jsonl, and what it holds.
type lineFile struct {
	path  string
	after int64 // the last event of the files before it
	last  int64 // the last one up to its end
	bad   bool  // it is not what it should be
	old   bool  // it was there before the thread's own lines
}

// lineFiles compares events*.jsonl with the events, and makes the newest file
// durable.
func (c *checker) lineFiles(ctx context.Context) (*lineCheck, error) {
	m := &lineCheck{checker: c, ctx: ctx, far: progress.Of(ctx)}
	var err error
	if m.lineFiles, err = pinLines(ctx, c.s); err != nil {
		return nil, err
	}
	defer m.close()
	from := m.start.From
	next, stop := iter.Pull2(c.t.Events(ctx, engine.Query{After: max(0, from-1)}))
	defer stop()
	m.next = next
	if err := m.advance(); err != nil {
		return nil, err
	}
	if m.gone = m.state.Head; m.have {
		m.gone = m.e.ID - 1
	}
	if m.start.Off() {
		m.note("events.jsonl", "is off: events have no lines; thread retain --lines on begins them")
	}
	for _, path := range m.names {
		f := &lineFile{path: path, after: m.last}
		m.files = append(m.files, f)
		if err := m.file(f); err != nil {
			return nil, err
		}
		f.last = m.last
	}
	return m, m.end()
}

// advance continues to the next event that must have a line.
func (m *lineCheck) advance() (err error) {
	m.e, err, m.have = m.next()
	if m.have = m.have && m.e.ID <= m.state.Head; !m.have {
		m.e = event.Event{}
	}
	if m.have {
		m.far.Tell("comparing lines", m.e.ID-m.gone, m.state.Head-m.gone)
	}
	return err
}

func (m *lineCheck) isNewest(f *lineFile) bool {
	return f == m.files[len(m.files)-1] && len(m.files) == len(m.names)
}

func (m *lineCheck) file(f *lineFile) error {
	from, size := m.newest, m.size
	err := m.err
	if !m.isNewest(f) {
		if from, err = openLines(f.path); err == nil {
			defer from.Close()
			size = 1<<63 - 1
		}
	} else if err == nil {
		if serr := from.Sync(); serr != nil {
			m.note(filepath.Base(f.path), "cannot be made durable: %v", serr)
		}
	}
	if os.IsNotExist(err) {
		return nil // what it held is missing, and named as that
	}
	if err != nil && !errors.Is(err, errNotRegular) {
		return err // what cannot be read is not damaged
	}
	if err != nil {
		if f.old = m.beforeStart() && m.start.Skip > 0; !f.old {
			m.bad(f, 0, 0, "%v", err)
		}
		return nil
	}
	lines := jsonlog.NewLines(&inContext{m.ctx, io.NewSectionReader(from, 0, size)})
	for {
		more, err := lines.Next()
		if err != nil && m.ctx.Err() == nil {
			m.bad(f, lines.Number, 0, "cannot be read: %v", err)
			return nil
		}
		if err != nil || !more {
			break
		}
		if done, err := m.line(f, lines); err != nil || done {
			return err
		}
	}
	if err := m.ctx.Err(); err != nil {
		return context.Cause(m.ctx)
	}
	if lines.Number == 0 && !m.isNewest(f) && !m.beforeStart() {
		m.bad(f, 0, 0, "holds no line")
	}
	f.old = f.old || m.beforeStart()
	return nil
}

// beforeStart reports whether what stands here may have been there before the
// thread's first line, because something was.
func (m *lineCheck) beforeStart() bool {
	return m.last == 0 && (m.start.Skip > 0 || !m.start.Known)
}

// line compares one line. It returns true when nothing behind it counts.
func (m *lineCheck) line(f *lineFile, l *jsonlog.Lines) (done bool, err error) {
	id, ok := l.ID()
	switch {
	case m.foreign(f, l, id, ok):
		if ok && m.have && m.e.ID == id {
			// What stood there may be gone, and ours be there.
			if equal, err := m.equal(l, &m.e); err != nil || equal {
				return false, errors.Join(err, m.matched(id))
			}
		}
		f.old = true
		return false, nil
	case !ok:
		return false, m.strange(f, l)
	case id <= max(m.gone, m.start.From-1):
		return false, m.pruned(f, l, id)
	}
	if id > m.state.Head {
		if _, found, err := m.find(id); err != nil || found {
			return true, err // pushed since, and written where the end was torn
		}
	}
	if m.have && m.e.ID < id {
		// Lines are missing before it, unless it is not what it says.
		e, found, err := m.find(id)
		if err != nil {
			return false, err
		}
		var equal bool
		if found {
			if equal, err = m.equal(l, &e); err != nil {
				return false, err
			}
		}
		if !equal {
			return false, m.differs(f, l)
		}
		if err := m.missing(f, l.Number, id); err != nil {
			return false, err
		}
		return false, m.matched(id)
	}
	if !m.have || m.e.ID > id {
		return false, m.beyond(f, l, id)
	}
	equal, err := m.equal(l, &m.e)
	if err != nil {
		return false, err
	}
	if !equal {
		return false, m.differs(f, l)
	}
	return false, m.matched(id)
}

// matched counts the line of event id, which is the next one, unless that was pruned
// meanwhile.
func (m *lineCheck) matched(id int64) error {
	m.last = id
	m.report.Lines++
	if m.have && m.e.ID == id {
		return m.advance()
	}
	return nil
}

// heals reports whether the next push writes what is missing at the end of
// events.jsonl.
func (m *lineCheck) heals() bool {
	p := &m.state.Log
	if errors.Is(m.err, errNotRegular) {
		return false
	}
	full := m.size == 0 && p.Full() // it would be taken for rotated
	short := m.size < p.Size || m.size == p.Size && m.torn()
	return p.First > 0 && m.have && m.e.ID >= p.First && short && !full
}

// torn reports whether events.jsonl ends without a newline. After a loss of power some file
// systems have its size, and zeros.
func (m *lineCheck) torn() bool {
	var last [1]byte
	if m.newest == nil || m.size == 0 {
		return false
	}
	_, err := m.newest.ReadAt(last[:], m.size-1)
	return err == nil && last[0] != '\n'
}

// end checks the events behind the last line.
func (m *lineCheck) end() error {
	if !m.have {
		return nil
	}
	newest := m.files[len(m.files)-1]
	if p := &m.state.Log; p.First > 0 && m.e.ID < p.First {
		if err := m.missing(newest, 0, p.First); err != nil {
			return err
		}
	}
	switch {
	case m.have && m.heals():
		m.note("events.jsonl", "ends with event %d of %d; the next push completes it", m.last, m.state.Head)
	case m.have:
		return m.missing(newest, 0, 1<<63-1)
	}
	return nil
}

func (m *lineCheck) equal(l *jsonlog.Lines, e *event.Event) (bool, error) {
	return l.Equal(func(w io.Writer) (err error) {
		m.buf, err = e.WriteJSON(w, m.buf)
		return err
	})
}

func (m *lineCheck) find(id int64) (e event.Event, found bool, err error) {
	err = m.s.View(m.ctx, func(tx store.Tx) (err error) {
		e, found, err = tx.Event(id)
		return err
	})
	return e, found, err
}

// inContext ends a long read with its context.
type inContext struct {
	ctx context.Context
	r   io.Reader
}

func (r *inContext) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.r.Read(b)
}
