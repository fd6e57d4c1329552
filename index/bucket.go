package index

import "go.etcd.io/bbolt"

// Bucket is a bucket of a database, with the changes that an overlay holds. A write goes
// to the overlay, or to the database where there is no overlay.
type Bucket struct {
	base  *bbolt.Bucket // nil: only the overlay has the bucket
	over  *Overlay      // nil: there is no overlay
	layer *layer        // of the overlay; nil: it has no changes
}

// Wrap returns a bucket without an overlay, nil for nil.
func Wrap(b *bbolt.Bucket) *Bucket {
	if b == nil {
		return nil
	}
	return &Bucket{base: b}
}

// Root returns the bucket that holds the buckets of a database.
func Root(tx *bbolt.Tx) *Bucket { return Wrap(tx.Cursor().Bucket()) }

// stored returns the bucket of the database, nil where there is none or the overlay
// hides it.
func (b *Bucket) stored() *bbolt.Bucket {
	if b.layer != nil && b.layer.hidden {
		return nil
	}
	return b.base
}

// root returns the page of the bucket's root, 0 where there is none: the bucket is in
// the page of its parent, or is not in the database.
func (b *Bucket) root() uint64 {
	if s := b.stored(); s != nil {
		return uint64(s.RootPage())
	}
	return 0
}

// Stored returns the bucket of the database without the overlay, or nil.
func (b *Bucket) Stored() *bbolt.Bucket { return b.base }

// overlaid reports whether the overlay changes anything in the bucket.
func (b *Bucket) overlaid() bool {
	return b.layer != nil && (len(b.layer.entries) > 0 || b.layer.hidden || b.base == nil)
}

// Writable reports whether the bucket can be written to.
func (b *Bucket) Writable() bool {
	if b.over != nil {
		return b.over.writable
	}
	return b.base.Writable()
}

// pagesChange reports whether the transaction changes the pages of the bucket.
func (b *Bucket) pagesChange() bool { return b.over == nil && b.base.Writable() }

// SetFill sets how full a page is left when it is split. Only pages that this
// transaction writes are split.
func (b *Bucket) SetFill(percent float64) {
	if b.pagesChange() {
		b.base.FillPercent = percent
	}
}

// Get returns the value of key, nil when there is none.
func (b *Bucket) Get(key []byte) []byte {
	if b.layer != nil {
		if e := b.layer.find(key); e != nil {
			return e.value
		}
	}
	if s := b.stored(); s != nil {
		return s.Get(key)
	}
	return nil
}

// Put stores a value. Without an overlay both slices must stay as they are until the end
// of the transaction.
func (b *Bucket) Put(key, value []byte) error {
	if err := step(); err != nil {
		return err
	}
	if b.over == nil {
		return b.base.Put(key, value)
	}
	return b.set(key, value, false)
}

// Delete removes a key, if it is there.
func (b *Bucket) Delete(key []byte) error {
	if err := step(); err != nil {
		return err
	}
	if b.over == nil {
		return b.base.Delete(key)
	}
	if b.Get(key) == nil {
		return nil
	}
	return b.set(key, nil, true)
}

// set puts a value, or deletes the key.
func (b *Bucket) set(key, value []byte, deleted bool) error {
	l := b.layer
	e := l.find(key)
	if e == nil {
		var was []byte
		if s := b.stored(); s != nil && len(value) >= extended {
			if err := CheckPath(b, key); err != nil {
				return err
			}
			was = s.Get(key)
		}
		e = l.entry(key)
		e.value = was
	}
	if !e.touched {
		e.was, e.touched = e.value, true
	}
	if value = append([]byte{}, value...); deleted {
		value = nil
	}
	e.value = value
	return nil
}

// Sequence is a number that the bucket has in addition to its keys.
func (b *Bucket) Sequence() uint64 {
	if b.layer != nil && b.layer.numbered {
		return b.layer.sequence
	}
	if s := b.stored(); s != nil {
		return s.Sequence()
	}
	return 0
}

// SetSequence sets that number.
func (b *Bucket) SetSequence(n uint64) error {
	if err := step(); err != nil {
		return err
	}
	if b.over == nil {
		return b.base.SetSequence(n)
	}
	return b.over.setSequence(b.layer, n)
}

// Nested returns a bucket in this one, nil when there is none. No overlay changes it.
func (b *Bucket) Nested(name []byte) *Bucket {
	if s := b.stored(); s != nil {
		return Wrap(s.Bucket(name))
	}
	return nil
}

// ForEach calls fn for every key in order, with a nil value for a bucket in this one.
func (b *Bucket) ForEach(fn func(k, v []byte) error) error {
	c := b.Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		if err := fn(k, v); err != nil {
			return err
		}
	}
	return nil
}

// OpenBucket returns a bucket of a database with the changes of an overlay, which may be nil.
// The result is nil when there is no bucket of that name.
func OpenBucket(tx *bbolt.Tx, over *Overlay, name []byte) (*Bucket, error) {
	if err := CheckPath(Root(tx), name); err != nil {
		return nil, err
	}
	base := tx.Bucket(name)
	if over == nil {
		return Wrap(base), nil
	}
	l := over.layerOf(name)
	b := &Bucket{base: base, over: over, layer: l}
	if b.stored() == nil && (l == nil || !l.made) {
		return nil, nil
	}
	return b, nil
}

// Stored returns values of a database for Apply.
func Stored(tx *bbolt.Tx) func(name, key []byte) ([]byte, error) {
	return func(name, key []byte) ([]byte, error) {
		b, err := OpenBucket(tx, nil, name)
		if b == nil || err != nil {
			return nil, err
		}
		return get(b, key)
	}
}

// CreateBucket is OpenBucket for a bucket that is made where it is missing.
func CreateBucket(tx *bbolt.Tx, over *Overlay, name []byte) (*Bucket, error) {
	if over == nil {
		if err := CheckPath(Root(tx), name); err != nil {
			return nil, err
		}
		b, err := tx.CreateBucketIfNotExists(name)
		return Wrap(b), err
	}
	if b, err := OpenBucket(tx, over, name); b != nil || err != nil {
		return b, err
	}
	over.make(over.layerOf(name))
	return OpenBucket(tx, over, name)
}

// CreatePath is CreateBucket without an overlay for a bucket in buckets, whose names path has.
func CreatePath(tx *bbolt.Tx, path [][]byte) (b *Bucket, err error) {
	at := tx.Cursor().Bucket()
	for _, name := range path {
		if err = step(); err == nil {
			at, err = at.CreateBucketIfNotExists(name)
		}
		if err != nil {
			return nil, err
		}
	}
	return Wrap(at), nil
}

// DropBucket removes a bucket, if it is there, with its keys and its number.
func DropBucket(tx *bbolt.Tx, over *Overlay, name []byte) error {
	b, err := OpenBucket(tx, over, name)
	if b == nil || err != nil {
		return err
	}
	if over == nil {
		return tx.DeleteBucket(name)
	}
	over.drop(b.layer)
	return nil
}

// BucketNames returns the names of all buckets of a database.
func BucketNames(tx *bbolt.Tx, over *Overlay) (names []string, err error) {
	root := Root(tx)
	if err := CheckTree(root); err != nil {
		return nil, err
	}
	err = root.ForEach(func(name, _ []byte) error {
		names = append(names, string(name))
		return nil
	})
	if over != nil {
		names = over.names(names)
	}
	return names, err
}
