package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"go.etcd.io/bbolt"

	"thread/index"
	"thread/internal/durable"
	"thread/internal/store"
	"thread/internal/store/bolt/disk"
	"thread/jsonlog"
	"thread/lock"
)

// create makes the file for the copy, which holds a lock on it until it has its name
// or is removed: no other process writes to it then.
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
		if err := c.ofBase(copyBase(c.ctx, f, c.options.Base)); err != nil {
			return err
		}
	}
	// Nothing is synced before all is there.
	err = Guard(func() (err error) { // a damaged base
		c.db, err = bbolt.Open(f.Name(), FileMode, &bbolt.Options{
			PageSize: disk.PageBytes, NoStatistics: true, FreelistType: bbolt.FreelistMapType, NoSync: true, NoGrowSync: true,
			OpenFile: func(string, int, os.FileMode) (*os.File, error) { return f, nil },
		})
		return err
	})
	if err != nil {
		os.Remove(f.Name()) // bbolt has closed it, and the lock is gone
		return c.ofBase(err)
	}
	c.db.AllocSize = growBytes
	if c.options != nil && c.options.Base != "" {
		return c.ofBase(Guard(c.resume))
	}
	if err := c.db.Update(createBuckets); err != nil {
		return err
	}
	return c.begin()
}

const (
	// A copy starts over when the database was replaced, that many times.
	copyTries = 5
	// That many ids at most are left to the last step, unless writers have been faster
	// for that many rounds.
	longTail   = 256
	copyRounds = 8
)

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
		// ones. No process is to wait for that.
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

// startLines says of a copy elsewhere, which has no events*.jsonl, that the next push
// writes the lines of its newest events: as many as there were in the newest file, or as
// an import writes. Those before it have none.
func (c *copying) startLines(meta *index.Bucket) error {
	if c.from.linesOff() {
		return nil // and so they are in the copy
	}
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

// errBase ends a copy that cannot continue from its base: it is made again.
var errBase = errors.New("the copy before does not belong to this database")

// ofBase returns an error about the base, if there is one, as that, unless the call was
// called off.
func (c *copying) ofBase(err error) error {
	if err == nil || c.options == nil || c.options.Base == "" || c.ctx.Err() != nil || errors.Is(err, errBase) {
		return err
	}
	return fmt.Errorf("%w: %w", errBase, err)
}

// identify notes which file is copied, and forgets a base that is not a copy of it. Up to
// the head of its time nothing changes in a file (see copying), so all that the base has
// of that is what the file has.
func (c *copying) identify() error {
	if c.options == nil || c.options.Identity == nil {
		return nil
	}
	id, err := c.options.Identity(c.pinned)
	if err != nil {
		return err
	}
	c.moment.File = id
	if o := c.options; id == "" || id != o.Since.File || o.Since.Source > c.from.b.ID() {
		o.Base = ""
	}
	return nil
}

// copyBase makes f what the base is. Where the file system can, they share their blocks.
func copyBase(ctx context.Context, f *os.File, base string) error {
	in, err := os.OpenFile(base, os.O_RDONLY|OpenNoFollow|OpenNoWait, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	if _, err = f.Seek(0, io.SeekStart); err == nil {
		err = durable.Copy(ctx, f, in)
	}
	return err
}

// resume continues behind what the base has.
func (c *copying) resume() error {
	if err := c.begin(); err != nil {
		return err
	}
	base, err := newTx(c.t, c.tx, nil)
	if err != nil {
		return err
	}
	if _, err := base.eventBucket(); err != nil { // where it is damaged, now and not when it is written to
		return err
	}
	// The copy has opened its own transaction since, or another process has used it.
	if c.tx.ID() != c.options.Since.Copy+1 {
		return errBase
	}
	st := base.st
	c.head, c.at, c.kept, c.blocks, c.based = st.Head, st.Head, st.Stored, st.Stored-st.Tail, st.Stored
	if c.seriesAt, err = base.dict().Last(); err != nil {
		return err
	}
	err = base.dict().Each(0, 1<<32-1, func(id uint32, _ *index.SeriesView) (bool, error) {
		c.series.Set(id, index.All)
		return true, nil
	})
	c.keysDone = true
	if err != nil {
		return err
	}
	columns, err := base.columnBucket()
	if err != nil {
		return err
	}
	if k, _ := columns.Cursor().Last(); k != nil {
		c.column = append(bytes.Clone(k), 0)
	}
	return err
}
