package bolt

import (
	"context"
	"errors"
	"fmt"
	"os"

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

// Prune implements store.Store, as Compact does.
func (t *Store) Prune(ctx context.Context, d store.Dropping) (store.Compaction, error) {
	return t.rewrite(ctx, &d)
}

// CompactName is the copy while it is being written, under an exclusive lock of its
// own. A crash leaves it behind; the next one takes it over.
const CompactName = DatabaseName + ".compact"

const (
	// A copy starts over when the database was replaced, so many times.
	copyTries = 5
	// So many ids at most are left to the last step, unless writers have been faster
	// for so many rounds.
	longTail   = 256
	copyRounds = 8
)

// rewrite copies the database, without some events, and puts the copy in its place.
// Where there is nothing to drop, nothing is done; d is nil to copy all.
func (t *Store) rewrite(ctx context.Context, d *store.Dropping) (r store.Compaction, err error) {
	for range copyTries {
		if r, err = t.rewriteOnce(ctx, d); !errors.Is(err, errChanged) {
			return r, err
		}
	}
	return r, fmt.Errorf("%w: the database is replaced again and again", store.ErrBusy)
}

func (t *Store) rewriteOnce(ctx context.Context, d *store.Dropping) (r store.Compaction, err error) {
	c := &copying{t: t, ctx: ctx, dropping: d}
	defer c.close()
	err = c.slice(func() error {
		r.Kept, r.Before = c.from.st.Stored, c.source.Size()
		r.Size = r.Before
		if d == nil {
			return nil
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

// finish copies what is left under the exclusive lock, and gives the copy its name.
// Unless it is the last try, it returns errLongTail when much is left.
func (c *copying) finish(r *store.Compaction, last bool) error {
	db, err := c.openSource(lock.Exclusive)
	if err != nil {
		return err
	}
	defer db.Close()
	err = db.guard(func() error {
		if err := c.t.clearBeyondHead(db); err != nil {
			return err
		}
		return db.View(func(b *bbolt.Tx) (err error) {
			if c.from, err = newTx(c.t, b); err != nil {
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
			return c.rest()
		})
	})
	if err != nil {
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
	err = publish(c.file.File().Name(), c.t.Path(DatabaseName))
	c.published = err == nil || errors.Is(err, store.ErrUnknownOutcome)
	return err
}
