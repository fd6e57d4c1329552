package bolt

import (
	"errors"
	"fmt"
	"os"

	"go.etcd.io/bbolt"

	"thread/index"
	"thread/internal/store"
	"thread/internal/store/bolt/disk"
	"thread/lock"
)

// create makes the file for the copy, which holds a lock on it until it has its name
// or is removed: nobody else writes to it then.
func (c *copying) create() error {
	ctx, cancel := c.t.limit(c.ctx)
	defer cancel()
	var err error
	if c.file, err = lock.Open(ctx, c.t.Path(CompactName), lock.Exclusive); err != nil {
		return c.t.lockError(ctx, err)
	}
	f := c.file.File()
	if err := f.Truncate(0); err != nil { // what a crash left
		return err
	}
	if err := f.Chmod(FileMode); err != nil { // whatever the umask
		return err
	}
	// Nothing is synced before all is there.
	c.db, err = bbolt.Open(f.Name(), FileMode, &bbolt.Options{
		PageSize: disk.PageBytes, NoStatistics: true, FreelistType: bbolt.FreelistMapType, NoSync: true, NoGrowSync: true,
		OpenFile: func(string, int, os.FileMode) (*os.File, error) { return f, nil },
	})
	if err != nil {
		os.Remove(f.Name()) // bbolt has closed it, and the lock is gone
		return err
	}
	c.db.AllocSize = growBytes
	if err := c.db.Update(func(b *bbolt.Tx) error { return createBuckets(b, disk.FormatVersion) }); err != nil {
		return err
	}
	return c.begin()
}

// close removes the copy, unless it has its name.
func (c *copying) close() {
	if c.published {
		// To close both files, one of which has no name any more, takes long for large
		// ones. Nobody is to wait for that.
		_ = lock.Unlock(c.file.File())
	}
	if c.pinned != nil {
		c.pinned.Close()
	}
	if c.file == nil {
		return
	}
	if c.tx != nil {
		c.tx.Rollback()
	}
	if !c.published {
		// Before the lock goes with the file.
		if same, _ := lock.Names(c.file.File().Name(), c.file.File()); same {
			os.Remove(c.file.File().Name())
		}
	}
	if c.db == nil {
		c.file.Close()
		return
	}
	c.db.Close()
}

func (c *copying) begin() (err error) {
	if c.tx, err = c.db.Begin(true); err != nil {
		return err
	}
	c.size = 0
	b := c.tx.Bucket(disk.BucketSeriesByID)
	b.FillPercent = 1
	c.dict = dictionary(c.tx, c.tx.Bucket(disk.BucketMeta), c.tx.Bucket(disk.BucketSeries), b, disk.FormatVersion)
	c.groups.pieces = func() (*bbolt.Bucket, error) { return c.open([][]byte{disk.BucketPieces}) }
	c.groups.events, err = c.open([][]byte{disk.BucketEvents})
	return err
}

// next commits the present transaction and begins another, so that a large
// database needs little memory.
func (c *copying) next() (err error) {
	if err := c.commit(); err != nil {
		return err
	}
	if !c.locked {
		// Little by little: pushes sync to the same disk, and would wait for a long sync.
		if err := c.db.Sync(); err != nil {
			return err
		}
	}
	if info, err := os.Stat(c.db.Path()); err == nil && disk.MaxDatabaseBytes != 0 && info.Size() > disk.MaxDatabaseBytes {
		return fmt.Errorf("%w: %d bytes", store.ErrTooLarge, info.Size())
	}
	return c.begin()
}

func (c *copying) commit() error {
	if err := c.groups.flush(); err != nil {
		return err
	}
	err := c.tx.Commit()
	c.tx = nil // after a panic in bbolt it is still to be rolled back
	return err
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

// rest completes the copy and makes it durable, under the exclusive lock.
func (c *copying) rest() error {
	if err := c.upToHead(); err != nil {
		return err
	}
	last, err := c.from.dict.Last()
	if err == nil {
		err = c.dict.SetLast(last)
	}
	if err == nil {
		err = c.changeable()
	}
	if err != nil {
		return err
	}
	// The ids given, the count of events ever stored and what is known of
	// events.jsonl stay.
	c.st = c.from.st
	if c.through > 0 {
		c.st.Stored, c.st.Tail = c.kept, c.kept-c.blocks
	}
	meta := c.tx.Bucket(disk.BucketMeta)
	err = errors.Join(meta.Put(disk.KeyFormat, disk.EncodeFormat(disk.FormatVersion)), meta.Put(disk.KeyState, c.st.Encode()))
	if err == nil {
		err = c.commit()
	}
	if err == nil {
		err = c.db.Sync()
	}
	return err
}

// changeable copies the buckets whose entries change, and those of others.
func (c *copying) changeable() error {
	return c.from.b.ForEach(func(name []byte, from *bbolt.Bucket) error {
		path := [][]byte{name}
		switch string(name) {
		case string(disk.BucketPieces), string(disk.BucketSeriesByID), string(disk.BucketTypes), string(disk.BucketTypeBlocks):
			return nil
		case string(disk.BucketEvents), string(disk.BucketSeries), string(disk.BucketColumns):
			to, err := c.open(path)
			if err != nil {
				return err
			}
			return to.SetSequence(from.Sequence())
		}
		return c.bucket(path, from)
	})
}

// bucket copies a bucket and those in it.
func (c *copying) bucket(path [][]byte, from *bbolt.Bucket) error {
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
			return fmt.Errorf("%w: bucket %q is out of order", store.ErrCorrupt, path[0])
		}
		last = k
		if c.n++; c.n%endedEvery == 0 {
			if err := c.from.ended(); err != nil {
				return err
			}
		}
		if len(path) == 1 && string(path[0]) == string(disk.BucketMeta) && string(k) == string(disk.KeySeries) {
			return nil // the copy counts them again
		}
		tx := c.tx
		if v == nil {
			if err := c.bucket(append(path[:len(path):len(path)], k), from.Bucket(k)); err != nil {
				return err
			}
		} else {
			if err := to.Put(k, v); err != nil {
				return err
			}
			if c.size += len(k) + len(v); c.size >= maxGroupBytes/4 {
				if err := c.next(); err != nil {
					return err
				}
			}
		}
		if c.tx != tx {
			to, err = c.open(path)
		}
		return err
	})
}
