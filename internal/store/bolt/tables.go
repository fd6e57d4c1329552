package bolt

import (
	"bytes"
	"slices"

	"thread/index"
	"thread/internal/store"
)

// table returns the bucket of a table, which may be nil in a read transaction: a table
// comes with its first use.
func (tx *Tx) table(t store.Table) (*index.Bucket, error) {
	for i := range tx.opened {
		if tx.opened[i].name == t {
			return tx.opened[i].Bucket, nil
		}
	}
	open := tx.bucket
	if t == store.Progress || t == store.Subscriptions {
		open = tx.own
	}
	b, err := open([]byte(t))
	if b != nil || err == nil && !tx.Writable() { // one that is missing stays so while no process can make it
		tx.opened = append(tx.opened, openTable{t, b})
	}
	return b, err
}

// openTable is a table that a transaction has used; nil in one that reads: there is none.
type openTable struct {
	name store.Table
	*index.Bucket
}

// fillOthers is how full a page of a table that is not the engine's own is left when it
// is split.
const fillOthers = 0.9

// later is table for one that is about to be written to.
func (tx *Tx) later(t store.Table) (*index.Bucket, error) {
	b, err := tx.table(t)
	if b == nil && err == nil {
		b, err = index.CreateBucket(tx.b, tx.over, []byte(t))
	}
	if b != nil && !store.Reserved(t) {
		// Most of what others keep is numbered: pages that are left half full are twice as
		// many to write.
		b.SetFill(fillOthers)
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
	if slices.Contains(comparedTables, t) {
		if is, err := index.Get(b, key); err != nil || is != nil && bytes.Equal(is, value) {
			return err
		}
	}
	return index.Put(b, key, value)
}

// comparedTables are those in which a record is often put as it is. A transaction that
// changes nothing is not committed.
var comparedTables = []store.Table{store.Subscriptions, store.Deliveries, store.Schedules, store.LimitsTable}

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
	return index.DropBucket(tx.b, tx.over, []byte(t))
}
