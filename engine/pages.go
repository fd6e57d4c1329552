package engine

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
)

// This file reads bbolt's pages without bbolt, for check and repair: bbolt maps
// the file and follows what it finds there, so that a damaged page can make it
// panic, loop or read outside of the map. Here every offset is checked, and a
// fault ends one page, not the walk.
//
// A page, in the byte order of the host:
//
//	id        8
//	flags     2  1 branch, 2 leaf, 4 meta, 16 free list
//	count     2  elements
//	overflow  4  pages that follow and belong to this one
//	elements  count × 16
//	              leaf:   flags 4 (1: a bucket), pos 4, key bytes 4, value bytes 4
//	              branch: pos 4, key bytes 4, page id 8
//	              pos counts from the start of the element
//
// The value of a bucket is its root page (8), its sequence (8), and, when the
// root is 0, a whole leaf page.
const (
	pageBranch       = 1
	pageLeaf         = 2
	pageFreelist     = 16
	elementBytes     = 16
	elementBucket    = 1
	bucketHeadBytes  = 16
	maxTreeDepth     = 64
	freelistOverflow = 0xFFFF // the real count is the first element
)

// pageFile is a database file of which some pages may be damaged.
type pageFile struct {
	f        *os.File
	pageSize int64
	pages    uint64 // whole pages in the file
}

func newPageFile(f *os.File, pageSize int64) (*pageFile, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return &pageFile{f: f, pageSize: pageSize, pages: uint64(info.Size() / pageSize)}, nil
}

// page is one page with what overflows from it.
type page struct {
	id       uint64
	flags    uint16
	count    int
	overflow uint64
	data     []byte
}

// read returns a page whose header is sound.
func (p *pageFile) read(id uint64) (*page, error) {
	if id >= p.pages {
		return nil, fmt.Errorf("outside of the file")
	}
	var head [boltPageHeader]byte
	if _, err := p.f.ReadAt(head[:], int64(id)*p.pageSize); err != nil {
		return nil, err
	}
	order := binary.NativeEndian
	g := &page{id: id, flags: order.Uint16(head[8:]), count: int(order.Uint16(head[10:])), overflow: uint64(order.Uint32(head[12:]))}
	if own := order.Uint64(head[:]); own != id {
		return nil, fmt.Errorf("calls itself page %d", own)
	}
	if g.overflow >= p.pages-id {
		return nil, fmt.Errorf("%d more pages than the file has", g.overflow)
	}
	g.data = make([]byte, int64(g.overflow+1)*p.pageSize)
	if _, err := p.f.ReadAt(g.data, int64(id)*p.pageSize); err != nil && err != io.EOF {
		return nil, err
	}
	if g.flags != pageFreelist && int64(boltPageHeader+g.count*elementBytes) > int64(len(g.data)) {
		return nil, fmt.Errorf("%d elements do not fit", g.count)
	}
	return g, nil
}

// element is one entry of a leaf or branch page.
type element struct {
	bucket     bool
	key, value []byte
	child      uint64 // of a branch
	page       uint64 // where it stands; 0 for a page within a bucket's value
	index      int
}

func (g *page) element(i int) (e element, err error) {
	e.page, e.index = g.id, i
	order := binary.NativeEndian
	at := boltPageHeader + i*elementBytes
	h := g.data[at:]
	var pos, keyBytes, valueBytes uint64
	if g.flags == pageLeaf {
		e.bucket = order.Uint32(h)&elementBucket != 0
		pos, keyBytes, valueBytes = uint64(order.Uint32(h[4:])), uint64(order.Uint32(h[8:])), uint64(order.Uint32(h[12:]))
	} else {
		pos, keyBytes, e.child = uint64(order.Uint32(h)), uint64(order.Uint32(h[4:])), order.Uint64(h[8:])
	}
	from := uint64(at) + pos
	if from+keyBytes+valueBytes > uint64(len(g.data)) {
		return e, fmt.Errorf("element %d lies outside of it", i)
	}
	e.key = g.data[from : from+keyBytes]
	e.value = g.data[from+keyBytes : from+keyBytes+valueBytes]
	return e, nil
}

// treeWalk visits the trees below a meta page.
type treeWalk struct {
	*pageFile
	meta  boltMeta
	used  map[uint64]bool // pages seen, by id
	fault func(place, what string)

	// A walk in slices goes on behind the key after, and stops behind a leaf page
	// after which enough says so.
	after   []byte
	enough  func() bool
	stopped bool
	seen    func(g *page) // told of every page; nil: nobody
}

func (w *treeWalk) faultf(id uint64, bucket, format string, args ...any) {
	place := fmt.Sprintf("page %d", id)
	if bucket != "" {
		place += " of bucket " + bucket
	}
	w.fault(place, fmt.Sprintf(format, args...))
}

// use marks the pages of g as taken and reports whether they were free of
// another use until now. A page that is met twice would turn the walk into a
// loop.
func (w *treeWalk) use(g *page, bucket string) bool {
	for id := g.id; id <= g.id+g.overflow; id++ {
		if w.used[id] {
			w.faultf(id, bucket, "is used twice")
			return false
		}
		w.used[id] = true
		if id >= w.meta.pages {
			w.faultf(id, bucket, "lies behind the last page in use, %d", w.meta.pages-1)
			return false
		}
	}
	if w.seen != nil {
		w.seen(g)
	}
	return true
}

// tree visits the elements of the leaf pages below id, in order. last is the
// greatest key so far, low the key by which the page is reached.
func (w *treeWalk) tree(bucket string, id uint64, depth int, low []byte, last *[]byte, fn func(e *element)) {
	g, err := w.read(id)
	if err != nil {
		w.faultf(id, bucket, "%v", err)
		return
	}
	if g.flags != pageBranch && g.flags != pageLeaf || depth > maxTreeDepth {
		w.faultf(id, bucket, "is not a page of a tree (flags %#x)", g.flags)
		return
	}
	if w.use(g, bucket) {
		w.elements(g, bucket, depth, low, last, fn)
	}
}

func (w *treeWalk) elements(g *page, bucket string, depth int, low []byte, last *[]byte, fn func(e *element)) {
	for i := range g.count {
		e, err := g.element(i)
		if err != nil {
			w.faultf(g.id, bucket, "%v", err)
			continue
		}
		// The keys of a page rise from low on, those of the pages one after the other
		// from last on: where a walk was resumed, that is the key that it goes on behind.
		passed := w.passed(g, i, &e)
		if string(e.key) < string(low) || i > 0 && string(e.key) == string(low) || !passed && *last != nil && string(e.key) <= string(*last) && (w.after == nil || string(e.key) > string(w.after)) {
			w.faultf(g.id, bucket, "element %d is out of order", i)
		}
		if low = e.key; passed {
			continue
		}
		if g.flags == pageBranch {
			if w.tree(bucket, e.child, depth+1, e.key, last, fn); w.stopped {
				return
			}
			continue
		}
		*last = e.key
		fn(&e)
	}
	if g.flags == pageLeaf && w.enough != nil && string(*last) > string(w.after) { // else nothing was gained
		w.stopped = w.enough()
	}
}

// passed reports whether all of an element lies up to the key after.
func (w *treeWalk) passed(g *page, i int, e *element) bool {
	if w.after == nil {
		return false
	}
	if g.flags == pageLeaf {
		return string(e.key) <= string(w.after)
	}
	if i+1 == g.count {
		return false
	}
	next, err := g.element(i + 1)
	return err == nil && string(next.key) <= string(w.after)
}

// bucket visits the entries of the bucket whose value is head.
func (w *treeWalk) bucket(name string, head []byte, fn func(e *element)) {
	if len(head) < bucketHeadBytes {
		w.fault("bucket "+name, "has no root")
		return
	}
	last := w.after
	if root := binary.NativeEndian.Uint64(head); root != 0 {
		w.tree(name, root, 0, nil, &last, fn)
		return
	}
	inline, ok := inlinePage(head)
	if !ok {
		w.fault("bucket "+name, "has a page that is not one")
		return
	}
	w.elements(inline, name, 0, nil, &last, fn)
}

// bucketRoot returns the root page of the bucket whose value is head, 0 when it has
// none of its own.
func bucketRoot(head []byte) uint64 {
	if len(head) < bucketHeadBytes {
		return 0
	}
	return binary.NativeEndian.Uint64(head)
}

// inlinePage returns the page in the value of a small bucket.
func inlinePage(head []byte) (*page, bool) {
	if len(head) < bucketHeadBytes+boltPageHeader {
		return nil, false
	}
	g := &page{data: head[bucketHeadBytes:]}
	g.flags, g.count = binary.NativeEndian.Uint16(g.data[8:]), int(binary.NativeEndian.Uint16(g.data[10:]))
	return g, g.flags == pageLeaf && boltPageHeader+g.count*elementBytes <= len(g.data)
}

// free visits the pages of the free list and marks them as used. It calls each, if
// that is not nil.
func (w *treeWalk) free(each func(id uint64)) (count int64) {
	g, err := w.read(w.meta.freelist)
	if err == nil && g.flags != pageFreelist {
		err = fmt.Errorf("is not the free list (flags %#x)", g.flags)
	}
	if err != nil {
		w.faultf(w.meta.freelist, "", "%v", err)
		return 0
	}
	if !w.use(g, "") {
		return 0
	}
	ids := g.data[boltPageHeader:]
	n := uint64(g.count)
	if n == freelistOverflow {
		n, ids = binary.NativeEndian.Uint64(ids), ids[8:]
	}
	if n > uint64(len(ids)/8) {
		w.faultf(g.id, "", "%d free pages do not fit", n)
		return 0
	}
	for i := range n {
		id := binary.NativeEndian.Uint64(ids[i*8:])
		switch {
		case id < 2 || id >= w.meta.pages:
			w.faultf(g.id, "", "names page %d as free", id)
		case w.used[id]:
			w.faultf(id, "", "is in use and free at once")
		default:
			w.used[id] = true
			count++
			if each != nil {
				each(id)
			}
		}
	}
	return count
}
