package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"thread/event"
	"thread/index"
	"thread/internal/faults"
	"thread/internal/store"
)

// must ends a test with an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// opened returns a file with these bytes.
func opened(t *testing.T, b []byte) *os.File {
	t.Helper()
	f, err := os.CreateTemp(faults.Dir(t), "db")
	must(t, err)
	t.Cleanup(func() { f.Close() })
	_, err = f.Write(b)
	must(t, err)
	return f
}

// bytesOf returns a sound database and its newest meta page.
func bytesOf(t *testing.T) ([]byte, Meta) {
	t.Helper()
	path, _ := database(t)
	b, err := os.ReadFile(path)
	must(t, err)
	metas := ReadMetas(bytes.NewReader(b))
	return b, metas.Valid()[0]
}

// TestPageSizes: a database has pages of 512 bytes to 64 KiB.
func TestPageSizes(t *testing.T) {
	for _, size := range []int{512, 1024, maxBoltPageSize} {
		path := opened(t, nil).Name()
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{PageSize: size, NoSync: true})
		must(t, err)
		must(t, db.Close())
		f, err := os.Open(path)
		must(t, err)
		metas, err := ReadHeader(f)
		if err := errors.Join(err, CheckHeader(f), f.Close()); err != nil || len(metas.Valid()) != 2 {
			t.Errorf("pages of %d bytes: %v", size, err)
		}
	}
	for _, size := range []uint64{256, 511, maxBoltPageSize + 1, 2 * maxBoltPageSize} {
		b := make([]byte, 4*size)
		for i := range uint64(2) {
			page := b[i*size:]
			order := binary.NativeEndian
			order.PutUint32(page[PageHeaderBytes:], BoltMagic)
			order.PutUint32(page[PageHeaderBytes+8:], uint32(size))
			order.PutUint64(page[PageHeaderBytes+40:], 4)
			order.PutUint64(page[PageHeaderBytes+48:], i)
			resum(page)
		}
		metas, err := ReadHeader(opened(t, b))
		if !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), "page size") || len(metas.Valid()) != 0 {
			t.Errorf("pages of %d bytes: %v", size, err)
		}
	}
	b, meta := bytesOf(t)
	if _, err := ReadHeader(opened(t, b[:int(meta.Pages)*testPage-1])); !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), "cut short") {
		t.Error(err)
	}
	b[PageHeaderBytes+40] ^= 1
	b[testPage+PageHeaderBytes+40] ^= 1
	if _, err := ReadHeader(opened(t, b)); !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), "both meta pages") {
		t.Error(err)
	}
	for n := range PageHeaderBytes + 4 {
		if err := CheckMagic(opened(t, b[:n])); !errors.Is(err, store.ErrNotDatabase) && (n > 0 || err != store.ErrEmpty) {
			t.Errorf("a file of %d bytes: %v", n, err)
		}
	}
	if math.MaxInt > math.MaxInt32 && MaxDatabaseBytes != 0 {
		t.Errorf("at most %d bytes", int64(MaxDatabaseBytes))
	}
	closed := opened(t, b)
	must(t, closed.Close())
	for name, err := range map[string]error{"magic": CheckMagic(closed), "header": CheckHeader(closed), "meta": RewriteNewestMeta(closed)} {
		if !errors.Is(err, os.ErrClosed) {
			t.Errorf("the %s of a closed file: %v", name, err)
		}
	}
}

// TestFreelist: the list of free pages lies in the file, and where it does not no page is free.
func TestFreelist(t *testing.T) {
	b, meta := bytesOf(t)
	at := int(meta.Freelist) * testPage
	if free := FreeBytes(opened(t, b)); free == 0 {
		t.Fatal("no page is free")
	}
	last := bytes.Clone(b)
	binary.NativeEndian.PutUint32(last[at+12:], uint32(meta.Pages-meta.Freelist-1))
	must(t, CheckHeader(opened(t, last)))
	for name, change := range map[string]func(b []byte){
		"one page more than there are": func(b []byte) { binary.NativeEndian.PutUint32(b[at+12:], uint32(meta.Pages-meta.Freelist)) },
		"another page":                 func(b []byte) { binary.NativeEndian.PutUint64(b[at:], meta.Freelist+1) },
		"a leaf":                       func(b []byte) { binary.NativeEndian.PutUint16(b[at+8:], PageLeaf) },
	} {
		b := bytes.Clone(b)
		change(b)
		f := opened(t, b)
		if err := CheckHeader(f); !errors.Is(err, store.ErrCorrupt) || FreeBytes(f) != 0 {
			t.Errorf("%s: %v, %d bytes free", name, err, FreeBytes(f))
		}
	}
}

// TestNewestMeta: the meta page of the latest transaction is used, wherever it is, and can be
// written again.
func TestNewestMeta(t *testing.T) {
	for _, txids := range [][2]uint64{{5, 6}, {6, 5}} {
		metas := metaPair{Metas: [2]Meta{{PageSize: 1024, Txid: txids[0]}, {PageSize: 1024, Txid: txids[1]}}, ok: [2]bool{true, true}}
		if m, found := metas.newest(); !found || m.Txid != 6 {
			t.Errorf("%v: %+v %t", txids, m, found)
		}
		if valid := metas.Valid(); len(valid) != 2 || valid[0].Txid != 6 || valid[1].Txid != 5 {
			t.Errorf("%v: %+v", txids, valid)
		}
		metas.ok[0] = false
		if valid := metas.Valid(); len(valid) != 1 || valid[0].Txid != txids[1] {
			t.Errorf("%v, the second alone: %+v", txids, valid)
		}
	}
	b, _ := bytesOf(t)
	f := opened(t, b)
	must(t, RewriteNewestMeta(f))
	got, err := os.ReadFile(f.Name())
	if err != nil || !bytes.Equal(got, b) {
		t.Errorf("it is changed: %v", err)
	}
	read, err := os.Open(f.Name())
	must(t, err)
	defer read.Close()
	if err := RewriteNewestMeta(read); err == nil {
		t.Error("it is written to a file that cannot be")
	}
	b[testPage+PageHeaderBytes] ^= 1
	if err := RewriteNewestMeta(opened(t, b)); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("of a damaged one: %v", err)
	}
}

// walkOf returns a walk over pages, and its faults.
func walkOf(t *testing.T, b []byte, meta Meta) (w *TreeWalk, found *[]string) {
	t.Helper()
	pages, err := NewPageFile(opened(t, b), testPage)
	must(t, err)
	found = new([]string)
	return &TreeWalk{PageFile: pages, Meta: meta, Used: map[uint64]bool{}, Fault: func(place, what string) { *found = append(*found, place+" "+what) }}, found
}

// treeOf returns a walk over a database, the value of bucket tree, and its faults.
func treeOf(t *testing.T, b []byte, meta Meta) (w *TreeWalk, head []byte, found *[]string) {
	t.Helper()
	w, found = walkOf(t, b, meta)
	var last []byte
	w.Tree("", meta.Root, 0, nil, &last, func(e *Element) {
		if string(e.Key) == "tree" {
			head = bytes.Clone(e.Value)
		}
	})
	return w, head, found
}

// TestWalkBehindAKey: a walk that continues behind a key, one that is there or not, visits every
// later key and no other, and only pages on the way.
func TestWalkBehindAKey(t *testing.T) {
	b, meta := bytesOf(t)
	w, head, faults := treeOf(t, b, meta)
	var all []string
	w.Bucket("tree", head, func(e *Element) { all = append(all, string(e.Key)) })
	if len(all) < 50 || len(*faults) > 0 {
		t.Fatal(len(all), *faults)
	}
	for i := range all {
		for _, after := range []string{all[i], all[i] + "x"} {
			w, _, faults := treeOf(t, b, meta)
			var got []string
			pages := 0
			w.After, w.Used, w.Seen = []byte(after), map[uint64]bool{}, func(*Page) { pages++ }
			w.Bucket("tree", head, func(e *Element) { got = append(got, string(e.Key)) })
			if !slices.Equal(got, all[i+1:]) || len(*faults) > 0 {
				t.Errorf("behind %q: %d keys, want %d, %q", after, len(got), len(all)-i-1, *faults)
			}
			if i == len(all)-1 && pages > 2 {
				t.Errorf("behind the last key: %d pages", pages)
			}
		}
	}
}

// TestKeysOutOfOrder: equal keys are a fault, on a page and from one page to the next.
func TestKeysOutOfOrder(t *testing.T) {
	b, meta := bytesOf(t)
	for _, tt := range []struct{ from, to string }{{"key 061", "key 060"}, {"key 062", "key 061"}} {
		d := bytes.ReplaceAll(b, []byte(tt.from), []byte(tt.to))
		w, head, faults := treeOf(t, d, meta)
		w.Bucket("tree", head, func(*Element) {})
		if len(*faults) != 1 || !strings.Contains((*faults)[0], " of bucket tree element ") || !strings.Contains((*faults)[0], "is out of order") {
			t.Errorf("%v: %q", tt, *faults)
		}
	}
	// Each pair of neighbours, so also the last key of a page and the first of the next.
	for i := 60; i < 119; i++ {
		d := bytes.ReplaceAll(b, fmt.Appendf(nil, "key %03d", i+1), fmt.Appendf(nil, "key %03d", i))
		w, head, faults := treeOf(t, d, meta)
		if w.Bucket("tree", head, func(*Element) {}); len(*faults) == 0 {
			t.Errorf("key %d twice is no fault", i)
		}
	}
}

// TestDeepTree: a tree of more levels than one has is not walked to its end.
func TestDeepTree(t *testing.T) {
	for _, depth := range []int{MaxTreeDepth, MaxTreeDepth + 1} {
		b := make([]byte, (depth+1)*testPage)
		order := binary.NativeEndian
		for i := range depth + 1 {
			page := b[i*testPage:]
			order.PutUint64(page, uint64(i))
			order.PutUint16(page[8:], PageBranch)
			order.PutUint16(page[10:], 1)
			order.PutUint32(page[PageHeaderBytes:], elementBytes)
			order.PutUint64(page[PageHeaderBytes+8:], uint64(i+1))
		}
		leaf := b[depth*testPage:]
		order.PutUint16(leaf[8:], PageLeaf)
		order.PutUint32(leaf[PageHeaderBytes:], 0)
		order.PutUint32(leaf[PageHeaderBytes+4:], elementBytes)
		order.PutUint64(leaf[PageHeaderBytes+8:], 0)
		w, faults := walkOf(t, b, Meta{Pages: uint64(depth + 1)})
		var last []byte
		met := 0
		w.Tree("", 0, 0, nil, &last, func(*Element) { met++ })
		if (met == 1) != (depth == MaxTreeDepth) || (len(*faults) == 1) != (depth > MaxTreeDepth) {
			t.Errorf("%d levels: %d elements, %q", depth, met, *faults)
		}
	}
}

// TestPagesInUse: the last page in use is in use, and the one behind it is not.
func TestPagesInUse(t *testing.T) {
	b, meta := bytesOf(t)
	w, head, _ := treeOf(t, b, meta)
	clear(w.Used) // the root
	w.Bucket("tree", head, func(*Element) {})
	highest := uint64(0)
	for id := range w.Used {
		highest = max(highest, id)
	}
	for _, tt := range []struct {
		pages  uint64
		faults int
	}{{highest + 1, 0}, {highest, 1}} {
		w, head, faults := treeOf(t, b, meta)
		w.Meta.Pages = tt.pages
		if w.Bucket("tree", head, func(*Element) {}); len(*faults) != tt.faults {
			t.Errorf("%d pages of %d: %q", tt.pages, highest+1, *faults)
		}
	}
	told := int64(0)
	count := w.Free(func(uint64) { told++ })
	w, _, _ = treeOf(t, b, meta)
	if again := w.Free(nil); told == 0 || told != count || again != count {
		t.Errorf("%d free pages, told of %d, and %d", count, told, again)
	}
}

// TestInlinePage: a page in a value is a leaf whose elements fit.
func TestInlinePage(t *testing.T) {
	if g, ok := InlinePage(EmptyBucket()); !ok || g.Count != 0 {
		t.Error("an empty bucket has no page")
	}
	for name, change := range map[string]func(page []byte){
		"a branch": func(page []byte) { binary.NativeEndian.PutUint16(page[8:], PageBranch) },
		"too many": func(page []byte) { binary.NativeEndian.PutUint16(page[10:], 1) },
		"zeros":    func(page []byte) { clear(page) },
	} {
		head := EmptyBucket()
		change(head[BucketHeadBytes:])
		if _, ok := InlinePage(head); ok {
			t.Errorf("%s is a page", name)
		}
	}
}

// TestRecordBounds: the least and the greatest values that records have.
func TestRecordBounds(t *testing.T) {
	for _, s := range []State{{}, {Head: 1, LastID: 1, Count: 1, Stored: 1, Tail: index.BlockEvents - 1}} {
		if got, err := DecodeState(s.Encode()); err != nil || got != s {
			t.Errorf("%+v: %+v %v", s, got, err)
		}
	}
	for _, s := range []State{{Tail: -1}, {Tail: index.BlockEvents}, {Head: 1}, {Stored: 1}, {Stored: -1}, {Head: -1}} {
		if _, err := DecodeState(s.Encode()); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%+v: %v", s, err)
		}
	}
	if s, err := DecodeLogStart(LogStart{From: 1}.Encode()); err != nil || s.From != 1 {
		t.Error(s, err)
	}
	if one, two := PairBytes(1), PairBytes(2); one != 4096-16-2*(16+8) || two != one+4096 {
		t.Error(one, two)
	}
	for id, want := range map[int64]bool{0: false, 1: true, -1: false, math.MaxInt64: true} {
		key := binary.BigEndian.AppendUint32(EventKey(id), 0)
		key = binary.BigEndian.AppendUint32(key, index.Sum(key, []byte("x")))
		if _, _, _, ok := SplitPieceKey(key, []byte("x")); ok != want {
			t.Errorf("a piece of event %d: %t", id, ok)
		}
	}
}

// TestSetText: a text is read again only where it is another one.
func TestSetText(t *testing.T) {
	noon := string(event.AppendTime(nil, 1773829800123))
	var text TimeText
	for _, tt := range []struct {
		text  string
		exact bool
	}{{"", false}, {noon, true}, {noon, true}, {"noon", false}, {"", false}, {noon, true}} {
		if text.SetText(tt.text); text.Text != tt.text || text.Exact != tt.exact || tt.exact && text.Millis != 1773829800123 {
			t.Errorf("%q: %+v", tt.text, text)
		}
	}
}

// TestGroupBounds: short groups are read, broken ones are errors to their end, and the error
// says what else is lost.
func TestGroupBounds(t *testing.T) {
	key := EventKey(7)
	number := func(n uint64) string { return string(binary.AppendUvarint(nil, n)) }
	event := number(4) + number(1) + "\x00" + "x"
	second := index.AppendSum([]byte("\x04"+number(5)+event), key)
	if recs, ids, err := readGroup(OpenGroup, key, second); err != nil || len(recs) != 1 || !slices.Equal(ids, []int64{7}) {
		t.Errorf("%v %v", ids, err)
	}
	bare := index.AppendSum([]byte("\x03"+number(headOdd)+"\x02"+number(1)), key)
	if _, ids, err := readGroup(OpenGroup, key, bare); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("a time's text without a length: %v %v", ids, err)
	}
	broken := index.AppendSum([]byte("\x03"+event+"\xff"), key)
	g, err := OpenGroup(key, broken)
	must(t, err)
	if err := g.End(); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("the end of a broken group: %v", err)
	}
	for form, others := range map[string]bool{"\x03": true, "\x04": true, "\x05": false, "": false} {
		if _, err := OpenGroup(key, []byte(form+"no sum")); !errors.Is(err, store.ErrCorrupt) || strings.Contains(err.Error(), "and those stored with it") != others {
			t.Errorf("form %q: %v", form, err)
		}
	}
}
