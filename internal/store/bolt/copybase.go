package bolt

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"thread/index"
)

// errBase ends a copy that cannot go on from its base: it is made anew.
var errBase = errors.New("the copy before is no part of this database")

// ofBase returns an error about the base, if there is one, as that, unless the call was
// called off.
func (c *copying) ofBase(err error) error {
	if err == nil || c.options == nil || c.options.Base == "" || c.ctx.Err() != nil || errors.Is(err, errBase) {
		return err
	}
	return fmt.Errorf("%w: %w", errBase, err)
}

// identify notes which file is copied, and forgets a base that is no copy of it. Up to
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
func copyBase(f *os.File, base string) error {
	in, err := os.OpenFile(base, os.O_RDONLY|OpenNoFollow|OpenNoWait, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	if _, err = f.Seek(0, io.SeekStart); err == nil {
		_, err = io.Copy(f, in)
	}
	return err
}

// resume goes on behind what the base has.
func (c *copying) resume() error {
	if err := c.begin(); err != nil {
		return err
	}
	base, err := newTx(c.t, c.tx)
	if err != nil {
		return err
	}
	if _, err := base.eventBucket(); err != nil { // where it is damaged, now and not when it is written to
		return err
	}
	// The copy has opened its own transaction since, or somebody has used it.
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
