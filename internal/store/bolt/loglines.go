package bolt

import (
	"io"

	"thread/event"
	"thread/jsonlog"
)

// lines collects the lines that a transaction adds to events.jsonl.
type lines struct {
	t    *Store
	tx   *Tx
	file *jsonlog.Events
	off  bool  // The thread's lines are off; known once an event was added.
	err  error // the file cannot be written
	text []byte
	long []longLine // in order
}

// longLine is a line that is written in pieces.
type longLine struct {
	at int // it follows this much of the text
	e  event.Event
}

// longLineBytes is the content from which on a line is not kept as text.
const longLineBytes = 64 << 10

// lineLen returns the length of the line of e. Buf is scratch space.
func lineLen(e *event.Event, buf []byte) ([]byte, int) {
	if len(e.Content) > longLineBytes {
		return buf, e.LineLen()
	}
	buf = append(e.AppendJSON(buf[:0]), '\n')
	return buf, len(buf)
}

// add accounts for e, before the commit, so that the database knows how the
// file has to look after it.
func (l *lines) add(e *event.Event) {
	if l.off {
		return
	}
	if l.file == nil && l.err == nil {
		if l.off = l.tx.linesOff(); l.off {
			return
		}
		l.err = l.open(e.ID - 1)
	}
	if len(e.Content) > longLineBytes {
		l.long = append(l.long, longLine{len(l.text), *e})
		l.tx.st.Log.Add(e.ID, e.LineLen())
		return
	}
	if k := l.t.kept; k != nil && l.text == nil {
		l.text, k.text = k.text, nil
	}
	start := len(l.text)
	l.text = append(e.AppendJSON(l.text), '\n')
	l.tx.st.Log.Add(e.ID, len(l.text)-start)
}

// open opens the file and brings it to where it was before this transaction.
func (l *lines) open(head int64) (err error) {
	if l.file, err = jsonlog.OpenEvents(l.t.Dir); err != nil {
		l.file = nil
		return err
	}
	l.tx.st.Log, err = l.file.Prepare(l.tx.st.Log, head, l.t.Now(), func(after int64, emit func(*event.Event) error) error {
		return l.tx.EventsAfter(after, emit)
	})
	return err
}

func (l *lines) write() error {
	if l.err != nil || l.file == nil {
		return l.err
	}
	if len(l.long) == 0 {
		return l.file.AppendLine(l.text)
	}
	return l.file.Append(func(w io.Writer) (err error) {
		var buf []byte
		at := 0
		for i := range l.long {
			if _, err = w.Write(l.text[at:l.long[i].at]); err != nil {
				return err
			}
			at = l.long[i].at
			if buf, err = l.long[i].e.WriteLine(w, buf); err != nil {
				return err
			}
		}
		_, err = w.Write(l.text[at:])
		return err
	})
}

// keptText is how long a text may be to be kept for the next transaction: to grow one
// costs more than to fill it.
const keptText = 4 << 20

func (l *lines) close() {
	if k := l.t.kept; k != nil && l.text != nil && cap(l.text) <= keptText {
		k.text = l.text[:0]
	}
	if l.file != nil {
		l.file.Close()
	}
}
