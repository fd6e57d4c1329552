package index

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"unsafe"
)

// bbolt follows the page numbers that it finds in branch pages without looking
// where it has been. A disk that lost writes, or a flipped bit, can turn a tree
// into a loop, and then a search ends in a stack that overflows and a step to the
// next key in memory that runs out; neither can be recovered from. So the path
// that bbolt is about to take is walked here first, with its length bounded.
// These are the very pages that the search touches, so that it costs some 100 ns.
//
// A page: see engine/pages.go.

// maxDepth is far above what a file can hold: even pages of two children each
// reach 2^32 pages at this depth.
const maxDepth = 32

const (
	headerBytes       = 16
	elementBytes      = 16
	branchFlag        = 1
	leafFlag          = 2
	bucketFlag        = 1  // of an element of a leaf
	bucketHeaderBytes = 16 // root page and sequence, before the page of a small bucket
)

// mapped is the memory that bbolt mapped the file to.
type mapped struct {
	data     unsafe.Pointer
	pageSize uint64
	pages    uint64 // in use
}

func mappedOf(b *Bucket) mapped {
	tx := b.base.Tx()
	info := tx.DB().Info()
	size := uint64(info.PageSize)
	// The address is of memory that Go does not manage.
	return mapped{data: *(*unsafe.Pointer)(unsafe.Pointer(&info.Data)), pageSize: size, pages: uint64(tx.Size()) / size}
}

// treePage is a page of a tree, with what overflows from it.
type treePage struct {
	data  []byte
	leaf  bool
	count int
}

func (m *mapped) page(id uint64) (p treePage, err error) {
	if err := step(); err != nil {
		return p, err
	}
	if id < 2 || id >= m.pages {
		return p, fmt.Errorf("%w: page %d is outside of the file", ErrDamaged, id)
	}
	head := unsafe.Slice((*byte)(unsafe.Add(m.data, id*m.pageSize)), headerBytes)
	order := binary.NativeEndian
	flags, overflow := order.Uint16(head[8:]), uint64(order.Uint32(head[12:]))
	if order.Uint64(head) != id || flags != branchFlag && flags != leafFlag || overflow >= m.pages-id {
		return p, fmt.Errorf("%w: page %d is not a page of a tree", ErrDamaged, id)
	}
	p = treePage{leaf: flags == leafFlag, count: int(order.Uint16(head[10:]))}
	p.data = unsafe.Slice(&head[0], (overflow+1)*m.pageSize)
	if headerBytes+p.count*elementBytes > len(p.data) || !p.leaf && p.count == 0 {
		return p, fmt.Errorf("%w: page %d has %d elements", ErrDamaged, id, p.count)
	}
	return p, nil
}

// key returns the key of element i, nil when it does not lie in the page.
func (p *treePage) key(i int) []byte {
	at := headerBytes + i*elementBytes
	order := binary.NativeEndian
	h := p.data[at:]
	if p.leaf {
		h = h[4:]
	}
	from, n := uint64(at)+uint64(order.Uint32(h)), uint64(order.Uint32(h[4:]))
	if from+n > uint64(len(p.data)) {
		return nil
	}
	return p.data[from : from+n : from+n]
}

// value returns the value of element i of a leaf, nil when it does not lie in the
// page.
func (p *treePage) value(i int) []byte {
	at := headerBytes + i*elementBytes
	order := binary.NativeEndian
	h := p.data[at:]
	from := uint64(at) + uint64(order.Uint32(h[4:])) + uint64(order.Uint32(h[8:]))
	n := uint64(order.Uint32(h[12:]))
	if from+n > uint64(len(p.data)) {
		return nil
	}
	return p.data[from : from+n : from+n]
}

func (p *treePage) child(i int) uint64 {
	return binary.NativeEndian.Uint64(p.data[headerBytes+i*elementBytes+8:])
}

// search returns the child that bbolt's search for key takes. It probes the very
// same elements, so that both agree also where a damaged page is out of order.
func (p *treePage) search(key []byte) int {
	exact := false
	low, high := 0, p.count
	for low < high {
		mid := int(uint(low+high) / 2)
		c := bytes.Compare(p.key(mid), key)
		exact = exact || c == 0
		if c < 0 {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if !exact && low > 0 {
		low--
	}
	return low
}

// walk goes down from a page to a leaf. choose picks the child of each branch; it
// gets a copy, so that the page stays on the stack: each use of a table walks.
func (m *mapped) walk(id uint64, depth int, choose func(p treePage) int) (leaf treePage, err error) {
	for ; depth <= maxDepth; depth++ {
		p, err := m.page(id)
		if err != nil || p.leaf {
			return p, err
		}
		id = p.child(choose(p))
	}
	return leaf, fmt.Errorf("%w: the tree is a loop at page %d", ErrDamaged, id)
}

// CheckPath returns ErrDamaged when the search for key in b does not come to an
// end. After it, and before b is written to, Get, Put and Seek for key are safe.
func CheckPath(b *Bucket, key []byte) error {
	root := b.root()
	if root == 0 {
		return step() // a small bucket, in its parent's page
	}
	m := mappedOf(b)
	_, err := m.walk(root, 0, func(p treePage) int { return p.search(key) })
	return err
}

// get is Get after CheckPath, nil for a key that is not there.
func get(b *Bucket, key []byte) ([]byte, error) { return getFrom(b, key, b.pagesChange()) }

// getFrom is get. Where the transaction has not written to the bucket, the walk has
// found the leaf already, and bbolt need not search it again: the series of a page
// of events are most of what it costs, and so are new series in a batch.
func getFrom(b *Bucket, key []byte, written bool) ([]byte, error) {
	if b.layer != nil {
		if e := b.layer.find(key); e != nil {
			return e.value, nil
		}
	}
	root := b.root()
	if root == 0 || written {
		if err := CheckPath(b, key); err != nil {
			return nil, err
		}
		return b.Get(key), nil
	}
	m := mappedOf(b)
	leaf, err := m.walk(root, 0, func(p treePage) int { return p.search(key) })
	if err != nil || leaf.count == 0 {
		return nil, err
	}
	i := leaf.search(key)
	if string(leaf.key(i)) != string(key) || leaf.isBucket(i) {
		return nil, nil
	}
	v := leaf.value(i)
	if v == nil {
		return nil, fmt.Errorf("%w: the value of key %x", ErrDamaged, key)
	}
	return v, nil
}

// firstOfLeaf returns the first key of the leaf that the search for key comes to, nil
// where that is not known.
func firstOfLeaf(b *Bucket, key []byte) ([]byte, error) {
	root := b.root()
	if root == 0 {
		return nil, nil
	}
	m := mappedOf(b)
	leaf, err := m.walk(root, 0, func(p treePage) int { return p.search(key) })
	if err != nil || leaf.count == 0 {
		return nil, err
	}
	return leaf.key(0), nil
}

// CheckLast is CheckPath for the last key.
func CheckLast(b *Bucket) error {
	root := b.root()
	if root == 0 {
		return step()
	}
	m := mappedOf(b)
	_, err := m.walk(root, 0, func(p treePage) int { return p.count - 1 })
	return err
}

// checkBefore returns ErrDamaged when the step to the key before the one that Seek
// finds for key does not come to an end.
func checkBefore(b *Bucket, key []byte) error {
	root := b.root()
	if root == 0 {
		return step()
	}
	m := mappedOf(b)
	before, depth, at := uint64(0), 0, 0
	_, err := m.walk(root, 0, func(p treePage) int {
		i := p.search(key)
		if at++; i > 0 {
			before, depth = p.child(i-1), at
		}
		return i
	})
	if err != nil || before == 0 {
		return err
	}
	_, err = m.walk(before, depth, func(p treePage) int { return p.count - 1 })
	return err
}

// CheckTree is CheckPath for all keys of b, and makes the small buckets in b safe
// to use, which bbolt keeps in the leaf of their parent. It looks at every page.
func CheckTree(b *Bucket) error {
	root := b.root()
	if root == 0 {
		return step()
	}
	m := mappedOf(b)
	left := m.pages
	return m.tree(root, 0, &left)
}

func (m *mapped) tree(id uint64, depth int, left *uint64) error {
	p, err := m.page(id)
	if err != nil {
		return err
	}
	if p.leaf {
		return p.smallBuckets(id)
	}
	if depth > maxDepth || *left < uint64(p.count) {
		return fmt.Errorf("%w: the tree is a loop at page %d", ErrDamaged, id)
	}
	*left -= uint64(p.count)
	for i := range p.count {
		if err := m.tree(p.child(i), depth+1, left); err != nil {
			return err
		}
	}
	return nil
}

// smallBuckets returns ErrDamaged when the page of a bucket in this leaf, which has
// the number id, is anything but a leaf: its children would be sought in itself,
// without end.
func (p *treePage) smallBuckets(id uint64) error {
	for i := range p.count {
		if !p.isBucket(i) {
			continue
		}
		v := p.value(i)
		if len(v) < bucketHeaderBytes {
			return fmt.Errorf("%w: bucket %q on page %d is cut short", ErrDamaged, p.key(i), id)
		}
		if binary.NativeEndian.Uint64(v) == 0 && !isSmallBucket(v[bucketHeaderBytes:]) {
			return fmt.Errorf("%w: bucket %q on page %d is not one", ErrDamaged, p.key(i), id)
		}
	}
	return nil
}

// isBucket reports whether element i of a leaf is a bucket.
func (p *treePage) isBucket(i int) bool {
	return binary.NativeEndian.Uint32(p.data[headerBytes+i*elementBytes:])&bucketFlag != 0
}

// isSmallBucket reports whether data is a leaf of which every element lies in it
// and none is a bucket, as bbolt writes them.
func isSmallBucket(data []byte) bool {
	if len(data) < headerBytes || binary.NativeEndian.Uint16(data[8:]) != leafFlag {
		return false
	}
	p := treePage{data: data, leaf: true, count: int(binary.NativeEndian.Uint16(data[10:]))}
	if headerBytes+p.count*elementBytes > len(data) {
		return false
	}
	for i := range p.count {
		if p.isBucket(i) || p.key(i) == nil || p.value(i) == nil {
			return false
		}
	}
	return true
}

// Steps makes a cursor's steps to the next key safe. The zero value is ready.
type Steps struct {
	until []byte // the last key of a leaf: up to it the next one is on the same page
	depth int    // branches above that leaf
	above [maxDepth + 1]place
}

// place is an element of a branch page.
type place struct {
	id    uint64
	index int
}

// Check returns ErrDamaged when the step from key to the next one in b does not
// come to an end. A scan asks it for each key, so the way to a leaf is kept and
// not searched again at its end.
func (s *Steps) Check(b *Bucket, key []byte) error {
	if string(key) < string(s.until) {
		return nil
	}
	root := b.root()
	if root == 0 {
		return step()
	}
	m := mappedOf(b)
	if s.until == nil || string(key) != string(s.until) {
		s.depth = 0
		leaf, err := m.down(root, s, func(p treePage) int { return p.search(key) })
		if err != nil {
			return err
		}
		if leaf.count > 0 {
			if s.until = leaf.key(leaf.count - 1); string(key) < string(s.until) {
				return nil
			}
		}
	}
	// Up to the first branch that has another child, and down its first children.
	for s.depth > 0 {
		at := &s.above[s.depth-1]
		p, err := m.page(at.id)
		if err != nil {
			return err
		}
		if at.index++; at.index >= p.count {
			s.depth--
			continue
		}
		leaf, err := m.down(p.child(at.index), s, func(treePage) int { return 0 })
		if err != nil {
			return err
		}
		if leaf.count > 0 {
			s.until = leaf.key(leaf.count - 1)
			return nil
		} // bbolt passes over empty pages; each step here continues in a finite page
	}
	s.until = nil
	return nil
}

// down is walk that notes its way in s.
func (m *mapped) down(id uint64, s *Steps, choose func(p treePage) int) (treePage, error) {
	return m.walk(id, s.depth, func(p treePage) int {
		s.above[s.depth] = place{id, choose(p)}
		id = p.child(s.above[s.depth].index)
		s.depth++
		return s.above[s.depth-1].index
	})
}
