package engine

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"go.etcd.io/bbolt"

	"thread/event"
	"thread/index"
)

// Tx is one transaction on a thread. It is valid only during the function it was
// given to, and only on that goroutine.
type Tx struct {
	t      *Thread
	b      *bbolt.Tx
	format uint32 // of the file: formatFirst to formatVersion
	st     state

	meta, events, columns, subscriptions, progress *bbolt.Bucket
	pieces                                         *bbolt.Bucket // once written to
	dict                                           *index.Dictionary

	createdAt timeText // the latest created_at, which many events share
	slab      []byte   // room for new keys and records, in format 1
	groups    groupWriter

	tail    *tail              // the events behind the last column block, once needed
	pushed  func(*event.Event) // told of every new event, to write events.jsonl
	changed bool               // st differs from what is stored
	pushes  bool               // drafts were pushed, if only duplicates
	goesOn  bool               // nothing of it is visible before a later transaction
	keyed   int                // dedupe keys added

	ctx context.Context // ends long work in this transaction; nil where there is none
}

// ended returns an error once the call that the transaction works for is called
// off.
func (tx *Tx) ended() error {
	if tx.ctx == nil || tx.ctx.Err() == nil {
		return nil
	}
	return context.Cause(tx.ctx)
}

// endedEvery is how many records are gone through between two looks at the
// context.
const endedEvery = 64

// tail holds the events that no column block covers yet.
type tail struct {
	ids    []int64
	series []uint32
	times  index.Times
	block  index.Block
}

// asBlock returns the tail in the form of a block.
func (t *tail) asBlock() *index.Block {
	if t.block.Count != len(t.ids) {
		t.block = index.NewBlock(t.ids, t.series, t.times)
	}
	return &t.block
}

func newTx(t *Thread, b *bbolt.Tx) (*Tx, error) {
	tx := &Tx{t: t, b: b}
	if err := index.CheckTree(b.Cursor().Bucket()); err != nil {
		return nil, err
	}
	for _, want := range []struct {
		name []byte
		to   **bbolt.Bucket
	}{
		{bucketMeta, &tx.meta}, {bucketEvents, &tx.events}, {bucketColumns, &tx.columns},
		{bucketSubscriptions, &tx.subscriptions}, {bucketProgress, &tx.progress},
	} {
		if *want.to = b.Bucket(want.name); *want.to == nil {
			return nil, fmt.Errorf("%w: no bucket %q", ErrNotDatabase, want.name)
		}
		if len(want.name) == len(bucketMeta) {
			var err error
			if tx.format, err = decodeFormat(tx.meta.Get(keyFormat)); err != nil {
				return nil, err
			}
		}
	}
	byKey, err := index.Bucket(b, bucketSeries)
	if err != nil {
		return nil, err
	}
	byID, err := index.Bucket(b, bucketSeriesByID)
	if err != nil {
		return nil, err
	}
	if byKey == nil || byID == nil {
		return nil, fmt.Errorf("%w: no bucket %q", ErrNotDatabase, bucketSeries)
	}
	tx.dict = dictionary(b, tx.meta, byKey, byID, tx.format)
	tx.groups = groupWriter{events: tx.events, pieces: tx.piecesBucket}
	if b.Writable() {
		for _, appended := range []*bbolt.Bucket{tx.events, tx.columns} {
			if err := index.CheckLast(appended); err != nil {
				return nil, err
			}
		}
		// Ids only rise, so full pages are never split again.
		tx.events.FillPercent, tx.columns.FillPercent, byID.FillPercent = 1, 1, 1
	}
	if err := index.CheckPath(tx.meta, keyState); err != nil {
		return nil, err
	}
	tx.st, err = decodeState(tx.meta.Get(keyState))
	return tx, err
}

// dictionary returns the series of a database of that format.
func dictionary(b *bbolt.Tx, meta, byKey, byID *bbolt.Bucket, format uint32) *index.Dictionary {
	d := index.NewDictionary(byKey, byID)
	if format >= 2 {
		open := func(name []byte) func() (*bbolt.Bucket, error) {
			return func() (*bbolt.Bucket, error) { return index.Bucket(b, name) }
		}
		d.WithTypes(meta, open(bucketTypes), open(bucketTypeBlocks))
	}
	return d
}

// Head returns the id of the newest event, 0 when there was never one.
func (tx *Tx) Head() int64 { return tx.st.head }

// Push stores one event in this transaction and returns it. It returns
// ErrInvalid for a draft that is out of bounds and ErrIDsExhausted after id
// 2^63-1. For a draft whose dedupe key is known, nothing is stored and the first
// event returned. Push is for a few events; PushAll stores many.
func (tx *Tx) Push(d event.Draft) (event.Event, error) {
	if err := d.Validate(); err != nil {
		return event.Event{}, err
	}
	e, _, err := tx.pushOnce(&d, event.FormatTime(tx.t.now()))
	return e, err
}

func (tx *Tx) push(d *event.Draft, createdAt string) (event.Event, error) {
	if tx.st.lastID == math.MaxInt64 {
		return event.Event{}, ErrIDsExhausted
	}
	e := event.Event{ID: tx.st.lastID + 1, CreatedAt: createdAt, Source: d.Source, Type: d.Type, Subtype: d.Subtype, Content: d.Content}
	return e, tx.insert(&e)
}

// insert stores an event whose id is above all others.
func (tx *Tx) insert(e *event.Event) error {
	series, err := tx.dict.Add(e.Source, e.Type, e.Subtype, e.ID)
	if err != nil {
		return err
	}
	if err := tx.putEvent(e, series); err != nil {
		return err
	}
	if err := tx.addToColumn(e.ID, series); err != nil {
		return err
	}
	tx.st.head, tx.st.lastID = e.ID, e.ID
	tx.st.count++
	tx.st.stored++
	tx.changed = true
	if tx.pushed != nil {
		tx.pushed(e)
	}
	return nil
}

// putEvent stores an event in bucket events.
func (tx *Tx) putEvent(e *event.Event, series uint32) error {
	if tx.format == 1 {
		return tx.events.Put(tx.newRecord(e, series))
	}
	tx.createdAt.setText(e.CreatedAt)
	if tx.groups.g.key == nil {
		if err := tx.groups.resume(); err != nil {
			return err
		}
	}
	return tx.groups.add(e.ID, series, &tx.createdAt, e.Content)
}

// piecesBucket returns the bucket for large contents, in a write transaction.
func (tx *Tx) piecesBucket() (*bbolt.Bucket, error) {
	if tx.pieces == nil {
		b, err := tx.later(bucketPieces)
		if err == nil {
			err = index.CheckLast(b)
		}
		if err != nil {
			return nil, err
		}
		b.FillPercent = 1
		tx.pieces = b
	}
	return tx.pieces, nil
}

// newRecord returns key and value of an event. bbolt keeps both until the commit,
// so a batch takes them from a slab and not one by one from the heap.
func (tx *Tx) newRecord(e *event.Event, series uint32) (key, value []byte) {
	tx.createdAt.setText(e.CreatedAt)
	if need := 8 + recordBytes(e); cap(tx.slab)-len(tx.slab) < need {
		size := max(need, min(2*cap(tx.slab), 1<<20))
		tx.slab = make([]byte, 0, size)
	}
	start := len(tx.slab)
	b := binary.BigEndian.AppendUint64(tx.slab, uint64(e.ID))
	key = b[start:len(b):len(b)]
	tx.slab = appendRecord(b, key, series, &tx.createdAt, e.Content)
	return key, tx.slab[len(b):len(tx.slab):len(tx.slab)]
}

// addToColumn counts the event, whose created_at is the latest, into the tail,
// and turns a full tail into a block.
func (tx *Tx) addToColumn(id int64, series uint32) error {
	if tx.tail == nil && tx.st.tail+1 == index.BlockEvents {
		if _, err := tx.loadTail(id - 1); err != nil {
			return err
		}
	}
	tx.st.tail++
	if tx.tail == nil {
		return nil
	}
	tx.tail.ids, tx.tail.series = append(tx.tail.ids, id), append(tx.tail.series, series)
	tx.tail.times.Add(tx.createdAt.ms, tx.createdAt.exact)
	if len(tx.tail.ids) < index.BlockEvents {
		return nil
	}
	err := tx.columns.Put(eventKey(tx.tail.ids[0]), index.EncodeBlock(tx.tail.ids, tx.tail.series, tx.tail.times))
	tx.tail, tx.st.tail = &tail{}, 0
	return err
}

// loadTail reads the series and times of the events behind the last block, up to head.
func (tx *Tx) loadTail(head int64) (*tail, error) {
	if tx.tail != nil {
		return tx.tail, nil
	}
	last, ok, err := index.LastBlock(tx.columns)
	if err != nil {
		return nil, err
	}
	from := int64(1)
	if ok {
		from = last.Last + 1
	}
	t := &tail{}
	c := tx.eventCursor()
	c.begin = openUnchecked
	if err := c.from(from); err != nil {
		return nil, err
	}
	for {
		more, err := c.next()
		if err != nil {
			return nil, err
		}
		id := c.g.id
		if !more || id > head {
			break
		}
		if id < from {
			continue
		}
		if len(t.ids) == index.BlockEvents {
			return nil, corruptEvent(c.g.key)
		}
		t.ids, t.series = append(t.ids, id), append(t.series, c.rec.series)
		t.times.Add(c.rec.at, c.rec.verbatim == nil)
	}
	if int64(len(t.ids)) != tx.st.tail {
		return nil, fmt.Errorf("%w: %d events behind the last column block, expected %d", ErrCorrupt, len(t.ids), tx.st.tail)
	}
	tx.tail = t
	return t, nil
}

func eventID(key []byte) (int64, error) {
	if len(key) != 8 {
		return 0, corruptEvent(key)
	}
	return int64(binary.BigEndian.Uint64(key)), nil
}

// saveState writes the state if the transaction changed it.
func (tx *Tx) saveState() error {
	if err := tx.groups.flush(); err != nil {
		return err
	}
	atLeast := 0
	if tx.goesOn {
		atLeast = maxFresh
	}
	if err := tx.dict.Flush(atLeast); err != nil || !tx.changed {
		return err
	}
	return tx.meta.Put(keyState, tx.st.encode())
}

// eventsAfter calls fn for the visible events with id > after, in order. The
// event is only valid during the call; its content aliases the database.
func (tx *Tx) eventsAfter(after int64, fn func(e *event.Event) error) error {
	if after < 0 {
		after = 0
	}
	if after == math.MaxInt64 {
		return nil
	}
	c := tx.eventCursor()
	if err := c.from(after + 1); err != nil {
		return err
	}
	var e event.Event
	for n := 1; ; n++ {
		if n%endedEvery == 0 {
			if err := tx.ended(); err != nil {
				return err
			}
		}
		more, err := c.next()
		if !more || err != nil || c.g.id > tx.st.head {
			return err
		}
		if c.g.id <= after {
			continue
		}
		if err := tx.fill(&e, c.g.id, &c.rec); err != nil {
			return err
		}
		if err := fn(&e); err != nil {
			return err
		}
	}
}
