package engine

import (
	"bytes"
	"errors"
	"iter"

	"thread/internal/store"
)

// Records is a table of records of the caller's own, in the order of their keys,
// that changes in the same transaction as the thread. It is valid as long as its Tx.
type Records struct {
	of   *Tx
	tx   store.Tx
	name store.Table
}

// Record is a key and its value. Neither may be changed; both are valid until the
// end of the transaction.
type Record struct{ Key, Value []byte }

// Records returns the table of that name, such as "outbox", and creates it in a write
// transaction. One that is not there is empty in a read transaction. The names of the
// engine's own tables return [ErrInvalid].
func (tx *Tx) Records(name string) (*Records, error) {
	if store.Reserved(store.Table(name)) {
		return nil, invalidf("the name %q is not free for a table", name)
	}
	r := &Records{of: tx, tx: tx.s, name: store.Table(name)}
	if !tx.s.Writable() {
		return r, nil
	}
	// The table is there from now on, even if nothing is put into it.
	n, err := tx.s.Sequence(r.name)
	if err != nil {
		return r, err
	}
	err = tx.s.SetSequence(r.name, n)
	return r, err
}

// Get returns the value of the key, nil when there is no such record. It is valid
// until the end of the transaction and must not be changed. A record that cannot be
// read fails the transaction, whatever becomes of it in the function it is given to:
// [Thread.Update] and [Thread.View] return the error.
func (r *Records) Get(key []byte) []byte {
	v, err := r.tx.Get(r.name, key)
	if err != nil && r.of.readErr == nil {
		r.of.readErr = err
	}
	return v
}

// Put stores the record in place of an earlier one of that key. A key has 1 to
// 32,768 bytes. Both slices must stay as they are until the end of the transaction.
func (r *Records) Put(key, value []byte) error {
	if len(key) == 0 || len(key) > maxKeyBytes {
		return invalidf("a key of %d bytes", len(key))
	}
	if !r.tx.Writable() {
		return errReadOnly
	}
	return r.tx.Put(r.name, key, value)
}

// Delete removes the record of the key, if there is one.
func (r *Records) Delete(key []byte) error {
	if !r.tx.Writable() {
		return errReadOnly
	}
	return r.tx.Delete(r.name, key)
}

// Ascend gives the records with from <= key < to in the order of their keys. A nil
// to has no end. The table must not change before the loop has ended. An error is
// the last element.
func (r *Records) Ascend(from, to []byte) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		stopped := false
		err := r.tx.Ascend(r.name, from, func(k, v []byte) (bool, error) {
			if to != nil && bytes.Compare(k, to) >= 0 {
				return false, nil
			}
			stopped = !yield(Record{k, v}, nil)
			return !stopped, nil
		})
		if err != nil && !stopped {
			yield(Record{}, err)
		}
	}
}

// Descend is [Records.Ascend] from the last record to the first.
func (r *Records) Descend(from, to []byte) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		stopped := false
		err := r.tx.Descend(r.name, to, func(k, v []byte) (bool, error) {
			if bytes.Compare(k, from) < 0 {
				return false, nil
			}
			stopped = !yield(Record{k, v}, nil)
			return !stopped, nil
		})
		if err != nil && !stopped {
			yield(Record{}, err)
		}
	}
}

// maxKeyBytes is how long a key may be.
const maxKeyBytes = 32768

// errReadOnly says that a read transaction was to be written to.
var errReadOnly = errors.New("the transaction is for reading")
