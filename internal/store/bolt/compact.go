package bolt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"thread/index"
	"thread/internal/store"
	"thread/internal/store/bolt/disk"
	"thread/jsonlog"
	"thread/lock"
)

// Compact implements store.Store. The copy is made in slices, like any long read, and
// what is written meanwhile is part of it: others wait for the last step only. The disk
// needs space for both.
func (t *Store) Compact(ctx context.Context) (store.Compaction, error) {
	return t.rewrite(ctx, nil)
}

// CopyTo writes the database, as it is at one moment, into a new file, in slices as
// Compact does. Where it went on from the base, more is how many events that did not have.
func (t *Store) CopyTo(ctx context.Context, o CopyOptions) (m Moment, more int64, err error) {
	for range copyTries {
		var r store.Compaction
		c := &copying{t: t, ctx: ctx, to: o.To, options: &o}
		if r, err = c.rewrite(); err == nil {
			return c.moment, r.Kept - c.based, nil
		}
		ofBase := errors.Is(err, errBase) || o.Base != "" && errors.Is(err, store.ErrCorrupt) // which of both is damaged shows without it
		if !errors.Is(err, errChanged) && !ofBase {
			return m, 0, err
		}
		if ofBase {
			o.Base = ""
		}
	}
	return m, 0, fmt.Errorf("%w: the database is replaced again and again", store.ErrBusy)
}

// Prune implements store.Store, as Compact does.
func (t *Store) Prune(ctx context.Context, d store.Dropping) (store.Compaction, error) {
	return t.rewrite(ctx, &d)
}

// rewrite copies the database, without some events, and puts the copy in its place.
// Where there is nothing to drop, nothing is done; d is nil to copy all.
func (t *Store) rewrite(ctx context.Context, d *store.Dropping) (r store.Compaction, err error) {
	for range copyTries {
		c := &copying{t: t, ctx: ctx, dropping: d}
		if r, err = c.rewrite(); !errors.Is(err, errChanged) {
			return r, err
		}
	}
	return r, fmt.Errorf("%w: the database is replaced again and again", store.ErrBusy)
}

// rewrite makes the copy and gives it its name.
func (c *copying) rewrite() (r store.Compaction, err error) {
	defer c.close()
	d := c.dropping
	err = c.slice(func() error {
		r.Kept, r.Before = c.from.st.Stored, c.source.Size()
		r.Size = r.Before
		if d == nil {
			return c.identify()
		}
		r.Through, err = d.Through(c.from)
		return err
	})
	if err != nil || d != nil && r.Through == 0 {
		return r, err
	}
	c.through, c.at = r.Through, r.Through
	if err := c.create(); err != nil {
		return r, err
	}
	for n := 1; ; n++ {
		// All that takes long, and then what came meanwhile, which is less each time.
		if err := c.round(); err != nil {
			return r, err
		}
		if err := c.finish(&r, n == copyRounds); !errors.Is(err, errLongTail) {
			return r, err
		}
	}
}

// round copies what there is up to the present head, and makes it durable: the last
// step has little to sync then.
func (c *copying) round() error {
	c.locked = false
	if err := c.upToHead(); err != nil {
		return err
	}
	c.record = recordsAt{}
	if err := c.run(c.records); err != nil {
		return err
	}
	return Guard(c.next)
}

// slice runs fn in a short read transaction. Where there are very many slices,
// because writers wait all the time, they get longer: or the database could grow
// faster than it is copied.
func (c *copying) slice(fn func() error) error {
	db, err := c.openSource(lock.Shared)
	if err != nil {
		return err
	}
	return c.t.view(db, func(tx *Tx) error {
		tx.ctx = c.ctx
		c.from = tx
		c.slices++
		now := time.Now()
		c.each = min(WriterCheckTime*time.Duration(1+c.slices/256), SliceTime)
		c.until, c.check = now.Add(SliceTime), now.Add(c.each)
		return fn()
	})
}

// errLongTail says that there is too much left to hold everybody up.
var errLongTail = errors.New("much was pushed meanwhile")

// finish copies what is left under the exclusive lock, and gives the copy its name.
// Unless it is the last try, it returns errLongTail when much is left.
func (c *copying) finish(r *store.Compaction, last bool) error {
	db, err := c.openSource(lock.Exclusive)
	if err != nil {
		return err
	}
	release := sync.OnceFunc(func() { db.Close() })
	defer release()
	err = db.guard(func() error {
		if err := c.t.clearBeyondHead(db); err != nil {
			return err
		}
		return db.View(func(b *bbolt.Tx) error {
			over, err := db.overlay(b)
			if err != nil {
				return err
			}
			if c.from, err = newTx(c.t, b, over); err != nil {
				return err
			}
			c.from.ctx = c.ctx
			if !last && c.from.st.Head-c.head > longTail {
				return errLongTail
			}
			if c.dropping != nil && c.dropping.May != nil {
				if err := c.dropping.May(c.from, c.through); err != nil {
					return err
				}
			}
			c.moment.Source = b.ID()
			return c.rest()
		})
	})
	if err != nil {
		return err
	}
	if c.to != "" {
		release() // pushes need not wait until a copy elsewhere is on the disk
	}
	if err := syncCopy(c.db); err != nil {
		return err
	}
	r.Before, r.Dropped, r.Kept = c.source.Size(), c.from.st.Stored-c.st.Stored, c.st.Stored
	info, err := c.file.File().Stat()
	if err != nil {
		return err
	}
	r.Size = info.Size()
	// An older program does not know the lock on the copy, and may have removed it.
	if same, err := lock.Names(c.file.File().Name(), c.file.File()); !same {
		if err == nil || errors.Is(err, os.ErrNotExist) {
			err = errChanged
		}
		return err
	}
	name := c.t.Path(DatabaseName)
	if c.to != "" {
		name = c.to
	}
	err = publish(c.file.File().Name(), name)
	c.durable = err == nil
	c.published = c.durable || errors.Is(err, store.ErrUnknownOutcome)
	return err
}

// rest completes the copy, which is not durable yet, under the exclusive lock.
func (c *copying) rest() error {
	if err := c.upToHead(); err != nil {
		return err
	}
	if err := c.changeable(); err != nil {
		return err
	}
	last, err := c.from.dict().Last()
	if err != nil {
		return err
	}
	if err = c.dict.SetLast(last); err != nil {
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
	meta := index.Wrap(c.tx.Bucket(disk.BucketMeta))
	if c.to != "" {
		if err := c.startLines(meta); err != nil {
			return err
		}
	}
	err = errors.Join(meta.Put(disk.KeyFormat, disk.EncodeFormat(disk.FormatVersion)), meta.Put(disk.KeyState, c.st.Encode()))
	base, berr := baseOf(c.from.b)
	err = errors.Join(err, berr, meta.Put(disk.KeyJournal, newBase(base.Epoch+1, false).Encode()))
	c.moment.Copy = c.tx.ID()
	if err != nil {
		return err
	}
	return c.commit()
}

func (c *copying) upToHead() error {
	// Events first: they say which series are kept, and which blocks are full.
	for _, s := range []step{c.begun, c.events, c.lateSeries, c.newSeries, c.seriesKeys, c.columns} {
		if err := c.run(s); err != nil {
			return err
		}
	}
	return nil
}

// run repeats a step until nothing is left. What is full is written to the copy
// between two slices.
func (c *copying) run(s step) error {
	for more := true; more; {
		once := func() (err error) {
			if err = c.from.ended(); err == nil {
				more, err = s()
			}
			return err
		}
		var err error
		if c.locked {
			err = once()
		} else {
			err = c.slice(once)
		}
		if err == nil && c.size >= maxGroupBytes/4 {
			err = Guard(c.next)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
