package bolt

import (
	"go.etcd.io/bbolt"

	"thread/index"
	"thread/internal/store"
)

// table returns the bucket of a table, which may be nil in a read transaction: a table
// comes with its first use.
func (tx *Tx) table(t store.Table) (*bbolt.Bucket, error) {
	switch t {
	case store.Progress:
		return tx.progress, nil
	case store.Subscriptions:
		return tx.subscriptions, nil
	}
	return index.Bucket(tx.b, []byte(t))
}

// later is table for one that is about to be written to.
func (tx *Tx) later(t store.Table) (*bbolt.Bucket, error) {
	if b, err := tx.table(t); b != nil || err != nil {
		return b, err
	}
	return tx.b.CreateBucket([]byte(t))
}

// Get implements store.Records.
func (tx *Tx) Get(t store.Table, key []byte) ([]byte, error) {
	b, err := tx.table(t)
	if b == nil {
		return nil, err
	}
	return index.Get(b, key)
}

// Put implements store.Records.
func (tx *Tx) Put(t store.Table, key, value []byte) error {
	b, err := tx.later(t)
	if err != nil {
		return err
	}
	return index.Put(b, key, value)
}

// Delete implements store.Records.
func (tx *Tx) Delete(t store.Table, key []byte) error {
	b, err := tx.table(t)
	if b == nil {
		return err
	}
	return index.Delete(b, key)
}

// Ascend implements store.Records.
func (tx *Tx) Ascend(t store.Table, from []byte, fn func(key, value []byte) (bool, error)) error {
	b, err := tx.table(t)
	if b == nil {
		return err
	}
	return index.Range(b, from, records(t, fn))
}

// Descend implements store.Records.
func (tx *Tx) Descend(t store.Table, before []byte, fn func(key, value []byte) (bool, error)) error {
	b, err := tx.table(t)
	if b == nil {
		return err
	}
	return index.RangeDown(b, before, records(t, fn))
}

// records is fn without the buckets that older versions let other packages make in
// tables of theirs. In one of our own they are damage, which fn will find.
func records(t store.Table, fn func(key, value []byte) (bool, error)) func(key, value []byte) (bool, error) {
	return func(k, v []byte) (bool, error) {
		if v == nil && !store.Reserved(t) {
			return true, nil
		}
		return fn(k, v)
	}
}

// Sequence implements store.Records.
func (tx *Tx) Sequence(t store.Table) (uint64, error) {
	b, err := tx.table(t)
	if b == nil {
		return 0, err
	}
	return b.Sequence(), nil
}

// SetSequence implements store.Records.
func (tx *Tx) SetSequence(t store.Table, n uint64) error {
	b, err := tx.later(t)
	if err != nil {
		return err
	}
	return b.SetSequence(n)
}

// Drop implements store.Records.
func (tx *Tx) Drop(t store.Table) error {
	if b, err := tx.table(t); b == nil {
		return err
	}
	return tx.b.DeleteBucket([]byte(t))
}
