package bolt

import (
	"context"

	"go.etcd.io/bbolt"

	"thread/event"
	"thread/internal/store"
	"thread/lock"
)

// What tests of the packages above need to see, or to break.

// Raw returns bbolt's transaction.
func Raw(tx store.Tx) *bbolt.Tx { return tx.(*Tx).b }

// FormatVersion returns the format of the file.
func FormatVersion(tx store.Tx) uint32 { return tx.(*Tx).format }

// CutBatch stores the first part of a long batch, and leaves it as a crash there does.
// There must be more drafts than MaxGroup.
func CutBatch(ctx context.Context, t *Store, ds []event.Draft) error {
	sp := spool{dir: t.Path(store.RunName)}
	defer sp.close()
	if err := sp.add(ds); err != nil {
		return err
	}
	in, err := sp.reader()
	if err != nil {
		return err
	}
	db, err := t.open(ctx, lock.Exclusive)
	if err != nil {
		return err
	}
	defer db.Close()
	l := &longBatch{t: t, in: in, left: sp.n}
	defer l.lines.close()
	if err := t.clearBeyondHead(db); err != nil {
		return err
	}
	return l.step(db)
}

// UpdateRaw runs fn in a write transaction of bbolt's, and of nobody else's.
func UpdateRaw(ctx context.Context, t *Store, fn func(b *bbolt.Tx) error) error {
	db, err := t.open(ctx, lock.Exclusive)
	if err != nil {
		return err
	}
	defer db.Close()
	return db.Update(fn)
}
