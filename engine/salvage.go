package engine

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"

	"thread/event"
	"thread/index"
	"thread/jsonlog"
)

// trees collects the records below one meta page. What was found before stays.
func (s *salvage) trees(w *treeWalk) error {
	newest := s.kind == fromDatabase
	if newest {
		w.fault = func(place, what string) { s.problem("%s %s", place, what) }
	}
	var last []byte
	buckets := make(map[string][]byte)
	var names []string
	w.tree("", w.meta.root, 0, &last, func(e *element) {
		if e.bucket {
			buckets[string(e.key)] = e.value
			names = append(names, string(e.key))
		}
	})
	var format, st []byte
	if head, ok := buckets[string(bucketMeta)]; ok {
		w.bucket(string(bucketMeta), head, func(e *element) {
			switch string(e.key) {
			case string(keyFormat):
				format = e.value
			case string(keyState):
				st = e.value
			}
		})
	}
	if err := checkFormat(format); errors.Is(err, ErrNewerFormat) {
		return err
	}
	state, err := decodeState(st)
	if err == nil && s.st == nil {
		s.st = &state
	}
	visit := func(name []byte, fn func(e *element)) {
		if head, ok := buckets[string(name)]; ok {
			w.bucket(string(name), head, fn)
		} else if newest {
			s.problem("bucket %s is missing", name)
		}
	}
	visit(bucketSeriesByID, s.addSeries)
	visit(bucketColumns, s.addColumn)
	visit(bucketEvents, s.addEvent)
	visit(bucketSubscriptions, s.addSubscription)
	visit(bucketProgress, s.addProgress)
	if newest {
		for _, name := range names {
			if !isOurs(name) {
				s.addExtra(w, []string{name}, buckets[name], 0)
			}
		}
	}
	return nil
}

// unused looks for records in the leaf pages that no tree has.
func (s *salvage) unused(used map[uint64]bool) {
	for id := uint64(2); id < s.pages.pages; id++ {
		if used[id] {
			continue
		}
		if g, err := s.pages.read(id); err == nil && g.flags == pageLeaf {
			s.leaf(g)
			id += g.overflow
		}
	}
}

func (s *salvage) leaf(g *page) {
	for i := range g.count {
		e, err := g.element(i)
		if err != nil {
			continue
		}
		if e.bucket {
			if inline, ok := inlinePage(e.value); ok && g.id != 0 {
				s.leaf(inline)
			}
			continue
		}
		s.addSeries(&e)
		s.addEvent(&e)
		s.addSubscription(&e)
		s.addProgress(&e)
	}
}

func (s *salvage) addSeries(e *element) {
	id, ok := keyID(e.key)
	if !ok || s.series[id] != nil {
		return
	}
	if v, err := index.DecodeSeries(id, e.value); err == nil {
		s.series[id] = &v
	}
}

func (s *salvage) addColumn(e *element) {
	b, err := index.DecodeBlock(e.key, e.value)
	if err != nil || s.st != nil && b.Last > s.st.head {
		return
	}
	for i := range b.Count {
		s.columns = append(s.columns, b.ID(i))
	}
}

func (s *salvage) addEvent(e *element) {
	id, err := eventID(e.key)
	if err != nil || id <= 0 || s.st != nil && id > s.st.head {
		return
	}
	if _, known := s.events[id]; known {
		return
	}
	r, err := decodeRecord(e.key, e.value)
	if err != nil {
		return
	}
	o := origin{kind: s.kind, series: r.series, page: e.page, index: e.index}
	if e.page == 0 {
		o.value = bytes.Clone(e.value)
	}
	s.events[id] = o
}

// addSubscription takes a subscription that an unused page still has only when
// the database lost some: it may have been removed on purpose.
func (s *salvage) addSubscription(e *element) {
	sub, err := decodeSubscription(e.key, bytes.Clone(e.value))
	if err != nil || sub.Handler == "" || s.kind != fromDatabase && !s.damaged() {
		if s.kind == fromDatabase {
			s.problem("subscription %q is damaged", e.key)
		}
		return
	}
	for _, known := range s.subs {
		if known.Consumer == sub.Consumer {
			return
		}
	}
	if s.kind != fromDatabase {
		s.problem("subscription %q was found in an older page; it may have been removed since", sub.Consumer)
	}
	at, _ := slices.BinarySearchFunc(s.subs, sub.ordinal, func(a *Subscription, ordinal uint64) int {
		if a.ordinal < ordinal {
			return -1
		}
		return 1
	})
	s.subs = slices.Insert(s.subs, at, sub)
}

// damaged reports whether the newest state of the database has a fault.
func (s *salvage) damaged() bool { return len(s.report.Problems) > 0 }

func (s *salvage) addProgress(e *element) {
	p, err := decodeProgress(e.key, e.value)
	if err != nil || len(e.key) < 2 || e.key[0] != 'c' || s.kind != fromDatabase && !s.damaged() {
		if s.kind == fromDatabase {
			s.problem("progress %q is damaged", e.key)
		}
		return
	}
	found := ConsumerProgress{string(e.key[1:]), p}
	for i, known := range s.progress {
		if known.Consumer != found.Consumer {
			continue
		}
		// Of several old ones the smallest: events are rather delivered again.
		if s.kind == fromUnused && known.LastAcked > p.LastAcked {
			s.progress[i] = found
		}
		return
	}
	if s.kind != fromDatabase {
		s.problem("progress of %q was found in an older page; events may be delivered again", found.Consumer)
	}
	s.progress = append(s.progress, found)
}

func (s *salvage) addExtra(w *treeWalk, path []string, head []byte, depth int) {
	if len(head) < bucketHeadBytes || depth > maxTreeDepth {
		return
	}
	s.extras = append(s.extras, Extra{Bucket: path, Sequence: binary.NativeEndian.Uint64(head[8:])})
	w.bucket(path[0], head, func(e *element) {
		if e.bucket {
			s.addExtra(w, append(slices.Clone(path), string(e.key)), bytes.Clone(e.value), depth+1)
			return
		}
		s.extras = append(s.extras, Extra{Bucket: path, Key: bytes.Clone(e.key), Value: bytes.Clone(e.value)})
	})
}

// readLines notes the lines of events that the database lost.
func (s *salvage) readLines() error {
	names, err := lineFileNames(s.src.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		f, err := os.OpenFile(name, os.O_RDONLY|openNoFollow|openNoWait, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			s.problem("%v", err)
			continue
		}
		s.files = append(s.files, f)
		if err := s.readLineFile(f); err != nil {
			s.problem("%s: %v", name, err)
		}
	}
	return nil
}

func (s *salvage) readLineFile(f *os.File) error {
	r := bufio.NewReaderSize(f, 64<<10)
	at := int64(0)
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			if err == io.EOF {
				return nil
			}
			return err
		}
		start := at
		at += int64(len(line))
		line = line[:len(line)-1]
		id, ok := jsonlog.LineID(line)
		if !ok || id <= 0 {
			continue
		}
		if o, known := s.events[id]; known && o.kind < fromLines && s.series[o.series] != nil {
			continue
		}
		if _, ok := parseLine(line); !ok {
			s.named = append(s.named, id)
			continue
		}
		s.events[id] = origin{kind: fromLines, file: len(s.files) - 1, at: start, n: len(line)}
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

// load reads an event from where it was found.
func (s *salvage) load(e *event.Event, id int64, o origin) bool {
	if o.kind == fromLines {
		line := make([]byte, o.n)
		if _, err := s.files[o.file].ReadAt(line, o.at); err != nil {
			return false
		}
		v, ok := parseLine(line)
		*e = v
		return ok && v.ID == id
	}
	key, value := eventKey(id), o.value
	if value == nil {
		g, err := s.pages.read(o.page)
		if err != nil {
			return false
		}
		el, err := g.element(o.index)
		if err != nil {
			return false
		}
		value = el.value
	}
	r, err := decodeRecord(key, value)
	if err != nil {
		return false
	}
	series := s.series[r.series]
	if series == nil {
		return false
	}
	var at timeText
	*e = event.Event{
		ID: id, CreatedAt: at.of(&r),
		Source: series.Source, Type: series.Type, Subtype: series.Subtype, Content: string(r.content),
	}
	return true
}
