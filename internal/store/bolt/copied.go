package bolt

import (
	"errors"
	"fmt"
	"os"

	"go.etcd.io/bbolt"

	"thread/internal/store"
	"thread/internal/store/bolt/disk"
	"thread/jsonlog"
	"thread/lock"
)

// create makes the file for the copy, which holds a lock on it until it has its name
// or is removed: nobody else writes to it then.
func (c *copying) create() error {
	if err := c.openCopy(); err != nil {
		return err
	}
	f := c.file.File()
	if c.to == "" {
		if err := keepOwner(f, c.source); err != nil {
			return err
		}
	} else if err := f.Chmod(FileMode); err != nil { // whatever the umask
		return err
	}
	var err error
	if c.options != nil && c.options.Base != "" {
		if err := c.ofBase(copyBase(f, c.options.Base)); err != nil {
			f.Close() // with the lock
			return err
		}
	}
	// Nothing is synced before all is there.
	c.db, err = bbolt.Open(f.Name(), FileMode, &bbolt.Options{
		PageSize: disk.PageBytes, NoStatistics: true, FreelistType: bbolt.FreelistMapType, NoSync: true, NoGrowSync: true,
		OpenFile: func(string, int, os.FileMode) (*os.File, error) { return f, nil },
	})
	if err != nil {
		os.Remove(f.Name()) // bbolt has closed it, and the lock is gone
		return c.ofBase(err)
	}
	c.db.AllocSize = growBytes
	if c.options != nil && c.options.Base != "" {
		return c.ofBase(Guard(c.resume))
	}
	if err := c.db.Update(func(b *bbolt.Tx) error { return createBuckets(b, disk.FormatVersion) }); err != nil {
		return err
	}
	return c.begin()
}

// openCopy opens and locks an empty file.
func (c *copying) openCopy() error {
	ctx, cancel := c.t.limit(c.ctx)
	defer cancel()
	for range copyTries {
		var err error
		if c.file, err = lock.Open(ctx, c.temporary(), lock.Exclusive); err != nil {
			return c.t.lockError(ctx, err)
		}
		if c.to != "" || !foreign(c.file.File(), c.source) {
			return c.file.File().Truncate(0) // what a crash left
		}
		err = os.Remove(c.file.File().Name()) // before the lock goes with the file
		c.file.Close()
		c.file = nil
		if err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: %s is made again and again", store.ErrBusy, CompactName)
}

// temporary returns the name of the copy while it is being written.
func (c *copying) temporary() string {
	if c.to != "" {
		return c.to + ".new"
	}
	return c.t.Path(CompactName)
}

// close removes the copy, unless it has its name.
func (c *copying) close() {
	if c.published {
		// To close both files, one of which has no name any more, takes long for large
		// ones. Nobody is to wait for that.
		_ = lock.Unlock(c.file.File())
	}
	if c.pinned != nil {
		if c.durable && c.to == "" {
			freeSlowly(c.pinned, c.t.Dir)
		}
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
	c.dict = dictionary(c.tx, c.tx.Bucket(disk.BucketMeta), disk.FormatVersion)
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

// startLines says of a copy elsewhere, which has no events*.jsonl, that the next push
// writes the lines of its newest events: as many as there were in the newest file, or as
// an import writes. Those before it have none.
func (c *copying) startLines(meta *bbolt.Bucket) error {
	after, err := c.from.BeforeNewest(jsonlog.MaxLines)
	if err != nil {
		return err
	}
	if l := &c.st.Log; l.Lines <= jsonlog.MaxLines {
		after = max(after, l.First-1)
	}
	if c.st.Log = (jsonlog.Position{}); after < c.st.Head {
		c.st.Log = jsonlog.Position{First: after + 1, Size: 1} // longer than no file: it heals
	}
	start := disk.LogStart{From: after + 1}
	return meta.Put(disk.KeyLines, start.Encode())
}

// minRotated is the least size of an events.jsonl that is rotated for its size.
const minRotated = 1 << 20

// rest completes the copy and makes it durable, under the exclusive lock.
func (c *copying) rest() error {
	if err := c.upToHead(); err != nil {
		return err
	}
	if err := c.changeable(); err != nil {
		return err
	}
	last, err := c.from.dict().Last()
	if err == nil {
		err = c.dict.SetLast(last)
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
	if c.dropping != nil && c.dropping.Rotate && c.st.Log.Size > max(minRotated, c.tx.Size()/8) {
		c.st.Log.Lines = max(c.st.Log.Lines, jsonlog.MaxLines+1) // full: the next push rotates it, as ever
	}
	meta := c.tx.Bucket(disk.BucketMeta)
	if c.to != "" {
		if err := c.startLines(meta); err != nil {
			return err
		}
	}
	err = errors.Join(meta.Put(disk.KeyFormat, disk.EncodeFormat(disk.FormatVersion)), meta.Put(disk.KeyState, c.st.Encode()))
	c.moment.Copy = c.tx.ID()
	if err == nil {
		err = c.commit()
	}
	if err == nil {
		err = c.db.Sync()
	}
	return err
}
