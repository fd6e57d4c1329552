package engine

import (
	"bytes"
	"iter"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// Records is a table of records of the caller's own, in the order of their keys,
// that changes in the same transaction as the thread. It is valid as long as its Tx.
type Records struct {
	b *bbolt.Bucket // nil for a table that is not there, in a read transaction
}

// Record is a key and its value. Neither may be changed; both are valid until the
// end of the transaction.
type Record struct{ Key, Value []byte }

// Records returns the table of that name, such as "outbox", and creates it in a
// write transaction. One that is not there is empty in a read transaction. The
// names of the engine's own tables return ErrInvalid.
func (tx *Tx) Records(name string) (*Records, error) {
	switch name {
	case string(bucketMeta), string(bucketEvents), string(bucketSeries), string(bucketSeriesByID),
		string(bucketColumns), string(bucketSubscriptions), string(bucketProgress), string(bucketChecked), string(bucketDeliveries),
		string(bucketDead), string(bucketRetries), string(bucketDedupe), string(bucketDedupeExpiry),
		string(bucketReceipts), string(bucketScheduled), string(bucketSchedules),
		string(bucketPieces), string(bucketTypes), string(bucketTypeBlocks), "":
		return nil, invalidf("the name %q is not free for a table", name)
	}
	if !tx.b.Writable() {
		return &Records{tx.b.Bucket([]byte(name))}, nil
	}
	b, err := tx.b.CreateBucketIfNotExists([]byte(name))
	return &Records{b}, err
}

// Get returns the value of the key, nil when there is no such record. It is valid
// until the end of the transaction and must not be changed.
func (r *Records) Get(key []byte) []byte {
	if r.b == nil {
		return nil
	}
	return r.b.Get(key)
}

// Put stores the record in place of an earlier one of that key. A key has 1 to
// 32,768 bytes. Both slices must stay as they are until the end of the transaction.
func (r *Records) Put(key, value []byte) error {
	if len(key) == 0 || len(key) > bbolt.MaxKeySize {
		return invalidf("a key of %d bytes", len(key))
	}
	if r.b == nil {
		return bolterrors.ErrTxNotWritable
	}
	return r.b.Put(key, value)
}

// Delete removes the record of the key, if there is one.
func (r *Records) Delete(key []byte) error {
	if r.b == nil {
		return bolterrors.ErrTxNotWritable
	}
	return r.b.Delete(key)
}

// Ascend gives the records with from <= key < to in the order of their keys. A nil
// to has no end. The table must not change before the loop has ended.
func (r *Records) Ascend(from, to []byte) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		if r.b == nil {
			return
		}
		c := r.b.Cursor()
		for k, v := c.Seek(from); k != nil && (to == nil || bytes.Compare(k, to) < 0); k, v = c.Next() {
			if v != nil && !yield(Record{k, v}, nil) {
				return
			}
		}
	}
}

// Descend is Ascend from the last record to the first.
func (r *Records) Descend(from, to []byte) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		if r.b == nil {
			return
		}
		c := r.b.Cursor()
		var k, v []byte
		if to == nil {
			k, v = c.Last()
		} else if k, v = c.Seek(to); k == nil {
			k, v = c.Last()
		}
		if k != nil && to != nil && bytes.Compare(k, to) >= 0 {
			k, v = c.Prev()
		}
		for ; k != nil && bytes.Compare(k, from) >= 0; k, v = c.Prev() {
			if v != nil && !yield(Record{k, v}, nil) {
				return
			}
		}
	}
}
