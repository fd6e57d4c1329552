package bolt

import (
	"slices"

	"go.etcd.io/bbolt"

	"thread/index"
	"thread/internal/store"
)

// table returns the bucket of a table, which may be nil in a read transaction: a table
// comes with its first use.
func (tx *Tx) table(t store.Table) (*bbolt.Bucket, error) {
	for i := range tx.opened {
		if tx.opened[i].name == t {
			return tx.opened[i].Bucket, nil
		}
	}
	open := index.Bucket
	if t == store.Progress || t == store.Subscriptions {
		open = own
	}
	b, err := open(tx.b, []byte(t))
	if b != nil || err == nil && !tx.b.Writable() { // one that is missing stays so while nobody can make it
		tx.opened = append(tx.opened, openTable{t, b})
	}
	return b, err
}

// openTable is a table that a transaction has used; nil in one that reads: there is none.
type openTable struct {
	name store.Table
	*bbolt.Bucket
}

// fillOthers is how full a page of a table that is not the engine's own is left when it
// is split.
const fillOthers = 0.9

// later is table for one that is about to be written to.
func (tx *Tx) later(t store.Table) (*bbolt.Bucket, error) {
	b, err := tx.table(t)
	if b == nil && err == nil {
		b, err = tx.b.CreateBucket([]byte(t))
	}
	if b != nil && !store.Reserved(t) {
		// Most of what others keep is numbered: pages that are left half full are twice as
		// many to write.
		b.FillPercent = fillOthers
	}
	return b, err
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
	if err != nil || b.Sequence() == n {
		return err // it would write the table's root again
	}
	return b.SetSequence(n)
}

// Drop implements store.Records.
func (tx *Tx) Drop(t store.Table) error {
	if b, err := tx.table(t); b == nil {
		return err
	}
	tx.opened = slices.DeleteFunc(tx.opened, func(o openTable) bool { return o.name == t })
	return tx.b.DeleteBucket([]byte(t))
}
