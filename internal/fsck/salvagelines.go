package fsck

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"thread/event"
	"thread/jsonlog"
)

// readLines notes the lines of events that the database lost.
func (s *salvage) readLines() error {
	names, err := lineFileNames(s.src.Dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		f, err := openLines(name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotRegular) {
			continue // no lines
		}
		if err != nil {
			s.problem("%s: %v", filepath.Base(name), err)
			continue
		}
		s.files = append(s.files, f)
		if err := s.readLineFile(f); s.ctx.Err() != nil {
			return context.Cause(s.ctx)
		} else if err != nil {
			s.problem("%s: %v", filepath.Base(name), err)
		}
	}
	return nil
}

// maxLineBytes is more than any event's line has: all of its texts escaped.
const maxLineBytes = 6*(event.MaxContentBytes+3*event.MaxNameBytes) + 4096

// maxIDStep is how far the id of a line that is damaged may lie above the id of the
// line before it and be believed.
const maxIDStep = 1 << 20

func (s *salvage) readLineFile(f *os.File) error {
	lines := jsonlog.NewLines(f)
	last, ends := int64(0), false
	var buf []byte
	var e event.Event
	for {
		more, err := lines.Next()
		if err != nil || !more {
			if s.newestLine = 0; ends { // of events.jsonl in the end
				s.newestLine = last
			}
			return err
		}
		if s.ctx.Err() != nil {
			return context.Cause(s.ctx)
		}
		id, ok := lines.ID()
		whole, err := lines.Whole()
		if err != nil {
			return err
		}
		if ends = false; !ok {
			continue
		}
		at, n := lines.Offset, lines.Length()
		if o, known := s.events[id]; known && o.kind < fromLines && s.series[o.series] != nil && (!o.pieces || s.load(&e, id, &o)) {
			last, ends = id, whole
			continue
		}
		sound := whole && n <= maxLineBytes
		if sound {
			buf = slices.Grow(buf[:0], int(n))[:n]
			if _, err := f.ReadAt(buf, at); err != nil {
				return err
			}
			_, sound = parseLine(buf)
		}
		if !sound {
			if id > last && id-last <= maxIDStep {
				s.saw(id)
				s.named = append(s.named, id)
			}
			continue
		}
		last, ends = id, true
		s.far.Tell("reading lines", lines.Number, 0)
		s.saw(id)
		s.events[id] = origin{kind: fromLines, file: len(s.files) - 1, at: at, n: int(n)}
	}
}

// parseLine reads a line of events.jsonl. It must be exactly what its event is
// written as.
func parseLine(line []byte) (e event.Event, ok bool) {
	var v struct {
		ID        int64   `json:"id"`
		CreatedAt string  `json:"created_at"`
		Source    string  `json:"source"`
		Type      string  `json:"type"`
		Subtype   *string `json:"subtype"`
		Content   string  `json:"content"`
	}
	if err := json.Unmarshal(line, &v); err != nil {
		return e, false
	}
	e = event.Event(v)
	return e, string(e.AppendJSON(nil)) == string(line)
}
