package disk

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"sort"
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
	PageBranch       = 1
	PageLeaf         = 2
	pageFreelist     = 16
	elementBytes     = 16
	elementBucket    = 1
	BucketHeadBytes  = 16
	MaxTreeDepth     = 64
	freelistOverflow = 0xFFFF // the real count is the first element
)

// PageFile is a database file of which some pages may be damaged.
type PageFile struct {
	f        *os.File
	PageSize int64
	Pages    uint64 // whole pages in the file
}

// NewPageFile returns the pages of f.
func NewPageFile(f *os.File, pageSize int64) (*PageFile, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return &PageFile{f: f, PageSize: pageSize, Pages: uint64(info.Size() / pageSize)}, nil
}

// Page is one page with what overflows from it.
type Page struct {
	ID       uint64
	Flags    uint16
	Count    int
	Overflow uint64
	data     []byte
}

// Read returns a page whose header is sound.
func (p *PageFile) Read(id uint64) (*Page, error) {
	if id >= p.Pages {
		return nil, fmt.Errorf("outside of the file")
	}
	var head [PageHeaderBytes]byte
	if _, err := p.f.ReadAt(head[:], int64(id)*p.PageSize); err != nil {
		return nil, err
	}
	order := binary.NativeEndian
	g := &Page{ID: id, Flags: order.Uint16(head[8:]), Count: int(order.Uint16(head[10:])), Overflow: uint64(order.Uint32(head[12:]))}
	if own := order.Uint64(head[:]); own != id {
		return nil, fmt.Errorf("calls itself page %d", own)
	}
	if g.Overflow >= p.Pages-id {
		return nil, fmt.Errorf("%d more pages than the file has", g.Overflow)
	}
	g.data = make([]byte, int64(g.Overflow+1)*p.PageSize)
	if _, err := p.f.ReadAt(g.data, int64(id)*p.PageSize); err != nil && err != io.EOF {
		return nil, err
	}
	if g.Flags != pageFreelist && int64(PageHeaderBytes+g.Count*elementBytes) > int64(len(g.data)) {
		return nil, fmt.Errorf("%d elements do not fit", g.Count)
	}
	return g, nil
}

// Element is one entry of a leaf or branch page.
type Element struct {
	Bucket     bool
	Key, Value []byte
	Child      uint64 // of a branch
	Page       uint64 // where it stands; 0 for a page within a bucket's value
	Index      int
}

// Element returns the entry i of a page.
func (g *Page) Element(i int) (e Element, err error) {
	e.Page, e.Index = g.ID, i
	order := binary.NativeEndian
	at := PageHeaderBytes + i*elementBytes
	h := g.data[at:]
	var pos, keyBytes, valueBytes uint64
	if g.Flags == PageLeaf {
		e.Bucket = order.Uint32(h)&elementBucket != 0
		pos, keyBytes, valueBytes = uint64(order.Uint32(h[4:])), uint64(order.Uint32(h[8:])), uint64(order.Uint32(h[12:]))
	} else {
		pos, keyBytes, e.Child = uint64(order.Uint32(h)), uint64(order.Uint32(h[4:])), order.Uint64(h[8:])
	}
	from := uint64(at) + pos
	if from+keyBytes+valueBytes > uint64(len(g.data)) {
		return e, fmt.Errorf("element %d lies outside of it", i)
	}
	e.Key = g.data[from : from+keyBytes]
	e.Value = g.data[from+keyBytes : from+keyBytes+valueBytes]
	return e, nil
}

// TreeWalk visits the trees below a meta page.
type TreeWalk struct {
	*PageFile
	Meta  Meta
	Used  map[uint64]bool // pages seen, by id
	Fault func(place, what string)

	// A walk in slices continues behind the key after, and stops behind a leaf page
	// after which enough says so.
	After   []byte
	Enough  func() bool
	Stopped bool
	Seen    func(g *Page) // told of every page; nil: none
}

// Faultf tells of a fault of a page, in a bucket if that is known.
func (w *TreeWalk) Faultf(id uint64, bucket, format string, args ...any) {
	place := fmt.Sprintf("page %d", id)
	if bucket != "" {
		place += " of bucket " + bucket
	}
	w.Fault(place, fmt.Sprintf(format, args...))
}

// use marks the pages of g as taken and reports whether they were free of
// another use until now. A page that is met twice would turn the walk into a
// loop.
func (w *TreeWalk) use(g *Page, bucket string) bool {
	for id := g.ID; id <= g.ID+g.Overflow; id++ {
		if w.Used[id] {
			w.Faultf(id, bucket, "is used twice")
			return false
		}
		w.Used[id] = true
		if id >= w.Meta.Pages {
			w.Faultf(id, bucket, "lies behind the last page in use, %d", w.Meta.Pages-1)
			return false
		}
	}
	if w.Seen != nil {
		w.Seen(g)
	}
	return true
}

// Tree visits the elements of the leaf pages below id, in order. last is the
// greatest key so far, low the key by which the page is reached.
func (w *TreeWalk) Tree(bucket string, id uint64, depth int, low []byte, last *[]byte, fn func(e *Element)) {
	g, err := w.Read(id)
	if err != nil {
		w.Faultf(id, bucket, "%v", err)
		return
	}
	if g.Flags != PageBranch && g.Flags != PageLeaf || depth > MaxTreeDepth {
		w.Faultf(id, bucket, "is not a page of a tree (flags %#x)", g.Flags)
		return
	}
	if w.use(g, bucket) {
		w.elements(g, bucket, depth, low, last, fn)
	}
}

func (w *TreeWalk) elements(g *Page, bucket string, depth int, low []byte, last *[]byte, fn func(e *Element)) {
	for i := range g.Count {
		e, err := g.Element(i)
		if err != nil {
			w.Faultf(g.ID, bucket, "%v", err)
			continue
		}
		// The keys of a page rise from low on, the keys of the pages one after the other
		// from last on: where a walk was resumed, that is the key that it continues behind.
		passed := w.passed(g, i, &e)
		if string(e.Key) < string(low) || i > 0 && string(e.Key) == string(low) || !passed && *last != nil && string(e.Key) <= string(*last) && (w.After == nil || string(e.Key) > string(w.After)) {
			w.Faultf(g.ID, bucket, "element %d is out of order", i)
		}
		if low = e.Key; passed {
			continue
		}
		if g.Flags == PageBranch {
			if w.Tree(bucket, e.Child, depth+1, e.Key, last, fn); w.Stopped {
				return
			}
			continue
		}
		*last = e.Key
		fn(&e)
	}
	if g.Flags == PageLeaf && w.Enough != nil && string(*last) > string(w.After) { // else nothing was gained
		w.Stopped = w.Enough()
	}
}

// passed reports whether all of an element lies up to the key after.
func (w *TreeWalk) passed(g *Page, i int, e *Element) bool {
	if w.After == nil {
		return false
	}
	if g.Flags == PageLeaf {
		return string(e.Key) <= string(w.After)
	}
	if i+1 == g.Count {
		return false
	}
	next, err := g.Element(i + 1)
	return err == nil && string(next.Key) <= string(w.After)
}

// Bucket visits the entries of the bucket whose value is head.
func (w *TreeWalk) Bucket(name string, head []byte, fn func(e *Element)) {
	if len(head) < BucketHeadBytes {
		w.Fault("bucket "+name, "has no root")
		return
	}
	last := w.After
	if root := binary.NativeEndian.Uint64(head); root != 0 {
		w.Tree(name, root, 0, nil, &last, fn)
		return
	}
	inline, ok := InlinePage(head)
	if !ok {
		w.Fault("bucket "+name, "has a page that is not one")
		return
	}
	w.elements(inline, name, 0, nil, &last, fn)
}

// BucketRoot returns the root page of the bucket whose value is head, 0 when it has
// no separate one.
func BucketRoot(head []byte) uint64 {
	if len(head) < BucketHeadBytes {
		return 0
	}
	return binary.NativeEndian.Uint64(head)
}

// InlinePage returns the page in the value of a small bucket.
func InlinePage(head []byte) (*Page, bool) {
	if len(head) < BucketHeadBytes+PageHeaderBytes {
		return nil, false
	}
	g := &Page{data: head[BucketHeadBytes:]}
	g.Flags, g.Count = binary.NativeEndian.Uint16(g.data[8:]), int(binary.NativeEndian.Uint16(g.data[10:]))
	return g, g.Flags == PageLeaf && PageHeaderBytes+g.Count*elementBytes <= len(g.data)
}

// EmptyBucket returns the value of a bucket without entries.
func EmptyBucket() []byte {
	head := make([]byte, BucketHeadBytes+PageHeaderBytes)
	binary.NativeEndian.PutUint16(head[BucketHeadBytes+8:], PageLeaf)
	return head
}

// Get returns the value of a key in the bucket whose value is head, nil where there is
// none, or where the pages on the way to it cannot be read.
func (p *PageFile) Get(head, key []byte) []byte {
	g, ok := InlinePage(head)
	if root := BucketRoot(head); root != 0 {
		var err error
		g, err = p.Read(root)
		ok = err == nil
	}
	for depth := 0; ok && depth <= MaxTreeDepth; depth++ {
		i := sort.Search(g.Count, func(i int) bool {
			e, err := g.Element(i)
			return err == nil && string(e.Key) > string(key)
		})
		if i == 0 {
			return nil
		}
		e, err := g.Element(i - 1)
		if err != nil {
			return nil
		}
		switch {
		case g.Flags == PageLeaf && !e.Bucket && string(e.Key) == string(key):
			return e.Value
		case g.Flags != PageBranch:
			return nil
		}
		g, err = p.Read(e.Child)
		ok = err == nil
	}
	return nil
}

// Free visits the pages of the free list and marks them as used. It calls each, if
// that is not nil.
func (w *TreeWalk) Free(each func(id uint64)) (count int64) {
	g, err := w.Read(w.Meta.Freelist)
	if err == nil && g.Flags != pageFreelist {
		err = fmt.Errorf("is not the free list (flags %#x)", g.Flags)
	}
	if err != nil {
		w.Faultf(w.Meta.Freelist, "", "%v", err)
		return 0
	}
	if !w.use(g, "") {
		return 0
	}
	ids := g.data[PageHeaderBytes:]
	n := uint64(g.Count)
	if n == freelistOverflow {
		n, ids = binary.NativeEndian.Uint64(ids), ids[8:]
	}
	if n > uint64(len(ids)/8) {
		w.Faultf(g.ID, "", "%d free pages do not fit", n)
		return 0
	}
	for i := range n {
		id := binary.NativeEndian.Uint64(ids[i*8:])
		switch {
		case id < 2 || id >= w.Meta.Pages:
			w.Faultf(g.ID, "", "names page %d as free", id)
		case w.Used[id]:
			w.Faultf(id, "", "is in use and free at once")
		default:
			w.Used[id] = true
			count++
			if each != nil {
				each(id)
			}
		}
	}
	return count
}
