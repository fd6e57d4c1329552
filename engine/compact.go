package engine

import (
	"context"
	"errors"
	"fmt"
	"os"

	"go.etcd.io/bbolt"

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
// The copy is made in slices, like any long read, and what is written meanwhile is
// part of it: others wait for the last step only. The disk needs room for both.
//
// Compact returns ErrBusy, also while another process compacts or prunes, and
// ErrUnknownOutcome when the new file has its name but may lose it in a loss of
// power; both files hold the same events then.
func (t *Thread) Compact(ctx context.Context) (Compaction, error) {
	return t.rewrite(ctx, nil)
}

// compactName is the copy while it is being written, under an exclusive lock of its
// own. A crash leaves it behind; the next one takes it over.
const compactName = databaseName + ".compact"

// dropping says which events are not copied: those up to the id that through
// returns, 0 for none. May returns an error when they must stay; it is asked again
// at the end, because consumers go on meanwhile. It may be nil.
type dropping struct {
	through func(tx *Tx) (int64, error)
	may     func(tx *Tx, through int64) error
}

const (
	// A copy begins anew when the database was replaced, so many times.
	copyTries = 5
	// So many ids at most are left to the last step, unless writers have been faster
	// for so many rounds.
	longTail   = 256
	copyRounds = 8
)

// rewrite copies the database, without some events, and puts the copy in its place.
// Where there is nothing to drop, nothing is done; d is nil to copy all.
func (t *Thread) rewrite(ctx context.Context, d *dropping) (r Compaction, err error) {
	for range copyTries {
		if r, err = t.rewriteOnce(ctx, d); !errors.Is(err, errChanged) {
			return r, err
		}
	}
	return r, fmt.Errorf("%w: the database is replaced again and again", ErrBusy)
}

func (t *Thread) rewriteOnce(ctx context.Context, d *dropping) (r Compaction, err error) {
	c := &copying{t: t, ctx: ctx, dropping: d}
	defer c.close()
	err = c.slice(func() error {
		r.Kept, r.Before = c.from.st.stored, c.source.Size()
		r.Size = r.Before
		if d == nil {
			return nil
		}
		r.Through, err = d.through(c.from)
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
func (c *copying) finish(r *Compaction, last bool) error {
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
			if !last && c.from.st.head-c.head > longTail {
				return errLongTail
			}
			if c.dropping != nil && c.dropping.may != nil {
				if err := c.dropping.may(c.from, c.through); err != nil {
					return err
				}
			}
			return c.rest()
		})
	})
	if err != nil {
		return err
	}
	r.Before, r.Dropped, r.Kept = c.source.Size(), c.from.st.stored-c.st.stored, c.st.stored
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
	err = publish(c.file.File().Name(), c.t.path(databaseName))
	c.published = err == nil || errors.Is(err, ErrUnknownOutcome)
	return err
}
