package bolt

import (
	"context"

	"go.etcd.io/bbolt"

	"thread/event"
	"thread/index"
	"thread/internal/store"
	"thread/lock"
)

// What tests of the packages above need to see, or to break.

// Raw returns the buckets of a transaction.
func Raw(tx store.Tx) Buckets { return Buckets{tx.(*Tx)} }

// Buckets are the buckets of a transaction, with what the journal has of them.
type Buckets struct{ tx *Tx }

// Bucket returns a bucket, nil where there is none.
func (b Buckets) Bucket(name []byte) *index.Bucket {
	bucket, _ := b.tx.bucket(name)
	return bucket
}

// DeleteBucket removes a bucket.
func (b Buckets) DeleteBucket(name []byte) error {
	return index.DropBucket(b.tx.b, b.tx.over, name)
}

// Fold puts what the journal has into events.db.
func Fold(ctx context.Context, t *Store) error {
	return UpdateRaw(ctx, t, func(*bbolt.Tx) error { return nil })
}

// OpenRaw opens events.db with bbolt, with what the journal had.
func OpenRaw(ctx context.Context, t *Store) (*bbolt.DB, error) {
	if err := Fold(ctx, t); err != nil {
		return nil, err
	}
	return bbolt.Open(t.Path(DatabaseName), FileMode, nil)
}

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

// UpdateRaw runs fn in a write transaction of bbolt's, and of no other process's.
func UpdateRaw(ctx context.Context, t *Store, fn func(b *bbolt.Tx) error) error {
	db, err := t.open(ctx, lock.Exclusive)
	if err != nil {
		return err
	}
	defer db.Close()
	tx, err := t.beginWrite(db, true)
	if err != nil {
		return err
	}
	defer tx.b.Rollback()
	if err := fn(tx.b); err != nil {
		return err
	}
	return db.commit(tx.b)
}
