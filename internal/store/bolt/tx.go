package bolt

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"time"

	"go.etcd.io/bbolt"

	"thread/event"
	"thread/filter"
	"thread/index"
	"thread/internal/store"
	"thread/internal/store/bolt/disk"
)

// groupWriter appends events to bucket events in groups. The newest group is put
// when it is full, and by flush.
type groupWriter struct {
	events *index.Bucket
	pieces func() (*index.Bucket, error)

	g       disk.Group // the newest group; its key is nil when there is none
	buf     []byte     // its value, without the crc
	before  int        // the length of the first of the pair; -1: this is the first
	unsaved bool       // buf is not what was put
	slab    []byte     // space for values, which bbolt keeps until the commit
}

// flush puts the newest group, which can be appended to afterwards.
func (w *groupWriter) flush() error {
	if !w.unsaved {
		return nil
	}
	if need := len(w.buf) + disk.SumBytes; cap(w.slab)-len(w.slab) < need {
		w.slab = make([]byte, 0, max(need, min(2*cap(w.slab), 1<<20)))
	}
	start := len(w.slab)
	w.slab = append(w.slab, w.buf...)
	w.slab = binary.BigEndian.AppendUint32(w.slab, index.Sum(w.g.Key, w.buf))
	w.unsaved = false
	return w.events.Put(w.g.Key, w.slab[start:len(w.slab):len(w.slab)])
}

// openTable is a table that a transaction has used; nil in one that reads: there is none.
type openTable struct {
	name store.Table
	*index.Bucket
}

// progressOf is how far the searches with a selection are.
type progressOf struct {
	gone  int64 // events whose series were gone through
	plan  plan
	known *index.Known // from the second slice on
}

// hit is a matching event. rec is only read when the search was told to read
// events, or had to.
type hit struct {
	ID     int64
	series uint32
	rec    disk.Record
	read   bool
}

// load reads the event of h, once.
func (s *search) load(h *hit) error {
	if h.read {
		return nil
	}
	found, err := s.cursor.seek(h.ID)
	if err != nil {
		return err
	}
	if !found || s.cursor.rec.Series != h.series {
		return disk.CorruptEvent(disk.EventKey(h.ID))
	}
	h.rec, h.read = s.cursor.rec, true
	s.read++
	s.Reads.Events++
	return nil
}

// search finds the events that match a filter, in id order, and reads as few as
// it can: first the series decide, off the column, and only where they leave it
// open is the event read.
type search struct {
	tx *Tx
	*store.Selection
	*progressOf
	cursor  eventCursor
	hit     hit          // the event at hand
	row     filter.Row   // what the filter sees of it
	ofTypes *typeAnswers // once asked

	// deadline ends a run early, so that writers need not wait for a long one, and
	// after writerCheck a waiting writer does. They are looked at between blocks and
	// every few dozen events that are read.
	deadline, writerCheck time.Time
	read                  int // events read
}

// Tx is one transaction on a thread. It is valid only during the function it was
// given to, and only on that goroutine.
type Tx struct {
	t *Store
	b *bbolt.Tx
	// What the journal adds to b, and a transaction that is to be journalled; nil where
	// b alone is written to.
	over *index.Overlay
	st   disk.State
	// The newest id that others see: of a long batch, that before its beginning.
	visible int64
	began   time.Time

	meta                    *index.Bucket
	events, columns, pieces *index.Bucket     // once used; pieces, once written to
	series                  *index.Dictionary // once used
	opened                  []openTable

	createdAt disk.TimeText // the latest created_at, which many events share
	groups    groupWriter

	tail    *tail              // the events behind the last column block, once needed
	pushed  func(*event.Event) // told of every new event, to write events.jsonl
	changed bool               // st differs from what is stored
	goesOn  bool               // nothing of it is visible before a later transaction
	scanned bool               // the kernel was told of a scan
	spare   *search            // of a scan that has ended: a dispatch makes thousands, of a KiB each

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

// endedEvery is how many records are read between two checks of the
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

func newTx(t *Store, b *bbolt.Tx, over *index.Overlay) (*Tx, error) {
	tx := &Tx{t: t, b: b, over: over, began: time.Now()}
	if err := index.CheckTree(index.Root(b)); err != nil {
		return nil, err
	}
	var err error
	if tx.meta, err = tx.own(disk.BucketMeta); err != nil {
		return nil, err
	}
	if _, err = disk.DecodeFormat(tx.meta.Get(disk.KeyFormat)); err != nil {
		return nil, err
	}
	if err := index.CheckPath(tx.meta, disk.KeyState); err != nil {
		return nil, err
	}
	tx.st, err = disk.DecodeState(tx.meta.Get(disk.KeyState))
	tx.visible = tx.st.Head
	return tx, err
}

// own opens one of the buckets that every database has, with its first use: a short
// transaction needs two or three of seven. The list of them was checked by newTx.
func (tx *Tx) own(name []byte) (*index.Bucket, error) {
	bucket, err := tx.bucket(name)
	if bucket == nil && err == nil {
		err = fmt.Errorf("%w: no bucket %q", store.ErrNotDatabase, name)
	}
	return bucket, err
}

// bucket opens a bucket. The result is nil when there is none of that name.
func (tx *Tx) bucket(name []byte) (*index.Bucket, error) {
	return index.OpenBucket(tx.b, tx.over, name)
}

// appended opens a bucket of which only the end is written to.
func (tx *Tx) appended(b **index.Bucket, name []byte) (*index.Bucket, error) {
	if *b != nil {
		return *b, nil
	}
	bucket, err := tx.own(name)
	if err == nil && tx.Writable() {
		err = index.CheckLast(bucket)
		bucket.SetFill(1) // ids only rise, so full pages are never split again
	}
	if err != nil {
		return nil, err
	}
	*b = bucket
	return bucket, nil
}

func (tx *Tx) eventBucket() (*index.Bucket, error) { return tx.appended(&tx.events, disk.BucketEvents) }

func (tx *Tx) columnBucket() (*index.Bucket, error) {
	return tx.appended(&tx.columns, disk.BucketColumns)
}

// dict returns the series.
func (tx *Tx) dict() *index.Dictionary {
	if tx.series == nil {
		tx.series = dictionary(tx.b, tx.over, tx.meta)
	}
	return tx.series
}

// dictionary returns the series of a database.
func dictionary(b *bbolt.Tx, over *index.Overlay, meta *index.Bucket) *index.Dictionary {
	open := func(name []byte) func() (*index.Bucket, error) {
		return func() (*index.Bucket, error) { return index.OpenBucket(b, over, name) }
	}
	byID := func() (*index.Bucket, error) {
		bucket, err := index.OpenBucket(b, over, disk.BucketSeriesByID)
		if bucket != nil {
			bucket.SetFill(1)
		}
		return bucket, err
	}
	return index.NewDictionary(open(disk.BucketSeries), byID, meta, open(disk.BucketTypes), open(disk.BucketTypeBlocks))
}

// Writable implements store.Tx.
func (tx *Tx) Writable() bool { return tx.meta.Writable() }

// State implements store.Tx.
func (tx *Tx) State() store.State {
	return store.State{Head: tx.st.Head, LastID: tx.st.LastID, Count: tx.st.Count, Stored: tx.st.Stored, Visible: tx.visible}
}

// Size implements store.Tx.
func (tx *Tx) Size() int64 { return tx.b.Size() }

// Unused implements store.Tx. It is asked for seldom, and reads what bbolt does not
// tell a reader; it is 0 where that cannot be read.
func (tx *Tx) Unused() int64 {
	f, err := os.OpenFile(tx.b.DB().Path(), os.O_RDONLY|OpenNoFollow|OpenNoWait, 0)
	if err != nil {
		return 0
	}
	defer f.Close()
	return min(disk.FreeBytes(f), tx.Size())
}

// addToColumn counts the event, whose created_at is the latest, into the tail,
// and turns a full tail into a block.
func (tx *Tx) addToColumn(id int64, series uint32) error {
	if tx.tail == nil && tx.st.Tail+1 == index.BlockEvents {
		if _, err := tx.loadTail(id - 1); err != nil {
			return err
		}
	}
	tx.st.Tail++
	if tx.tail == nil {
		return nil
	}
	tx.tail.ids, tx.tail.series = append(tx.tail.ids, id), append(tx.tail.series, series)
	tx.tail.times.Add(tx.createdAt.Millis, tx.createdAt.Exact)
	if len(tx.tail.ids) < index.BlockEvents {
		return nil
	}
	columns, err := tx.columnBucket()
	if err != nil {
		return err
	}
	full := tx.tail
	tx.tail, tx.st.Tail = &tail{}, 0
	return columns.Put(disk.EventKey(full.ids[0]), index.EncodeBlock(full.ids, full.series, full.times))
}

// eventCursor reads events upwards. Most of the time the next one is near.
type eventCursor struct {
	tx    *Tx
	c     *index.Cursor // from the first use on
	steps index.Steps
	k     []byte      // the key of the group
	g     disk.Group  // that is being read
	rec   disk.Record // the event read last, which has the id g.id
	last  int64       // that id; ids must rise
	begin func(key, value []byte) (disk.Group, error)
}

// loadTail reads the series and times of the events behind the last block, up to head.
func (tx *Tx) loadTail(head int64) (*tail, error) {
	if tx.tail != nil {
		return tx.tail, nil
	}
	columns, err := tx.columnBucket()
	if err != nil {
		return nil, err
	}
	last, ok, err := index.LastBlock(columns)
	if err != nil {
		return nil, err
	}
	from := int64(1)
	if ok {
		from = last.Last + 1
	}
	t := &tail{}
	c := tx.eventCursor()
	c.begin = disk.OpenUnchecked
	if err := c.from(from); err != nil {
		return nil, err
	}
	for {
		more, err := c.next()
		if err != nil {
			return nil, err
		}
		id := c.g.ID
		if !more || id > head {
			break
		}
		if id < from {
			continue
		}
		if len(t.ids) == index.BlockEvents {
			return nil, disk.CorruptEvent(c.g.Key)
		}
		t.ids, t.series = append(t.ids, id), append(t.series, c.rec.Series)
		t.times.Add(c.rec.At, c.rec.Verbatim == nil)
	}
	if int64(len(t.ids)) != tx.st.Tail {
		return nil, fmt.Errorf("%w: %d events behind the last column block, expected %d", store.ErrCorrupt, len(t.ids), tx.st.Tail)
	}
	tx.tail = t
	return t, nil
}

func (tx *Tx) eventCursor() eventCursor {
	return eventCursor{tx: tx, begin: disk.OpenGroup}
}

// plan is how far a search has gone in asking about series ahead of meeting them.
//
// A search asks the filter about the series that it meets; a short page sees few
// of them, and the series of new events are new and lie one after another. What
// can be known at less cost comes first: that no type matches, or that few sources
// can. As a search becomes long it is worth knowing that there is nothing left to
// find. So once it has gone through as many events as there are series to be asked
// about, they are all asked. Whatever there is in a thread, a search then takes at
// most twice what asking in the better order takes.
type plan struct {
	head  int64  // it is about the series of the events up to here,
	last  uint32 // the greatest of these
	first int64  // no event up to head with an id below this one matches
	done  bool   // every series up to last has an answer

	nextLook int64  // how many events are gone through before the next step
	reduced  bool   // types and sources have ruled out what they can
	asking   uint32 // the next series to be asked about
}

type typeAnswer struct {
	id     uint32 // of the type
	answer index.Answer
}

// typeAnswers is what the filter says of types.
type typeAnswers struct {
	known bool         // what has no answer has None
	none  bool         // all have
	some  []typeAnswer // those that have another one than None: few, where a table would be 3 KiB
	told  bool         // some have another answer than Open
}
