package index

import (
	"fmt"

	"go.etcd.io/bbolt"
)

// These are the ways into a bucket that return ErrDamaged where bbolt's own would
// follow a loop. Each walks the path first, which costs some 100 ns.

// Get is b.Get.
func Get(b *Bucket, key []byte) ([]byte, error) { return get(b, key) }

// Put is b.Put.
func Put(b *Bucket, key, value []byte) error {
	if err := CheckPath(b, key); err != nil {
		return err
	}
	return b.Put(key, value)
}

// Fold writes all changes to the pages. Fill returns how full the pages of a bucket become.
func (o *Overlay) Fold(tx *bbolt.Tx, fill func(name []byte) float64) error {
	for _, l := range o.layers {
		if l.hidden {
			if err := DropBucket(tx, nil, l.name); err != nil {
				return err
			}
		}
		if len(l.entries) == 0 && !l.made && !l.numbered {
			continue
		}
		b, err := CreateBucket(tx, nil, l.name)
		if err != nil {
			return err
		}
		b.SetFill(fill(l.name))
		if l.numbered && b.Sequence() != l.sequence {
			if err := b.SetSequence(l.sequence); err != nil {
				return err
			}
		}
		for _, e := range l.entries {
			if e.value == nil {
				err = Delete(b, e.key)
			} else {
				err = Put(b, e.key, e.value)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// Delete is b.Delete.
func Delete(b *Bucket, key []byte) error {
	if err := CheckPath(b, key); err != nil {
		return err
	}
	return b.Delete(key)
}

// DeleteAll deletes keys that were collected first.
func DeleteAll(b *Bucket, keys [][]byte) error {
	for _, k := range keys {
		if err := Delete(b, k); err != nil {
			return err
		}
	}
	return nil
}

// Floor moves c to the last entry of b whose key is at most key, or to the first
// one where all are greater, and returns it, nil when b is empty.
func Floor(b *Bucket, c *Cursor, key []byte) (k, v []byte, err error) {
	for _, check := range [...]func() error{
		func() error { return CheckPath(b, key) }, func() error { return checkBefore(b, key) },
		func() error { return CheckPath(b, nil) }, func() error { return CheckLast(b) },
	} {
		if err := check(); err != nil {
			return nil, nil, err
		}
	}
	switch k, v = c.Seek(key); {
	case k == nil:
		k, v = c.Last()
	case string(k) != string(key):
		if k, v = c.Prev(); k == nil {
			k, v = c.First()
		}
	}
	return k, v, nil
}

// Range calls fn for the entries of b from key on, in their order, until it says
// that it wants no more or returns an error. fn must not write to b. Keys must
// rise: in a tree that is a loop each step ends, but not the way.
func Range(b *Bucket, key []byte, fn func(k, v []byte) (more bool, err error)) error {
	if err := CheckPath(b, key); err != nil {
		return err
	}
	var steps Steps
	c := b.Cursor()
	var last []byte
	for k, v := c.Seek(key); k != nil; k, v = c.Next() {
		if last != nil && string(k) <= string(last) {
			return fmt.Errorf("%w: key %x after %x", ErrDamaged, k, last)
		}
		last = k
		if more, err := fn(k, v); err != nil || !more {
			return err
		}
		if err := steps.Check(b, k); err != nil {
			return err
		}
	}
	return nil
}

// RangeDown is Range from the last key before the given one, nil for the last of all,
// towards the first. Keys must fall.
func RangeDown(b *Bucket, before []byte, fn func(k, v []byte) (more bool, err error)) error {
	c := b.Cursor()
	var k, v []byte
	if before == nil {
		if err := CheckLast(b); err != nil {
			return err
		}
		k, v = c.Last()
	} else {
		for _, check := range [...]func() error{
			func() error { return CheckPath(b, before) }, func() error { return checkBefore(b, before) }, func() error { return CheckLast(b) },
		} {
			if err := check(); err != nil {
				return err
			}
		}
		if k, v = c.Seek(before); k == nil {
			k, v = c.Last()
		}
		if k != nil && string(k) >= string(before) {
			k, v = c.Prev()
		}
	}
	var last, first []byte // first of the leaf of last: down to it the one before is on the same page
	for ; k != nil; k, v = c.Prev() {
		if last != nil && string(k) >= string(last) {
			return fmt.Errorf("%w: key %x before %x", ErrDamaged, k, last)
		}
		last = k
		if more, err := fn(k, v); err != nil || !more {
			return err
		}
		if first != nil && string(k) > string(first) {
			continue
		}
		if err := checkBefore(b, k); err != nil {
			return err
		}
		var err error
		if first, err = firstOfLeaf(b, k); err != nil {
			return err
		}
	}
	return nil
}
