package engine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"thread/event"
	"thread/jsonlog"
)

// lineFiles compares every line of events*.jsonl that has the form of an event
// with the event of that id, and makes the newest file durable. Lines of events
// that were pruned since, and lines that are not ours, do not count. A line that
// is missing or torn at the end heals at the next push, and is a note.
func (c *checker) lineFiles(ctx context.Context) error {
	names, err := lineFileNames(c.t.dir)
	if err != nil {
		return err
	}
	next, stop := iter.Pull2(c.t.Events(ctx, Query{}))
	defer stop()
	m := lineMerge{checker: c, next: next}
	for i, name := range names {
		if err := m.file(name, i == len(names)-1); err != nil {
			return err
		}
	}
	if c.st.log.First > 0 && m.last < c.st.head && c.st.stored > 0 {
		c.note("events.jsonl", "ends with event %d of %d; the next push completes it", m.last, c.st.head)
	}
	return nil
}

// linesAhead looks, under the database's lock, whether events.jsonl knows an event
// that the database does not. Lines are written after the commit, so that the
// database then lost a change that was durable, as when its newer meta page rots.
func (c *checker) linesAhead() {
	f, err := os.OpenFile(c.t.path("events.jsonl"), os.O_RDONLY|openNoFollow|openNoWait, 0)
	if err != nil {
		return // no line is not a line too many
	}
	defer f.Close()
	if _, err := f.Seek(c.st.log.Size, io.SeekStart); err != nil || c.st.log.First == 0 {
		return
	}
	r := bufio.NewReaderSize(f, 64<<10)
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return
		}
		if id, ok := jsonlog.LineID(line[:len(line)-1]); ok && id > c.st.head {
			c.faultf("events.jsonl", "has event %d, but the newest in the database is %d: the database lost a change", id, c.st.head)
			return
		}
	}
}

// lineFileNames returns the paths of all events*.jsonl, the oldest first.
func lineFileNames(dir string) ([]string, error) {
	names, err := filepath.Glob(filepath.Join(globEscape(dir), "events-*.jsonl"))
	if err != nil {
		return nil, err
	}
	// Without the ending, as events-T.jsonl is older than events-T-1.jsonl.
	for i := range names {
		names[i] = strings.TrimSuffix(names[i], ".jsonl")
	}
	slices.Sort(names)
	for i := range names {
		names[i] += ".jsonl"
	}
	return append(names, filepath.Join(dir, "events.jsonl")), nil
}

// globEscape quotes what filepath.Glob would take for a pattern.
func globEscape(path string) string {
	var b []byte
	for i := range len(path) {
		switch path[i] {
		case '*', '?', '[', '\\':
			b = append(b, '\\')
		}
		b = append(b, path[i])
	}
	return string(b)
}

// lineMerge goes through lines and events side by side, both with rising ids.
type lineMerge struct {
	*checker
	next func() (event.Event, error, bool)
	e    event.Event
	last int64 // id of the last line
	buf  []byte
}

func (m *lineMerge) file(path string, newest bool) error {
	f, err := os.OpenFile(path, os.O_RDONLY|openNoFollow|openNoWait, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		m.fault(filepath.Base(path), err.Error())
		return nil
	}
	defer f.Close()
	if newest {
		if err := f.Sync(); err != nil {
			m.note(filepath.Base(path), "cannot be made durable: %v", err)
		}
	}
	r := bufio.NewReaderSize(f, 64<<10)
	for n := 1; ; n++ {
		line, err := r.ReadBytes('\n')
		if err == io.EOF {
			if len(line) > 0 && !newest {
				m.faultf(filepath.Base(path), "the last line is torn")
			}
			return nil // in the newest file it heals
		}
		if err != nil {
			return err
		}
		if err := m.line(fmt.Sprintf("%s line %d", filepath.Base(path), n), line[:len(line)-1]); err != nil {
			return err
		}
	}
}

func (m *lineMerge) line(place string, line []byte) error {
	id, ok := jsonlog.LineID(line)
	if !ok {
		if m.last > 0 {
			m.fault(place, "is not the line of an event")
		}
		return nil // before our first line anything may stand
	}
	if id > m.st.head {
		return nil // pushed since
	}
	if id <= m.last {
		m.faultf(place, "is of event %d, after event %d", id, m.last)
		return nil
	}
	m.last = id
	for m.e.ID < id {
		e, err, more := m.next()
		if err != nil {
			return err
		}
		if !more {
			return nil
		}
		m.e = e
	}
	if m.e.ID > id {
		return nil // pruned since
	}
	if m.buf = m.e.AppendJSON(m.buf[:0]); string(m.buf) != string(line) {
		m.faultf(place, "differs from event %d", id)
	}
	m.report.Lines++
	return nil
}
