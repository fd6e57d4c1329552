package index

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"
	"pgregory.net/rapid"
)

// TestOverlay: a bucket with an overlay is what bbolt makes of the same writes, whichever
// way a cursor moves, and Range and RangeDown agree.
func TestOverlay(t *testing.T) {
	db, err := bbolt.Open(filepath.Join(t.TempDir(), "db"), 0o600, &bbolt.Options{NoSync: true, PageSize: 1024})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	names := [][]byte{[]byte("a"), []byte("b")}
	key := rapid.Custom(func(t *rapid.T) []byte { return fmt.Appendf(nil, "%03d", rapid.IntRange(0, 300).Draw(t, "key")) })
	value := rapid.SliceOfN(rapid.Byte(), 0, 40)
	rapid.Check(t, func(t *rapid.T) {
		of := func(tx *bbolt.Tx) {
			for _, name := range names {
				_ = tx.DeleteBucket(name)
			}
			b, _ := tx.CreateBucket(names[0])
			for _, n := range rapid.SliceOfN(rapid.IntRange(0, 300), 0, 200).Draw(t, "stored") {
				if err := b.Put(fmt.Appendf(nil, "%03d", n), make([]byte, n)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := db.Update(func(tx *bbolt.Tx) error { of(tx); return nil }); err != nil {
			t.Fatal(err)
		}
		// The same writes go to an overlay and, in a transaction that is rolled back, to
		// the pages.
		read, err := db.Begin(false)
		if err != nil {
			t.Fatal(err)
		}
		defer read.Rollback()
		over := new(Overlay)
		over.SetWritable(true)
		var writes []func(tx *bbolt.Tx, over *Overlay) error
		for range rapid.IntRange(0, 40).Draw(t, "writes") {
			name := rapid.SampledFrom(names).Draw(t, "bucket")
			k, v := key.Draw(t, "key"), value.Draw(t, "value")
			switch rapid.IntRange(0, 19).Draw(t, "kind") {
			case 0:
				writes = append(writes, func(tx *bbolt.Tx, over *Overlay) error { return DropBucket(tx, over, name) })
			case 1, 2:
				writes = append(writes, func(tx *bbolt.Tx, over *Overlay) error {
					b, err := CreateBucket(tx, over, name)
					if err != nil {
						return err
					}
					return b.SetSequence(uint64(len(v)))
				})
			case 3, 4, 5, 6, 7, 8:
				writes = append(writes, func(tx *bbolt.Tx, over *Overlay) error {
					b, err := OpenBucket(tx, over, name)
					if b == nil || err != nil {
						return err
					}
					return Delete(b, k)
				})
			default:
				writes = append(writes, func(tx *bbolt.Tx, over *Overlay) error {
					b, err := CreateBucket(tx, over, name)
					if err != nil {
						return err
					}
					return Put(b, k, v)
				})
			}
		}
		for _, w := range writes {
			if err := w(read, over); err != nil {
				t.Fatal(err)
			}
		}
		changes := over.Changes()
		over.Settled()
		have := contentsOf(t, read, over)
		again := new(Overlay)
		if err := again.Apply(changes, Stored(read)); err != nil {
			t.Fatal(err)
		}
		if replayed := contentsOf(t, read, again); replayed != have {
			t.Fatalf("replayed:\n%s\nwritten:\n%s", replayed, have)
		}
		read.Rollback()
		tx, err := db.Begin(true)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { tx.Rollback() }()
		for _, w := range writes {
			if err := w(tx, nil); err != nil {
				t.Fatal(err)
			}
		}
		want := contentsOf(t, tx, nil)
		tx.Rollback()
		if tx, err = db.Begin(true); err != nil {
			t.Fatal(err)
		}
		if err := over.Fold(tx, func([]byte) float64 { return 0.5 }); err != nil {
			t.Fatal(err)
		}
		if folded := contentsOf(t, tx, nil); folded != want {
			t.Fatalf("folded:\n%s\nin the pages:\n%s", folded, want)
		}
		if have != want {
			t.Fatalf("with the overlay:\n%s\nin the pages:\n%s", have, want)
		}
	})
}

// contentsOf lists all buckets in every way there is.
func contentsOf(t *rapid.T, tx *bbolt.Tx, over *Overlay) string {
	var w bytes.Buffer
	names, err := BucketNames(tx, over)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		b, err := OpenBucket(tx, over, []byte(name))
		if b == nil || err != nil {
			t.Fatal(name, err)
		}
		fmt.Fprintln(&w, name, b.Sequence())
		up := func(k, v []byte) (bool, error) { fmt.Fprintf(&w, "%s %x\n", k, v); return true, nil }
		if err := Range(b, nil, up); err != nil {
			t.Fatal(err)
		}
		if err := RangeDown(b, nil, up); err != nil {
			t.Fatal(err)
		}
		for n := range 310 {
			k := fmt.Appendf(nil, "%03d", n)
			v, err := Get(b, k)
			if err != nil || !bytes.Equal(v, b.Get(k)) {
				t.Fatal(k, err)
			}
			fmt.Fprintf(&w, "%s %x %v\n", k, v, v == nil)
			at, _, err := Floor(b, b.Cursor(), k)
			fmt.Fprintf(&w, "floor %s %v\n", at, err)
			c := b.Cursor()
			walk := []func() ([]byte, []byte){c.Next, c.Next, c.Prev, c.Prev, c.Prev, c.Next, c.Next, c.Prev}
			at, _ = c.Seek(k)
			for i := 0; at != nil; i++ {
				fmt.Fprintf(&w, "%s ", at)
				if i == len(walk) {
					break
				}
				at, _ = walk[i]()
			}
			fmt.Fprintln(&w)
			if err := RangeDown(b, k, func(k, _ []byte) (bool, error) { fmt.Fprintf(&w, "down %s\n", k); return false, nil }); err != nil {
				t.Fatal(err)
			}
		}
	}
	return w.String()
}
