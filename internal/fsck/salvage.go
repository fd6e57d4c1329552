package fsck

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"slices"

	"thread/engine"
	"thread/index"
	"thread/internal/store"
	"thread/internal/store/bolt"
	"thread/internal/store/bolt/disk"
)

// trees collects the records below one meta page. What was found before stays.
func (s *salvage) trees(w *disk.TreeWalk) error {
	newest := s.kind == fromDatabase
	if newest {
		w.Fault = func(place, what string) { s.problem("%s %s", place, what) }
	}
	var last []byte
	buckets := make(map[string][]byte)
	var names []string
	w.Tree("", w.Meta.Root, 0, nil, &last, func(e *disk.Element) {
		if e.Bucket {
			buckets[string(e.Key)] = e.Value
			names = append(names, string(e.Key))
		}
	})
	var format, st, record []byte
	var of changes
	meta := func(e *disk.Element) {
		s.see(string(store.Meta), e)
		switch string(e.Key) {
		case string(disk.KeyFormat):
			format = e.Value
		case string(disk.KeyState):
			if _, err := disk.DecodeState(e.Value); err == nil || st == nil {
				st = e.Value
			}
		case string(disk.KeyJournal):
			record = e.Value
		case string(disk.KeyLines):
			if newest {
				s.addLines(e)
			}
		}
	}
	if head, ok := buckets[string(store.Meta)]; ok {
		w.Bucket(string(store.Meta), head, meta)
	}
	if newest {
		var j bolt.Journal
		defer j.Close()
		var err error
		if of, err = readChanges(&j, s.src, record, w, buckets); err != nil {
			s.problem("%v", err)
			s.badMetas = true // the state may be an older one
			s.behind = byName(j.Sound(storedIn(w, buckets)))
		}
		names = of.add(buckets, names)
		for _, c := range []changes{of, s.behind} {
			c.merge(string(store.Meta), nil, meta).rest()
		}
	}
	if _, err := disk.DecodeFormat(format); errors.Is(err, engine.ErrNewerFormat) || errors.Is(err, store.ErrOldFormat) {
		return err
	}
	state, err := disk.DecodeState(st)
	if err == nil && s.st == nil {
		s.st, s.stateOf = &state, s.kind
	}
	visit := func(name []byte, fn func(e *disk.Element)) {
		if head, ok := buckets[string(name)]; ok {
			s.merged(w, of, string(name), head, fn)
		} else if newest {
			s.problem("bucket %s is missing", name)
		}
	}
	visit(disk.BucketSeriesByID, s.addSeries)
	visit(disk.BucketColumns, s.addColumn)
	visit(disk.BucketEvents, s.addEvent)
	if head, ok := buckets[string(store.Pieces)]; ok {
		s.merged(w, of, string(store.Pieces), head, s.addPiece)
	}
	visit(disk.BucketSubscriptions, s.addSubscription)
	visit(disk.BucketProgress, s.addProgress)
	if newest {
		for _, name := range names {
			if !store.Essential(store.Table(name)) && name != string(store.Pieces) {
				s.addExtra(w, of, []string{name}, buckets[name], 0)
			}
		}
	}
	return nil
}

// merged calls fn for the entries of a bucket, with what the journal changes in them.
// What a damaged journal has comes first, and what the pages have behind it: the first one
// that is sound is taken.
func (s *salvage) merged(w *disk.TreeWalk, of changes, name string, head []byte, fn func(e *disk.Element)) {
	see := func(e *disk.Element) {
		s.see(name, e)
		fn(e)
	}
	m := of.merge(name, nil, see)
	each := m.stored
	if s.behind[name] != nil {
		s.behind.merge(name, nil, see).rest()
		m.rest()
		each = see
	}
	w.Bucket(name, head, each)
	m.rest()
}

// unused looks for records in the leaf pages that no tree has.
func (s *salvage) unused(used map[uint64]bool) error {
	for id := uint64(2); id < s.pages.Pages; id++ {
		if used[id] {
			continue
		}
		if s.ctx.Err() != nil {
			return context.Cause(s.ctx)
		}
		s.far.Tell("reading unused pages", int64(id), int64(s.pages.Pages))
		if g, err := s.pages.Read(id); err == nil && g.Flags == disk.PageLeaf {
			s.leaf(g)
			id += g.Overflow
		}
	}
	return nil
}

func (s *salvage) leaf(g *disk.Page) {
	for i := range g.Count {
		e, err := g.Element(i)
		if err != nil {
			continue
		}
		if e.Bucket {
			if inline, ok := disk.InlinePage(e.Value); ok && g.ID != 0 {
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

func (s *salvage) addSeries(e *disk.Element) {
	id, ok := keyID(e.Key)
	if !ok || s.series[id] != nil {
		return
	}
	if v, err := index.DecodeSeries(id, e.Value); err == nil {
		s.series[id] = &v
	}
}

func (s *salvage) addColumn(e *disk.Element) {
	b, err := index.DecodeBlock(e.Key, e.Value)
	if err != nil || s.st != nil && b.Last > s.st.Head {
		return
	}
	for i := range b.Count {
		s.columns = append(s.columns, b.ID(i))
	}
}

func (s *salvage) addEvent(e *disk.Element) {
	g, err := disk.OpenGroup(e.Key, e.Value)
	if err != nil {
		return
	}
	var key, value []byte
	if e.Page == 0 {
		key, value = bytes.Clone(e.Key), bytes.Clone(e.Value)
	}
	for {
		var r disk.Record
		more, err := g.Next(&r)
		if !more || err != nil || g.ID <= 0 || s.st != nil && g.ID > s.st.Head {
			return
		}
		if _, known := s.events[g.ID]; !known {
			s.far.Tell("reading events", int64(len(s.events)), s.stored())
			s.events[g.ID] = origin{kind: s.kind, series: r.Series, pieces: r.Pieces, page: e.Page, index: e.Index, key: key, value: value}
		}
	}
}

// stored is how many events there were, 0 when that is lost.
func (s *salvage) stored() int64 {
	if s.st == nil {
		return 0
	}
	return s.st.Stored
}

// pieceOrigin says where a piece of a content is.
type pieceOrigin struct {
	kind   int
	n, crc uint32
	page   uint64
	index  int
	value  []byte // or the piece itself
}

func (s *salvage) addPiece(e *disk.Element) {
	id, n, crc, ok := disk.SplitPieceKey(e.Key, e.Value)
	if !ok {
		return
	}
	for _, known := range s.pieces[id] {
		if known.n == n && known.crc == crc {
			return
		}
	}
	p := pieceOrigin{kind: s.kind, n: n, crc: crc, page: e.Page, index: e.Index}
	if e.Page == 0 {
		p.value = bytes.Clone(e.Value)
	}
	s.pieces[id] = append(s.pieces[id], p)
}

// addSubscription takes a subscription that an unused page still has only when
// the database lost some: it may have been removed on purpose.
func (s *salvage) addSubscription(e *disk.Element) {
	sub, err := store.DecodeSubscription(e.Key, bytes.Clone(e.Value))
	if err != nil || sub.Handler == "" || s.kind != fromDatabase && !s.damaged() {
		if s.kind == fromDatabase {
			s.problem("subscription %q is damaged", e.Key)
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
	at, _ := slices.BinarySearchFunc(s.subs, sub.Ordinal, func(a *store.Subscription, ordinal uint64) int {
		if a.Ordinal < ordinal {
			return -1
		}
		return 1
	})
	s.subs = slices.Insert(s.subs, at, sub)
}

// damaged reports whether the newest state of the database has a fault.
func (s *salvage) damaged() bool { return len(s.report.Problems) > 0 }

func (s *salvage) addProgress(e *disk.Element) {
	p, err := store.DecodeProgress(e.Key, e.Value)
	if err != nil || len(e.Key) < 2 || e.Key[0] != 'c' || s.kind != fromDatabase && !s.damaged() {
		if s.kind == fromDatabase {
			s.problem("progress %q is damaged", e.Key)
		}
		return
	}
	found := store.ConsumerProgress{Consumer: string(e.Key[1:]), ProgressRecord: p}
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

func (s *salvage) addExtra(w *disk.TreeWalk, of changes, path []string, head []byte, depth int) {
	if len(head) < disk.BucketHeadBytes || depth > disk.MaxTreeDepth {
		return
	}
	sequence := binary.NativeEndian.Uint64(head[8:])
	if depth == 0 {
		sequence = of.sequence(path[0], head)
	}
	s.extras = append(s.extras, store.Extra{Bucket: path, Sequence: sequence})
	each := func(e *disk.Element) {
		if e.Bucket {
			s.addExtra(w, of, append(slices.Clone(path), string(e.Key)), bytes.Clone(e.Value), depth+1)
			return
		}
		s.see(path[0], e)
		s.extras = append(s.extras, store.Extra{Bucket: path, Key: bytes.Clone(e.Key), Value: bytes.Clone(e.Value)})
	}
	if depth > 0 {
		w.Bucket(path[0], head, each)
		return
	}
	m := of.merge(path[0], nil, each)
	w.Bucket(path[0], head, m.stored)
	m.rest()
}

// element returns the key and value of an element of a page, or only the value
// where that is known.
func (s *salvage) element(page uint64, i int, value []byte) (e disk.Element, ok bool) {
	if value != nil {
		return disk.Element{Value: value}, true
	}
	g, err := s.pages.Read(page)
	if err != nil || i >= g.Count {
		return e, false
	}
	e, err = g.Element(i)
	return e, err == nil
}

// content puts a large content together. Of a piece that was found with different
// bytes, as when an id was given twice because a batch did not end, the first one
// found is tried first. Kind is the worst place that one came from.
func (s *salvage) content(id int64, r *disk.Record) (content string, kind int, ok bool) {
	found := make([][]pieceOrigin, (r.Size+disk.PieceBytes-1)/disk.PieceBytes)
	most := 1
	for _, p := range s.pieces[id] {
		if int(p.n) < len(found) {
			found[p.n] = append(found[p.n], p)
			most = max(most, len(found[p.n]))
		}
	}
	for try := range most {
		a := disk.Assembly{Size: r.Size, Want: r.Sum}
		b := make([]byte, 0, r.Size)
		kind = 0
		for _, ps := range found {
			if len(ps) == 0 {
				return "", 0, false
			}
			p := ps[min(try, len(ps)-1)]
			e, ok := s.element(p.page, p.index, p.value)
			if !ok || !a.Add(p.n, p.crc, len(e.Value)) {
				break
			}
			b = append(b, e.Value...)
			kind = max(kind, p.kind)
		}
		if a.Whole() {
			return bolt.Text(b), kind, true
		}
	}
	return "", 0, false
}

// journalAlone takes what the journal has of a database that is lost. Zeros stand for the
// bytes that a record kept of a value in events.db: the sum of that value does not fit.
func (s *salvage) journalAlone() {
	var j bolt.Journal
	defer j.Close()
	all := byName(j.Alone(s.src))
	if len(all) == 0 {
		return
	}
	s.problem("%s is lost: saved is what %s has by itself", bolt.DatabaseName, bolt.JournalName)
	s.kind, s.badMetas = fromDatabase, true
	for _, of := range []struct {
		name []byte
		fn   func(e *disk.Element)
	}{{disk.BucketMeta, s.addState}, {disk.BucketSeriesByID, s.addSeries}, {disk.BucketColumns, s.addColumn}, {disk.BucketEvents, s.addEvent},
		{[]byte(store.Pieces), s.addPiece}, {disk.BucketSubscriptions, s.addSubscription}, {disk.BucketProgress, s.addProgress}} {
		all.merge(string(of.name), nil, func(e *disk.Element) {
			s.see(string(of.name), e)
			of.fn(e)
		}).rest()
	}
}
