package disk

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"thread/internal/faults"
)

const testPage = 1024

// database makes a database with a tree, with a small bucket, and with free pages.
func database(t *testing.T) (path string, want map[string]string) {
	t.Helper()
	path = filepath.Join(faults.Dir(t), "db")
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{PageSize: testPage, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	want = map[string]string{}
	update := func(fn func(tx *bbolt.Tx) error) {
		if err := db.Update(fn); err != nil {
			t.Fatal(err)
		}
	}
	update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket([]byte("tree"))
		for i := range 120 {
			if err == nil {
				err = b.Put(fmt.Appendf(nil, "key %03d", i), bytes.Repeat([]byte{byte(i)}, i%40+1))
			}
		}
		if err == nil { // with pages that overflow
			err = b.Put([]byte("key 999"), make([]byte, testPage))
		}
		return err
	})
	update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket([]byte("small"))
		if err != nil {
			return err
		}
		return b.Put([]byte("a"), []byte("b"))
	})
	update(func(tx *bbolt.Tx) error {
		for i := range 60 {
			if err := tx.Bucket([]byte("tree")).Delete(fmt.Appendf(nil, "key %03d", i)); err != nil {
				return err
			}
		}
		return nil
	})
	if err := db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			return b.ForEach(func(k, v []byte) error {
				want[string(name)+"/"+string(k)] = string(v)
				return nil
			})
		})
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return path, want
}

// walked is what a walk of a database finds.
type walked struct {
	faults  []string
	content map[string]string
	free    int64
	order   bool // each bucket's keys rise
	unfound int  // keys for which a search has no answer
}

// walk visits all that is below a meta page, and asks for each key.
func walk(f *os.File, meta Meta) (w walked, err error) {
	pages, err := NewPageFile(f, int64(meta.PageSize))
	if err != nil {
		return w, err
	}
	w = walked{content: map[string]string{}, order: true}
	tree := &TreeWalk{PageFile: pages, Meta: meta, Used: map[uint64]bool{}, Fault: func(place, what string) { w.faults = append(w.faults, place+" "+what) }}
	var last []byte
	tree.Tree("", meta.Root, 0, nil, &last, func(e *Element) {
		before := ""
		head := e.Value
		tree.Bucket(string(e.Key), head, func(in *Element) {
			w.order = w.order && (before == "" || string(in.Key) > before)
			before = string(in.Key)
			w.content[string(e.Key)+"/"+before] = string(in.Value)
			got := pages.Get(head, in.Key)
			if got == nil {
				w.unfound++
			}
			if got != nil && len(w.faults) == 0 && !bytes.Equal(got, in.Value) {
				w.faults = append(w.faults, fmt.Sprintf("%q is found as %q", in.Value, got))
			}
		})
	})
	w.free = tree.Free(func(uint64) {})
	return w, nil
}

// TestDamagedPages: whatever byte of a database is damaged, a walk over its pages ends. It
// reports a fault, or no key has another key's value.
func TestDamagedPages(t *testing.T) {
	path, want := database(t)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	metas := ReadMetas(f)
	meta := metas.Valid()[0]
	sound, err := walk(f, meta)
	if err != nil || len(sound.faults) > 0 || !sound.order || sound.unfound > 0 || !reflect.DeepEqual(sound.content, want) || sound.free == 0 {
		t.Fatalf("%v, %d free, %v", sound.faults, sound.free, err)
	}
	if got := FreeBytes(f); got != sound.free*testPage {
		t.Errorf("%d bytes are free, want %d", got, sound.free*testPage)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	silent := 0
	for at := 2 * testPage; at < int(meta.Pages)*testPage; at++ {
		if testing.Short() && at%16 != 10 { // the count of each page is one of those
			continue
		}
		for _, v := range []byte{b[at] ^ 1, 0xff} {
			if _, err := f.WriteAt([]byte{v}, int64(at)); err != nil {
				t.Fatal(err)
			}
			got, err := walk(f, meta)
			if err != nil {
				t.Fatal(err)
			}
			if len(got.faults) > 0 {
				continue
			}
			silent++
			// A key, a value or a count has no checksum at this height.
			others := 0
			for k, v := range got.content {
				if _, k, _ = strings.Cut(k, "/"); v != want["tree/"+k] && v != want["small/"+k] {
					others++
				}
			}
			if !got.order || others > 1 || got.free > sound.free {
				t.Errorf("byte %d as %#x: %d keys have another value, %d free, without a fault", at, v, others, got.free)
			}
		}
		if _, err := f.WriteAt(b[at:at+1], int64(at)); err != nil {
			t.Fatal(err)
		}
	}
	if silent == 0 {
		t.Error("no damage was passed over: there are keys and values")
	}
}

// TestHostilePages: pages that no byte alone makes of sound ones.
func TestHostilePages(t *testing.T) {
	order := binary.NativeEndian
	type change func(b []byte, meta *Meta)
	path, want := database(t)
	sound, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	free := func(meta *Meta) int { return int(meta.Freelist) * testPage }
	for name, tt := range map[string]struct {
		change change
		want   string
	}{
		"a free list of many": {func(b []byte, m *Meta) {
			at := free(m)
			n := uint64(order.Uint16(b[at+10:]))
			ids := bytes.Clone(b[at+PageHeaderBytes:][:n*8])
			order.PutUint16(b[at+10:], freelistOverflow)
			order.PutUint64(b[at+PageHeaderBytes:], n)
			copy(b[at+PageHeaderBytes+8:], ids)
		}, ""},
		"a free list that is longer than its page": {func(b []byte, m *Meta) {
			order.PutUint16(b[free(m)+10:], testPage)
		}, "free pages do not fit"},
		"a free page that is a meta page": {func(b []byte, m *Meta) { order.PutUint64(b[free(m)+PageHeaderBytes:], 1) }, "names page 1 as free"},
		"a free page behind the last":     {func(b []byte, m *Meta) { order.PutUint64(b[free(m)+PageHeaderBytes:], m.Pages) }, "as free"},
		"a free page that is in use":      {func(b []byte, m *Meta) { order.PutUint64(b[free(m)+PageHeaderBytes:], m.Root) }, "in use and free at once"},
		"a free list that is not one":     {func(b []byte, m *Meta) { order.PutUint16(b[free(m)+8:], PageLeaf) }, "is not the free list"},
		"a free list that is in use":      {func(_ []byte, m *Meta) { m.Freelist = m.Root }, "is not the free list"},
		"a root outside of the file":      {func(_ []byte, m *Meta) { m.Root = 1 << 40 }, "outside of the file"},
		"a root behind the pages in use":  {func(_ []byte, m *Meta) { m.Pages = m.Root }, "lies behind the last page in use"},
		"a root that is a meta page":      {func(_ []byte, m *Meta) { m.Root = 0 }, "is not a page of a tree"},
		"a bucket without a root": {func(b []byte, m *Meta) {
			at := int(m.Root)*testPage + PageHeaderBytes
			order.PutUint32(b[at+12:], BucketHeadBytes-1)
		}, "has no root"},
		"a small bucket that is cut": {func(b []byte, m *Meta) {
			at := int(m.Root)*testPage + PageHeaderBytes // "small" is the first of the two
			order.PutUint32(b[at+12:], BucketHeadBytes+PageHeaderBytes-1)
		}, "has a page that is not one"},
	} {
		b := bytes.Clone(sound)
		metas := ReadMetas(bytes.NewReader(b))
		meta := metas.Valid()[0]
		tt.change(b, &meta)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := walk(f, meta)
		faults := strings.Join(got.faults, "\n")
		if err != nil || tt.want == "" && (faults != "" || got.free == 0 || len(got.content) != len(want)) || !strings.Contains(faults, tt.want) {
			t.Errorf("%s: %d keys, %d free, %q, %v", name, len(got.content), got.free, faults, err)
		}
		if tt.want == "" && FreeBytes(f) != got.free*testPage {
			t.Errorf("%s: %d bytes are free, want %d pages", name, FreeBytes(f), got.free)
		}
		f.Close()
	}
	// A page that is its own child ends.
	if err := os.WriteFile(path, sound, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	metas := ReadMetas(f)
	pages, err := NewPageFile(f, testPage)
	if err != nil {
		t.Fatal(err)
	}
	loop := make([]byte, testPage)
	order.PutUint64(loop, metas.Valid()[0].Root)
	order.PutUint16(loop[8:], PageBranch)
	order.PutUint16(loop[10:], 1)
	order.PutUint64(loop[PageHeaderBytes+8:], metas.Valid()[0].Root)
	if _, err := f.WriteAt(loop, int64(metas.Valid()[0].Root)*testPage); err != nil {
		t.Fatal(err)
	}
	head := make([]byte, BucketHeadBytes)
	order.PutUint64(head, metas.Valid()[0].Root)
	if v := pages.Get(head, []byte("k")); v != nil {
		t.Errorf("%q in a loop", v)
	}
	for _, head := range [][]byte{nil, head[:7], make([]byte, BucketHeadBytes), EmptyBucket()} {
		if v := pages.Get(head, []byte("k")); v != nil || BucketRoot(head) != 0 {
			t.Errorf("%q in a bucket of %d bytes", v, len(head))
		}
	}
	if f.Close(); second(NewPageFile(f, testPage)) == nil {
		t.Error("of a closed file")
	}
	if _, err := pages.Read(2); err == nil {
		t.Error("read from a closed file")
	}
}
