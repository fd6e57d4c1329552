package index

import (
	"bytes"

	"go.etcd.io/bbolt"
)

// Cursor walks a bucket in the order of its keys. Where an overlay changes the bucket, it
// merges two walks, and checks each step in the pages itself: a caller sees no key that
// is deleted. The bucket must not be written to meanwhile.
//
//	pages     a   c d   f      an overlay with b, c deleted, f changed
//	overlay     b c'    f
//	walk      a b   d   f
type Cursor struct {
	b     *Bucket
	base  *bbolt.Cursor // nil where the database has no such bucket
	k, v  []byte        // where base is; nil at an end
	begin bool          // of the ends, it is at the first
	at    int           // an entry of the layer
	key   []byte        // where the cursor is
	steps Steps
}

// Cursor returns a cursor on the bucket.
func (b *Bucket) Cursor() *Cursor {
	c := &Cursor{b: b}
	if s := b.stored(); s != nil {
		c.base = s.Cursor()
	}
	return c
}

// Bucket returns the bucket that the cursor was made of.
func (c *Cursor) Bucket() *Bucket { return c.b }

// First moves to the first key. All moves return nil where there is no key.
func (c *Cursor) First() (k, v []byte) {
	if !c.b.overlaid() {
		return c.base.First()
	}
	c.at = 0
	c.set(c.first())
	return c.up()
}

// Last moves to the last key.
func (c *Cursor) Last() (k, v []byte) {
	if !c.b.overlaid() {
		return c.base.Last()
	}
	c.at = len(c.b.layer.entries) - 1
	c.set(c.last())
	return c.down()
}

// Seek moves to the first key that is not below key.
func (c *Cursor) Seek(key []byte) (k, v []byte) {
	if !c.b.overlaid() {
		return c.base.Seek(key)
	}
	c.at = c.b.layer.from(key)
	if c.base != nil {
		c.set(c.base.Seek(key))
	}
	return c.up()
}

// Next moves to the next key.
func (c *Cursor) Next() (k, v []byte) {
	if !c.b.overlaid() {
		return c.base.Next()
	}
	if c.key == nil {
		return nil, nil
	}
	c.at = c.b.layer.from(c.key)
	if e := c.entry(); e != nil && bytes.Equal(e.key, c.key) {
		c.at++
	}
	if c.k == nil && c.begin {
		c.set(c.first())
	}
	for c.k != nil && bytes.Compare(c.k, c.key) <= 0 {
		c.stepUp()
	}
	return c.up()
}

// Prev moves to the key before.
func (c *Cursor) Prev() (k, v []byte) {
	if !c.b.overlaid() {
		return c.base.Prev()
	}
	if c.key == nil {
		return nil, nil
	}
	c.at = c.b.layer.from(c.key) - 1
	if c.k == nil && !c.begin {
		c.set(c.last())
	}
	for c.k != nil && bytes.Compare(c.k, c.key) >= 0 {
		c.stepDown()
	}
	return c.down()
}

// entry returns the entry at hand, nil behind an end.
func (c *Cursor) entry() *entry {
	if l := c.b.layer; c.at >= 0 && c.at < len(l.entries) {
		return l.entries[c.at]
	}
	return nil
}

// up returns the lesser of the two keys at hand, and passes over what is deleted.
func (c *Cursor) up() (k, v []byte) {
	for e := c.entry(); e != nil && (c.k == nil || bytes.Compare(e.key, c.k) <= 0); e = c.entry() {
		if e.value != nil {
			c.key = e.key
			return e.key, e.value
		}
		if bytes.Equal(e.key, c.k) {
			c.stepUp()
		}
		c.at++
	}
	c.key = c.k
	return c.k, c.v
}

// down is up for the greater of the two.
func (c *Cursor) down() (k, v []byte) {
	for e := c.entry(); e != nil && (c.k == nil || bytes.Compare(e.key, c.k) >= 0); e = c.entry() {
		if e.value != nil {
			c.key = e.key
			return e.key, e.value
		}
		if bytes.Equal(e.key, c.k) {
			c.stepDown()
		}
		c.at--
	}
	c.key = c.k
	return c.k, c.v
}

func (c *Cursor) set(k, v []byte) { c.k, c.v, c.begin = k, v, false }

// The steps in the pages. A panic with what is damaged becomes an error where a panic of
// bbolt does.

func (c *Cursor) first() (k, v []byte) {
	if c.base == nil {
		return nil, nil
	}
	must(CheckPath(c.b, nil))
	return c.base.First()
}

func (c *Cursor) last() (k, v []byte) {
	if c.base == nil {
		return nil, nil
	}
	must(CheckLast(c.b))
	return c.base.Last()
}

func (c *Cursor) stepUp() {
	must(c.steps.Check(c.b, c.k))
	c.set(c.base.Next())
}

func (c *Cursor) stepDown() {
	must(checkBefore(c.b, c.k))
	c.set(c.base.Prev())
	c.begin = c.k == nil
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
