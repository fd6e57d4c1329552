package bolt

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"go.etcd.io/bbolt"

	"thread/index"
	"thread/internal/progress"
	"thread/internal/store"
	"thread/internal/store/bolt/disk"
	"thread/lock"
)

// Moment is when a copy was made, by the transactions of the database and of the copy.
type Moment struct {
	File   string `json:"file"`
	Source int    `json:"source"`
	Copy   int    `json:"copy"`
}

// CopyOptions say where a copy goes, and what it may continue from.
type CopyOptions struct {
	To string // a new file, which no other process writes; neither that name with ".new" behind it
	// Base is the file of an earlier copy, "" for none, and Since what CopyTo returned for
	// it. Where the database is still that file, only what came since is read from it, but
	// for records, of which those that differ are written.
	Base  string
	Since Moment
	// Identity names a file as no other one was ever named, "" where it cannot.
	Identity func(f *os.File) (string, error)
}

// recordsAt is where records continues.
type recordsAt struct{ bucket, key []byte }

// copying copies one database into another, without the events up to through and
// the series that have no event left. Series keep their ids, and the ids of the
// dropped ones are never given again: readers remember what their filter said of
// an id.
//
// As long as the file stays the same one, nothing up to head changes: the events,
// their pieces, their series and the column blocks that they fill. These are copied
// in slices, a shared lock for each, up to a head that is noted first; then the copy
// continues behind that one. Everything else is copied in the end, by rest.
type copying struct {
	t        *Store
	ctx      context.Context
	dropping *store.Dropping
	to       string       // the copy's name in the end, which no other process writes; "": the source's
	options  *CopyOptions // nil for a copy in the place of the source
	moment   Moment       // of the copy
	based    int64        // events of the base
	through  int64
	st       disk.State // of the copy, in the end

	pinned *os.File    // the source, kept open so that no other file gets its number
	source os.FileInfo // of the present slice
	from   *Tx         // valid in a slice only, like all that is read through it
	locked bool        // exclusively: there are no more slices
	until  time.Time
	check  time.Time // when to look for a waiting writer
	each   time.Duration
	slices int

	file      *lock.File // the copy
	published bool       // it has its name,
	durable   bool       // for certain also after a loss of power
	db        *bbolt.DB
	tx        *bbolt.Tx
	size      int // bytes put into tx
	n         int // entries gone through
	groups    groupWriter
	dict      *index.Dictionary // of the copy, in tx

	head     int64         // up to which the present round goes
	at       int64         // events up to here are copied
	first    int64         // the first of them, 0 before that one
	kept     int64         // that many
	series   index.Answers // All: it has an event that is copied
	upto     uint32        // the newest series at head
	seriesAt uint32        // series up to here are copied,
	deferred []uint32      // except for these, whose first event to stay came later
	key      []byte        // where to continue in bucket series
	keysDone bool          // and there is nothing left
	column   []byte        // where to continue in bucket columns
	blocks   int64         // events in the blocks that are copied
	record   recordsAt     // where to continue in the buckets whose entries change
}

// errChanged ends a copy that must start over.
var errChanged = errors.New("the database was replaced")

// openSource locks and opens the database, which must be the same file each time.
func (c *copying) openSource(m lock.Mode) (*database, error) {
	db, err := c.t.open(c.ctx, m)
	if err != nil {
		return nil, err
	}
	c.locked = m == lock.Exclusive
	if c.source, err = db.file.Stat(); err == nil {
		if c.pinned == nil {
			access := os.O_RDWR // for freeSlowly
			if c.to != "" {
				access = os.O_RDONLY
			}
			c.pinned, err = os.OpenFile(c.t.Path(DatabaseName), access|OpenNoFollow|OpenNoWait, 0)
		}
		var first os.FileInfo
		if err == nil {
			first, err = c.pinned.Stat()
		}
		if err == nil && !os.SameFile(first, c.source) {
			err = errChanged
		}
	}
	if err != nil {
		db.Close()
		return nil, err
	}
	return db, nil
}

// over reports whether a slice has ended, or its transaction in the copy full. It is
// asked after each entry.
func (c *copying) over() bool {
	if c.size >= maxGroupBytes/4 {
		return true
	}
	if c.locked {
		c.n++
		return c.n%endedEvery == 0 && c.from.ended() != nil
	}
	now := time.Now()
	if !now.Before(c.until) {
		return true
	}
	if now.Before(c.check) {
		return false
	}
	c.check = now.Add(c.each)
	return c.t.WriterWaits()
}

// A step copies some entries and reports whether there are more.
type step func() (more bool, err error)

func (c *copying) begun() (more bool, err error) {
	c.head = c.from.st.Head
	c.upto, err = c.from.dict().LastVisible(c.head)
	return false, err
}

// events copies the events that stay, in the groups of the present format.
func (c *copying) events() (more bool, err error) {
	if c.at >= c.head {
		return false, nil
	}
	far := progress.Of(c.ctx)
	next := c.from.eventCursor() // a damaged event is not carried on as if it were sound
	if err := next.from(c.at + 1); err != nil {
		return false, err
	}
	for {
		more, err := next.next()
		if err != nil {
			return false, err
		}
		id := next.g.ID
		if !more || id > c.head {
			c.at = c.head
			return false, nil
		}
		if id <= c.at {
			continue
		}
		if err := c.event(id, &next.rec); err != nil {
			return false, err
		}
		c.first = cmp.Or(c.first, id)
		far.Tell("copying events", id-c.first+1, c.head-c.first+1)
		if c.at = id; c.over() {
			return true, nil
		}
	}
}

// event copies an event. What bbolt is given is kept until the commit, for longer than
// the slice lasts, so none of it may lie in the source's memory.
func (c *copying) event(id int64, r *disk.Record) (err error) {
	at := disk.TimeText{Millis: r.At, Exact: r.Verbatim == nil, Text: string(r.Verbatim)}
	if c.series.Get(r.Series) != index.All {
		if _, err := c.from.dict().View(r.Series); err != nil {
			return err // nor a number that is not a series
		}
		c.series.Set(r.Series, index.All)
		if r.Series <= c.seriesAt {
			c.deferred = append(c.deferred, r.Series)
		}
	}
	c.kept++
	c.size += r.Size + len(r.Verbatim) + 2*binary.MaxVarintLen64
	if !r.Pieces {
		return c.groups.add(id, r.Series, &at, Text(r.Content))
	}
	to, err := c.groups.pieces()
	if err != nil {
		return err
	}
	err = c.from.eachPiece(id, r, func(k, v []byte) error {
		return to.Put(k, bytes.Clone(v))
	})
	if err != nil {
		return err
	}
	return c.groups.append(&disk.Appended{ID: id, Series: r.Series, At: &at, InPieces: true, Size: r.Size, Sum: r.Sum})
}

// newSeries copies the series that have events, and makes their types again.
func (c *copying) newSeries() (more bool, err error) {
	if c.seriesAt >= c.upto {
		return false, nil
	}
	err = c.from.dict().Each(c.seriesAt+1, c.upto, func(id uint32, v *index.SeriesView) (bool, error) {
		if c.series.Get(id) == index.All {
			if err := c.putSeries(id, v); err != nil {
				return false, err
			}
		}
		c.seriesAt = id
		more = c.over()
		return !more, nil
	})
	if !more {
		c.seriesAt = c.upto
	}
	return more, err
}

// lateSeries copies series that were passed over, as all their events were to be
// dropped, and then one was pushed.
func (c *copying) lateSeries() (more bool, err error) {
	for len(c.deferred) > 0 {
		id := c.deferred[len(c.deferred)-1]
		v, err := c.from.dict().View(id)
		if err != nil {
			return false, err
		}
		if err = c.putSeries(id, &v); err != nil {
			return false, err
		}
		if c.deferred = c.deferred[:len(c.deferred)-1]; c.over() {
			return true, nil
		}
	}
	return false, nil
}

func (c *copying) putSeries(id uint32, v *index.SeriesView) error {
	s := index.Series{Source: v.Source, Type: v.Type, First: v.First}
	if v.HasSubtype {
		s.Subtype = &v.Subtype
	}
	c.size += len(v.Source) + len(v.Type) + len(v.Subtype)
	if err := c.dict.Insert(id, &s); err != nil || !c.keysDone {
		return err
	}
	to, err := c.open([][]byte{disk.BucketSeries})
	if err != nil {
		return err
	}
	return to.Put(index.ViewKey(v), binary.BigEndian.AppendUint32(nil, id))
}

// seriesKeys copies the keys of the series that are copied so far. Keys of later
// ones are put with them.
func (c *copying) seriesKeys() (more bool, err error) {
	if c.keysDone {
		return false, nil
	}
	from, err := c.from.bucket(disk.BucketSeries)
	if err != nil {
		return false, err
	}
	to, err := c.open([][]byte{disk.BucketSeries})
	if err != nil {
		return false, err
	}
	err = index.Range(from, c.key, func(k, v []byte) (bool, error) {
		if len(v) != 4 {
			return false, fmt.Errorf("%w: series entry of %d bytes", store.ErrCorrupt, len(v))
		}
		if id := binary.BigEndian.Uint32(v); id <= c.seriesAt && c.series.Get(id) == index.All {
			c.size += len(k) + len(v)
			if err := to.Put(k, bytes.Clone(v)); err != nil {
				return false, err
			}
		}
		if more = c.over(); more {
			c.key = append(bytes.Clone(k), 0)
		}
		return !more, nil
	})
	c.keysDone = err == nil && !more
	return more, err
}

// columns copies the blocks of events that are copied, except for those, or the part
// of one, that cover no event any more.
func (c *copying) columns() (more bool, err error) {
	to, err := c.open([][]byte{disk.BucketColumns})
	if err != nil {
		return false, err
	}
	from, err := c.from.columnBucket()
	if err != nil {
		return false, err
	}
	err = index.Range(from, c.column, func(k, v []byte) (bool, error) {
		b, err := index.DecodeBlock(k, v)
		if err != nil || b.Last > c.at {
			return false, err
		}
		c.column = append(bytes.Clone(k), 0)
		if b.Last > c.through {
			k, v = bytes.Clone(k), bytes.Clone(v)
			if b.First <= c.through {
				k, v = lastOf(&b, c.through)
			}
			c.blocks += int64(b.Count - max(0, b.After(c.through)))
			c.size += len(k) + len(v)
			if err := to.Put(k, v); err != nil {
				return false, err
			}
		}
		more = c.over()
		return !more, nil
	})
	return more, err
}

func (c *copying) begin() (err error) {
	if c.tx, err = index.Begin(c.db, true); err != nil {
		return err
	}
	c.size = 0
	c.dict = dictionary(c.tx, nil, index.Wrap(c.tx.Bucket(disk.BucketMeta)))
	c.groups.pieces = func() (*index.Bucket, error) { return c.open([][]byte{disk.BucketPieces}) }
	c.groups.events, err = c.open([][]byte{disk.BucketEvents})
	return err
}

// open returns the bucket of the copy, in the present transaction.
func (c *copying) open(path [][]byte) (*index.Bucket, error) {
	to, err := index.CreatePath(c.tx, path)
	if err != nil {
		return nil, err
	}
	to.SetFill(1) // keys come in order
	return to, nil
}

// lastOf returns the part of a block that covers the events behind id.
func lastOf(b *index.Block, id int64) (key, value []byte) {
	var ids []int64
	var series []uint32
	for i := b.After(id); i < b.Count; i++ {
		ids, series = append(ids, b.ID(i)), append(series, b.Series(i))
	}
	return disk.EventKey(ids[0]), index.EncodeBlock(ids, series, b.Times)
}

// CompactName is the copy while it is being written, under an exclusive lock of its
// own. A crash leaves it behind; the next one takes it over.
const CompactName = DatabaseName + ".compact"
