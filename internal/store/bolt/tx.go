package bolt

import (
	"context"
	"fmt"
	"math"
	"os"
	"time"

	"go.etcd.io/bbolt"

	"thread/event"
	"thread/index"
	"thread/internal/store"
	"thread/internal/store/bolt/disk"
)

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

// Append implements store.Tx.
func (tx *Tx) Append(d *event.Draft, createdAt string) (event.Event, error) {
	if tx.st.LastID == math.MaxInt64 {
		return event.Event{}, store.ErrIDsExhausted
	}
	e := event.Event{ID: tx.st.LastID + 1, CreatedAt: createdAt, Source: d.Source, Type: d.Type, Subtype: d.Subtype, Content: d.Content}
	return e, tx.insert(&e)
}

// insert stores an event whose id is above all others.
func (tx *Tx) insert(e *event.Event) error {
	series, err := tx.dict().Add(e.Source, e.Type, e.Subtype, e.ID)
	if err != nil {
		return err
	}
	if err := tx.putEvent(e, series); err != nil {
		return err
	}
	if err := tx.addToColumn(e.ID, series); err != nil {
		return err
	}
	tx.st.Head, tx.st.LastID = e.ID, e.ID
	tx.st.Count++
	tx.st.Stored++
	tx.changed = true
	if tx.pushed != nil {
		tx.pushed(e)
	}
	return nil
}

// putEvent stores an event in bucket events.
func (tx *Tx) putEvent(e *event.Event, series uint32) error {
	events, err := tx.eventBucket()
	if err != nil {
		return err
	}
	tx.createdAt.SetText(e.CreatedAt)
	if tx.groups.g.Key == nil {
		tx.groups.events, tx.groups.pieces = events, tx.piecesBucket
		if err := tx.groups.resume(); err != nil {
			return err
		}
	}
	return tx.groups.add(e.ID, series, &tx.createdAt, e.Content)
}

// piecesBucket returns the bucket for large contents, in a write transaction.
func (tx *Tx) piecesBucket() (*index.Bucket, error) {
	if tx.pieces == nil {
		b, err := tx.later(store.Pieces)
		if err != nil {
			return nil, err
		}
		if err = index.CheckLast(b); err != nil {
			return nil, err
		}
		b.SetFill(1)
		tx.pieces = b
	}
	return tx.pieces, nil
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

// saveState writes the state if the transaction changed it.
func (tx *Tx) saveState() error {
	if err := tx.groups.flush(); err != nil {
		return err
	}
	atLeast := 0
	if tx.goesOn {
		atLeast = maxFresh
	}
	if tx.series != nil {
		if err := tx.series.Flush(atLeast); err != nil {
			return err
		}
	}
	if !tx.changed {
		return nil
	}
	return tx.meta.Put(disk.KeyState, tx.st.Encode())
}

// EventsAfter implements store.Tx.
func (tx *Tx) EventsAfter(after int64, fn func(e *event.Event) error) error {
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
		if !more || err != nil || c.g.ID > tx.st.Head {
			return err
		}
		if c.g.ID <= after {
			continue
		}
		if err := tx.fill(&e, c.g.ID, &c.rec); err != nil {
			return err
		}
		if err := fn(&e); err != nil {
			return err
		}
	}
}
