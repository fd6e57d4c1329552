package index

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"go.etcd.io/bbolt"
)

// TestInsert puts series of all places below others: the first, the middle and the
// last of a block, one whose block is not there, and those behind the last block.
func TestInsert(t *testing.T) {
	db, err := bbolt.Open(filepath.Join(t.TempDir(), "db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	const last = 3*blockSeries + 50
	late := []uint32{1, 500, blockSeries, last - 1, blockSeries + 7, 2 * blockSeries, 2*blockSeries + 1, 3*blockSeries + 1}
	err = db.Update(func(tx *bbolt.Tx) error {
		for _, name := range []string{"meta", "series", "byid", "types", "blocks"} {
			if _, err := tx.CreateBucket([]byte(name)); err != nil {
				return err
			}
		}
		of := func(name string) func() (*Bucket, error) {
			return func() (*Bucket, error) { return Wrap(tx.Bucket([]byte(name))), nil }
		}
		d := NewDictionary(of("series"), of("byid"), Wrap(tx.Bucket([]byte("meta"))), of("types"), of("blocks"))
		series := func(id uint32) *Series { return &Series{Source: "s", Type: fmt.Sprint(id % 7), First: int64(id)} }
		n := int64(0)
		for id := uint32(1); id <= last; id++ {
			if slices.Contains(late, id) || id > blockSeries && id <= 2*blockSeries {
				continue
			}
			n++
			if err := d.Put(id, series(id)); err != nil {
				return err
			}
		}
		for _, id := range late {
			n++
			if err := d.Insert(id, series(id)); err != nil {
				return err
			}
		}
		if have, err := d.Len(); have != n || err != nil {
			t.Errorf("%d series, expected %d: %v", have, n, err)
		}
		var ids []uint32
		covered, err := d.EachTypeBlock(0, func(b *Block) bool {
			for i := range b.Count {
				id := uint32(b.ID(i))
				ids = append(ids, id)
				if want, err := d.types.typeID(typeKey(fmt.Sprint(id%7), nil)); want != b.Series(i) || err != nil {
					t.Errorf("series %d has type %d, expected %d: %v", id, b.Series(i), want, err)
				}
			}
			return true
		})
		if err != nil || covered != 3*blockSeries {
			t.Errorf("covered up to %d: %v", covered, err)
		}
		var want []uint32
		for id := uint32(1); id <= 3*blockSeries; id++ {
			if v, _ := d.value(id); v != nil {
				want = append(want, id)
			}
		}
		if !slices.Equal(ids, want) || !slices.IsSorted(ids) {
			t.Errorf("%d ids in blocks, expected %d", len(ids), len(want))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
