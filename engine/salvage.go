package engine

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
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
	w.tree("", w.meta.root, 0, nil, &last, func(e *element) {
		if e.bucket {
			buckets[string(e.key)] = e.value
			names = append(names, string(e.key))
		}
	})
	var format, st []byte
	if head, ok := buckets[string(bucketMeta)]; ok {
		w.bucket(string(bucketMeta), head, func(e *element) {
			s.see(string(bucketMeta), e)
			switch string(e.key) {
			case string(keyFormat):
				format = e.value
			case string(keyState):
				st = e.value
			}
		})
	}
	if _, err := decodeFormat(format); errors.Is(err, ErrNewerFormat) {
		return err
	}
	state, err := decodeState(st)
	if err == nil && s.st == nil {
		s.st, s.stateOf = &state, s.kind
	}
	visit := func(name []byte, fn func(e *element)) {
		if head, ok := buckets[string(name)]; ok {
			w.bucket(string(name), head, func(e *element) {
				s.see(string(name), e)
				fn(e)
			})
		} else if newest {
			s.problem("bucket %s is missing", name)
		}
	}
	visit(bucketSeriesByID, s.addSeries)
	visit(bucketColumns, s.addColumn)
	visit(bucketEvents, s.addEvent)
	if head, ok := buckets[string(bucketPieces)]; ok {
		w.bucket(string(bucketPieces), head, func(e *element) {
			s.see(string(bucketPieces), e)
			s.addPiece(e)
		})
	}
	visit(bucketSubscriptions, s.addSubscription)
	visit(bucketProgress, s.addProgress)
	if newest {
		for _, name := range names {
			if !isOurs(name) && name != string(bucketPieces) {
				s.addExtra(w, []string{name}, buckets[name], 0)
			}
		}
	}
	return nil
}

// unfinished reports whether an id is of a batch that did not end, as far as the
// newest state can be believed. It was not given.
func (s *salvage) unfinished(id int64) bool {
	return s.kind == fromDatabase && s.st != nil && !s.badMetas && id > s.st.head
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
		s.see("", &e)
		s.addSeries(&e)
		s.addEvent(&e)
		s.addPiece(&e)
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
	g, err := openGroup(e.key, e.value)
	if err != nil {
		return
	}
	var key, value []byte
	if e.page == 0 {
		key, value = bytes.Clone(e.key), bytes.Clone(e.value)
	}
	for {
		var r record
		more, err := g.next(&r)
		if !more || err != nil || g.id <= 0 || s.st != nil && g.id > s.st.head {
			return
		}
		if _, known := s.events[g.id]; !known {
			s.events[g.id] = origin{kind: s.kind, series: r.series, pieces: r.pieces, page: e.page, index: e.index, key: key, value: value}
		}
	}
}

// pieceOrigin says where a piece of a content is.
type pieceOrigin struct {
	kind   int
	n, crc uint32
	page   uint64
	index  int
	value  []byte // or the piece itself
}

func (s *salvage) addPiece(e *element) {
	id, n, crc, ok := splitPieceKey(e.key, e.value)
	if !ok {
		return
	}
	for _, known := range s.pieces[id] {
		if known.n == n && known.crc == crc {
			return
		}
	}
	p := pieceOrigin{kind: s.kind, n: n, crc: crc, page: e.page, index: e.index}
	if e.page == 0 {
		p.value = bytes.Clone(e.value)
	}
	s.pieces[id] = append(s.pieces[id], p)
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
		s.see(path[0], e)
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
		f, err := openLines(name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotRegular) {
			continue // no lines
		}
		if err != nil {
			s.problem("%s: %v", filepath.Base(name), err)
			continue
		}
		s.files = append(s.files, f)
		if err := s.readLineFile(f); err != nil {
			s.problem("%s: %v", filepath.Base(name), err)
		}
	}
	return nil
}

// maxLineBytes is more than any event's line has: all of its texts escaped.
const maxLineBytes = 6*(event.MaxContentBytes+3*event.MaxNameBytes) + 4096

// maxIDStep is how far the id of a line that is damaged may lie above that of the
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
		el.key = o.key
	}
	g, err := openGroup(el.key, el.value)
	var r record
	for more := true; err == nil && more && g.id != id; {
		more, err = g.next(&r)
	}
	if err != nil || g.id != id || g.read == 0 {
		return false
	}
	content := string(r.content)
	if r.pieces {
		var kind int
		if content, kind, ok = s.content(id, &r); !ok {
			return false
		}
		o.kind = max(o.kind, kind)
	}
	series := s.series[r.series]
	if series == nil {
		return false
	}
	var at timeText
	*e = event.Event{
		ID: id, CreatedAt: at.of(&r),
		Source: series.Source, Type: series.Type, Subtype: series.Subtype, Content: content,
	}
	return true
}

// element returns the key and value of an element of a page, or only the value
// where that is known.
func (s *salvage) element(page uint64, i int, value []byte) (e element, ok bool) {
	if value != nil {
		return element{value: value}, true
	}
	g, err := s.pages.read(page)
	if err != nil || i >= g.count {
		return e, false
	}
	e, err = g.element(i)
	return e, err == nil
}

// content puts a large content together. Of a piece that was found with different
// bytes, as when an id was given twice because a batch did not end, the first one
// found is tried first. Kind is the worst place that one came from.
func (s *salvage) content(id int64, r *record) (content string, kind int, ok bool) {
	found := make([][]pieceOrigin, (r.size+pieceBytes-1)/pieceBytes)
	most := 1
	for _, p := range s.pieces[id] {
		if int(p.n) < len(found) {
			found[p.n] = append(found[p.n], p)
			most = max(most, len(found[p.n]))
		}
	}
	for try := range most {
		a := assembly{size: r.size, want: r.sum}
		b := make([]byte, 0, r.size)
		kind = 0
		for _, ps := range found {
			if len(ps) == 0 {
				return "", 0, false
			}
			p := ps[min(try, len(ps)-1)]
			e, ok := s.element(p.page, p.index, p.value)
			if !ok || !a.add(p.n, p.crc, len(e.value)) {
				break
			}
			b = append(b, e.value...)
			kind = max(kind, p.kind)
		}
		if a.whole() {
			return text(b), kind, true
		}
	}
	return "", 0, false
}
