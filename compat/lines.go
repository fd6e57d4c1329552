package compat

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"thread/engine"
	"thread/event"
)

// Format is a text form of events.
type Format string

const (
	JSONL Format = "jsonl" // the lines of events.jsonl, which push --batch reads
	CSV   Format = "csv"   // RFC 4180 with a header; NULL is an empty field, "" is quoted
)

// WriteEvents writes all events in a text form, as they were when it began.
// JSON cannot carry text that is not valid UTF-8: see event.AppendJSON. CSV
// carries all bytes. progress may be nil.
func WriteEvents(ctx context.Context, t *engine.Thread, to io.Writer, f Format, progress Progress) (n int64, err error) {
	if f != JSONL && f != CSV {
		return 0, fmt.Errorf("unknown format %q", f)
	}
	info, err := t.Info(ctx)
	if err != nil {
		return 0, err
	}
	w := newLineWriter(to, f)
	err = readSlices(ctx, t, 0, info.Newest, func(batch []event.Event) error {
		if progress != nil {
			progress(w.n+int64(len(batch)), info.Stored)
		}
		return w.write(batch)
	})
	if err != nil {
		return w.n, err
	}
	err = w.flush()
	return w.n, err
}

type lineWriter struct {
	w    *bufio.Writer
	f    Format
	n    int64
	line []byte
}

func newLineWriter(to io.Writer, f Format) *lineWriter {
	w := &lineWriter{w: bufio.NewWriterSize(to, 256<<10), f: f}
	if f == CSV {
		_, _ = w.w.WriteString("id,created_at,source,type,subtype,content\r\n") // an error comes back from Flush
	}
	return w
}

func (w *lineWriter) write(batch []event.Event) error {
	for i := range batch {
		e := &batch[i]
		if w.f == JSONL {
			w.line = append(e.AppendJSON(w.line[:0]), '\n')
		} else {
			w.line = appendCSV(w.line[:0], e)
		}
		if _, err := w.w.Write(w.line); err != nil {
			return err
		}
		w.n++
	}
	return nil
}

func (w *lineWriter) flush() error { return w.w.Flush() }

func appendCSV(b []byte, e *event.Event) []byte {
	b = strconv.AppendInt(b, e.ID, 10)
	for _, s := range []*string{&e.CreatedAt, &e.Source, &e.Type, e.Subtype, &e.Content} {
		b = append(b, ',')
		switch {
		case s == nil:
		case *s == "" || strings.ContainsAny(*s, "\",\r\n"):
			b = append(b, '"')
			b = append(b, strings.ReplaceAll(*s, `"`, `""`)...)
			b = append(b, '"')
		default:
			b = append(b, *s...)
		}
	}
	return append(b, "\r\n"...)
}

// readSlices calls fn for the events in (after, head], some hundred at a time.
// fn may keep them.
func readSlices(ctx context.Context, t *engine.Thread, after, head int64, fn func([]event.Event) error) error {
	if after >= head {
		return nil
	}
	var batch []event.Event
	size := 0
	for e, err := range t.Events(ctx, engine.Query{After: after}) {
		if err != nil {
			return err
		}
		if e.ID > head {
			break
		}
		batch = append(batch, e)
		if size += len(e.Content) + 256; len(batch) == batchEvents || size > batchBytes {
			if err := fn(batch); err != nil {
				return err
			}
			batch, size = make([]event.Event, 0, batchEvents), 0
		}
	}
	return fn(batch)
}

// A batch of events passes from the goroutine that reads to the one that writes.
const (
	batchEvents = 512
	batchBytes  = 1 << 20
)
