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
	"thread/internal/store/bolt"
	"thread/internal/store/bolt/disk"
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

// write builds the new directory.
func (s *salvage) write(ctx context.Context, to string) (err error) {
	if s.st == nil {
		s.problem("the record of the ids that were given is lost")
	}
	cut := s.pruned()
	ids := make([]int64, 0, len(s.events))
	for id := range s.events {
		if id > cut {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	r, err := bolt.StartRestore(to, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	var e event.Event
	saved := ids[:0]
	for n, id := range ids {
		if err := ctx.Err(); err != nil {
			return err
		}
		s.far.Tell("saving events", int64(n), int64(len(ids)))
		o := s.events[id]
		if !s.load(&e, id, &o) {
			continue
		}
		if err := r.Event(&e); err != nil {
			return err
		}
		saved = append(saved, id)
		*[]*int64{&s.report.FromDatabase, &s.report.FromPrevious, &s.report.FromLines, &s.report.FromUnused}[o.kind]++
	}
	s.report.Saved = int64(len(saved))
	s.report.Lost = s.lost(cut, saved)
	if s.st != nil {
		s.report.LostMore = max(0, s.st.Stored-s.report.Saved-countIDs(s.report.Lost))
	}
	s.writeRest(r, cut, saved)
	lastID, known := s.lastGiven()
	lastID = max(lastID, r.Head())
	if n := len(s.report.Lost); n > 0 {
		lastID = max(lastID, s.report.Lost[n-1].Last)
	}
	if !known {
		s.report.Unknown = s.unknown(lastID, saved, s.report.Lost)
	}
	// What is not known counts as given, so that ids and the count stay in step.
	count := lastID
	if s.st != nil {
		count = s.st.Count + lastID - s.st.LastID
	}
	r.SetLinesOff(s.linesOff)
	if err := r.Finish(lastID, max(0, count-s.report.Saved)); err != nil {
		return err
	}
	s.report.NextID = lastID + 1
	return r.Publish()
}

// load reads an event from where it was found. Pieces of its content may have been
// found in a worse place, which is noted in o.
func (s *salvage) load(e *event.Event, id int64, o *origin) bool {
	if o.kind == fromLines {
		line := make([]byte, o.n)
		if _, err := s.files[o.file].ReadAt(line, o.at); err != nil {
			return false
		}
		v, ok := parseLine(line)
		*e = v
		return ok && v.ID == id
	}
	el, ok := s.element(o.page, o.index, o.value)
	if !ok {
		return false
	}
	if o.value != nil {
		el.Key = o.key
	}
	g, err := disk.OpenGroup(el.Key, el.Value)
	var r disk.Record
	for more := true; err == nil && more && g.ID != id; {
		more, err = g.Next(&r)
	}
	if err != nil || g.ID != id || g.Read == 0 {
		return false
	}
	content := string(r.Content)
	if r.Pieces {
		var kind int
		if content, kind, ok = s.content(id, &r); !ok {
			return false
		}
		o.kind = max(o.kind, kind)
	}
	series := s.series[r.Series]
	if series == nil {
		return false
	}
	var at disk.TimeText
	*e = event.Event{
		ID: id, CreatedAt: at.Of(&r),
		Source: series.Source, Type: series.Type, Subtype: series.Subtype, Content: content,
	}
	return true
}

// writeRest writes everything but the events.
func (s *salvage) writeRest(r *bolt.Restore, cut int64, saved []int64) {
	for i, sub := range s.subs {
		if err := r.Subscription(*sub, uint64(i+1), sub.Options()); err != nil {
			s.problem("subscription %q: %v", sub.Consumer, err)
			continue
		}
		s.report.Subscriptions++
	}
	for _, p := range s.progress {
		p.Newest = min(p.Newest, r.Head())
		if err := r.Progress(p.Consumer, p.ProgressRecord); err != nil {
			s.problem("progress of %q: %v", p.Consumer, err)
			continue
		}
		s.report.Progress++
	}
	s.soundExtras(cut, saved)
	for _, x := range s.extras {
		if err := r.Extra(x); err != nil {
			s.problem("bucket %q: %v", x.Bucket, err)
		}
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
