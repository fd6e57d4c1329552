package engine

import (
	"context"
	"errors"
	"fmt"
	"os"

	"go.etcd.io/bbolt"

	"thread/index"
	"thread/internal/planted"
	"thread/lock"
)

// Compaction is the answer of Compact and Prune.
type Compaction struct {
	Dropped      int64 // events that are not here any more
	Through      int64 // the id up to which they were dropped, 0 when none was
	Kept         int64 // events that are still here
	Before, Size int64 // bytes of events.db before and after; the same when nothing was done
}

// Compact writes the database anew without the pages that it does not use, and
// puts the copy in its place in one step. What the thread holds stays as it is.
// Other processes wait meanwhile, or give up with ErrBusy; those that wait find
// the new file. The disk needs room for both.
//
// Compact returns ErrBusy, and ErrUnknownOutcome when the new file has its name
// but may lose it in a loss of power; both files hold the same events then.
func (t *Thread) Compact(ctx context.Context) (Compaction, error) {
	return t.rewrite(ctx, func(*Tx) (int64, error) { return 0, nil }, true)
}

// compactName is the copy while it is being written. A crash leaves it behind;
// the next one starts by removing it.
const compactName = databaseName + ".compact"

// rewrite copies the database without the events up to the id that through
// returns, and puts the copy in its place. Without always, nothing is done when
// there is no such event.
func (t *Thread) rewrite(ctx context.Context, through func(tx *Tx) (int64, error), always bool) (r Compaction, err error) {
	db, err := t.open(ctx, lock.Exclusive)
	if err != nil {
		return r, err
	}
	defer db.Close()
	tmp := t.path(compactName)
	if err := os.Remove(tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return r, err
	}
	defer func() {
		if err != nil && !errors.Is(err, ErrUnknownOutcome) {
			os.Remove(tmp)
		}
	}()
	info, err := db.file.Stat()
	if err != nil {
		return r, err
	}
	r.Before, r.Size = info.Size(), info.Size()
	done := false
	err = guard(func() error {
		if err := t.clearBeyondHead(db); err != nil {
			return err
		}
		return db.View(func(b *bbolt.Tx) error {
			tx, err := newTx(t, b)
			if err != nil {
				return err
			}
			c := &copying{ctx: ctx, from: tx, st: tx.st}
			if c.through, err = through(tx); err != nil {
				return err
			}
			r.Through, r.Kept = c.through, tx.st.stored
			if c.through == 0 && !always {
				return nil
			}
			done = true
			if err := c.run(tmp); err != nil {
				return err
			}
			r.Dropped, r.Kept = tx.st.stored-c.st.stored, c.st.stored
			return nil
		})
	})
	if err != nil || !done {
		return r, err
	}
	if info, err = os.Stat(tmp); err != nil {
		return r, err
	}
	r.Size = info.Size()
	return r, publish(tmp, t.path(databaseName))
}

// copying copies one database into another, without the events up to through.
// Series keep their ids, also those that have no event any more: readers in other
// processes remember what their filter said of an id.
type copying struct {
	ctx     context.Context
	from    *Tx
	through int64
	st      state // of the copy

	db   *bbolt.DB
	tx   *bbolt.Tx
	size int // bytes put into tx
}

func (c *copying) run(path string) (err error) {
	if err := createDatabase(path, func(*bbolt.Tx) error { return nil }); err != nil {
		return err
	}
	// Nothing is synced before all is there.
	c.db, err = bbolt.Open(path, fileMode, &bbolt.Options{
		NoStatistics: true, FreelistType: bbolt.FreelistMapType, NoSync: true, NoGrowSync: true,
	})
	if err != nil {
		return err
	}
	c.db.AllocSize = growBytes
	defer func() {
		if c.tx != nil {
			c.tx.Rollback()
		}
		err = errors.Join(err, c.db.Close())
	}()
	if c.tx, err = c.db.Begin(true); err != nil {
		return err
	}
	if err := c.buckets(); err != nil {
		return err
	}
	if c.through > 0 {
		if err := c.state(); err != nil {
			return err
		}
	}
	if err := c.tx.Bucket(bucketMeta).Put(keyState, c.st.encode()); err != nil {
		return err
	}
	err = c.tx.Commit()
	c.tx = nil
	if err != nil {
		return err
	}
	return c.db.Sync()
}

// state counts what is left. The ids given, the count of events ever stored and
// what is known of events.jsonl stay.
func (c *copying) state() error {
	c.st.stored, c.st.tail = 0, 0
	last := c.through
	columns := c.tx.Bucket(bucketColumns).Cursor()
	for k, v := columns.First(); k != nil; k, v = columns.Next() {
		b, err := index.DecodeBlock(k, v)
		if err != nil {
			return err
		}
		c.st.stored += int64(b.Count)
		last = b.Last
	}
	events := c.tx.Bucket(bucketEvents).Cursor()
	for k, _ := events.Seek(eventKey(last + 1)); k != nil; k, _ = events.Next() {
		c.st.tail++
	}
	c.st.stored += c.st.tail
	return nil
}

func (c *copying) buckets() error {
	return c.from.b.ForEach(func(name []byte, b *bbolt.Bucket) error {
		path := [][]byte{name}
		switch string(name) {
		case string(bucketEvents):
			return c.bucket(path, b, c.event)
		case string(bucketColumns):
			return c.bucket(path, b, c.column)
		}
		return c.bucket(path, b, func(k, v []byte) ([]byte, []byte, error) { return k, v, nil })
	})
}

// bucket copies a bucket and those in it. keep returns what to store for an
// entry, a nil key for nothing.
func (c *copying) bucket(path [][]byte, from *bbolt.Bucket, keep func(k, v []byte) ([]byte, []byte, error)) error {
	to, err := c.open(path)
	if err != nil {
		return err
	}
	if err := to.SetSequence(from.Sequence()); err != nil {
		return err
	}
	if err := index.CheckTree(from); err != nil {
		return err
	}
	var last []byte
	return from.ForEach(func(k, v []byte) error {
		if last != nil && string(k) <= string(last) {
			return fmt.Errorf("%w: bucket %q is out of order", ErrCorrupt, path[0])
		}
		last = k
		if v == nil {
			if err := c.bucket(append(path[:len(path):len(path)], k), from.Bucket(k), keep); err != nil {
				return err
			}
			to, err = c.open(path) // the transaction may be another by now
			return err
		}
		k, v, err := keep(k, v)
		if err != nil || k == nil {
			return err
		}
		if err := to.Put(k, v); err != nil {
			return err
		}
		if c.size += len(k) + len(v); c.size < maxGroupBytes/4 {
			return nil
		}
		if err := c.next(); err != nil {
			return err
		}
		to, err = c.open(path)
		return err
	})
}

// open returns the bucket of the copy, in the present transaction.
func (c *copying) open(path [][]byte) (*bbolt.Bucket, error) {
	b, err := c.tx.CreateBucketIfNotExists(path[0])
	for _, name := range path[1:] {
		if err == nil {
			b, err = b.CreateBucketIfNotExists(name)
		}
	}
	if err == nil {
		b.FillPercent = 1 // keys come in order
	}
	return b, err
}

// next commits the present transaction and begins another, so that a large
// database needs little memory.
func (c *copying) next() (err error) {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	err = c.tx.Commit()
	c.tx, c.size = nil, 0
	if err == nil {
		c.tx, err = c.db.Begin(true)
	}
	if info, serr := os.Stat(c.db.Path()); serr == nil && maxDatabaseBytes != 0 && info.Size() > maxDatabaseBytes {
		err = errors.Join(err, fmt.Errorf("%w: %d bytes", ErrTooLarge, info.Size()))
	}
	return err
}

func (c *copying) event(k, v []byte) ([]byte, []byte, error) {
	id, err := eventID(k)
	if err != nil {
		return nil, nil, err
	}
	if id <= c.through {
		return nil, nil, nil
	}
	if planted.Bug("prune drops one too many") && id == c.through+1 {
		return nil, nil, nil
	}
	if _, err := decodeRecord(k, v); err != nil {
		return nil, nil, err // a damaged event is not carried on as if it were sound
	}
	return k, v, nil
}

// column drops the block, or the part of it, that covers no event any more.
func (c *copying) column(k, v []byte) ([]byte, []byte, error) {
	b, err := index.DecodeBlock(k, v)
	if err != nil || b.Last <= c.through {
		return nil, nil, err
	}
	if b.First > c.through {
		return k, v, nil
	}
	var ids []int64
	var series []uint32
	for i := b.After(c.through); i < b.Count; i++ {
		ids, series = append(ids, b.ID(i)), append(series, b.Series(i))
	}
	return eventKey(ids[0]), index.EncodeBlock(ids, series, b.Times), nil
}
