package bolt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"go.etcd.io/bbolt"

	"thread/internal/store"
	"thread/lock"
)

// Compact implements store.Store. The copy is made in slices, like any long read, and
// what is written meanwhile is part of it: others wait for the last step only. The disk
// needs space for both.
func (t *Store) Compact(ctx context.Context) (store.Compaction, error) {
	return t.rewrite(ctx, nil)
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

// Moment is when a copy was made, by the transactions of the database and of the copy.
type Moment struct {
	File   string `json:"file"`
	Source int    `json:"source"`
	Copy   int    `json:"copy"`
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

// CompactName is the copy while it is being written, under an exclusive lock of its
// own. A crash leaves it behind; the next one takes it over.
const CompactName = DatabaseName + ".compact"

const (
	// A copy starts over when the database was replaced, that many times.
	copyTries = 5
	// That many ids at most are left to the last step, unless writers have been faster
	// for that many rounds.
	longTail   = 256
	copyRounds = 8
)

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

// errLongTail says that there is too much left to hold everybody up.
var errLongTail = errors.New("much was pushed meanwhile")

// syncCopy is exchanged by tests.
var syncCopy = (*bbolt.DB).Sync

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
