package index

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"
)

// benchIndex is blocks of the column and as many series, in a transaction.
func benchIndex(b *testing.B, blocks, series int, fn func(columns *Bucket, d *Dictionary)) {
	b.Helper()
	db, err := bbolt.Open(filepath.Join(b.TempDir(), "db"), 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	err = db.Update(func(tx *bbolt.Tx) error {
		columns, err := tx.CreateBucket([]byte("columns"))
		if err != nil {
			return err
		}
		meta, err := tx.CreateBucket([]byte("meta"))
		if err != nil {
			return err
		}
		d := NewDictionary(opened(tx, "series"), opened(tx, "series_by_id"), Wrap(meta), opened(tx, "types"), opened(tx, "type_blocks"))
		for i := range series {
			if _, err := d.Add(fmt.Sprintf("external:chat:%06d:dm", i), "message", nil, int64(i+1)); err != nil {
				return err
			}
		}
		if err := d.Flush(0); err != nil {
			return err
		}
		ids, of := make([]int64, BlockEvents), make([]uint32, BlockEvents)
		for n := range blocks {
			var times Times
			for i := range ids {
				ids[i], of[i] = int64(n*BlockEvents+i+1), uint32(i%series+1)
				times.Add(ids[i], true)
			}
			if err := columns.Put(binary.BigEndian.AppendUint64(nil, uint64(ids[0])), EncodeBlock(ids, of, times)); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = db.View(func(tx *bbolt.Tx) error {
			fn(Wrap(tx.Bucket([]byte("columns"))), NewDictionary(opened(tx, "series"), opened(tx, "series_by_id"), nil, opened(tx, "types"), opened(tx, "type_blocks")))
			return nil
		})
	}
	if err != nil {
		b.Fatal(err)
	}
}

// BenchmarkBlocks walks the column and looks for a series that is not there: with
// one, two or four bytes for each event.
func BenchmarkBlocks(b *testing.B) {
	for _, series := range []int{200, 20_000, 70_000} {
		b.Run(fmt.Sprintf("series=%d", series), func(b *testing.B) {
			benchIndex(b, 100, series, func(columns *Bucket, _ *Dictionary) {
				var answers Answers
				for id := range uint32(series) {
					answers.Set(id+1, None)
				}
				b.ReportAllocs()
				for b.Loop() {
					blocks := BlocksAfter(columns, 0)
					for {
						block, ok, err := blocks.Next()
						if err != nil || ok && block.Next(0, &answers) != block.Count {
							b.Fatal(block, err)
						}
						if !ok {
							break
						}
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*100*BlockEvents), "ns/event")
			})
		})
	}
}

func BenchmarkEncodeBlock(b *testing.B) {
	ids, of := make([]int64, BlockEvents), make([]uint32, BlockEvents)
	for i := range ids {
		ids[i], of[i] = int64(i+1), uint32(i)
	}
	b.ReportAllocs()
	for b.Loop() {
		EncodeBlock(ids, of, Times{})
	}
}

// opened opens a bucket, which it makes where it may write.
func opened(tx *bbolt.Tx, name string) func() (*Bucket, error) {
	return func() (*Bucket, error) {
		if tx.Writable() {
			return CreateBucket(tx, nil, []byte(name))
		}
		return Wrap(tx.Bucket([]byte(name))), nil
	}
}

// BenchmarkDictionary looks series up, in a new transaction each time.
func BenchmarkDictionary(b *testing.B) {
	const series = 20_000
	benchIndex(b, 0, series, func(_ *Bucket, d *Dictionary) {
		b.Run("get", func(b *testing.B) {
			b.ReportAllocs()
			for id := uint32(0); b.Loop(); id = (id + 1) % series {
				if _, err := NewDictionary(d.byKey.open, d.byID.open, nil, nil, nil).Get(id + 1); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("find", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if id, err := d.Find("external:chat:007919:dm", "message", nil); err != nil || id == 0 {
					b.Fatal(id, err)
				}
			}
		})
		b.Run("one source", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := d.BySource(Sources{Low: "external:chat:007919:dm", Exact: true}, func(uint32) error { return nil }); err != nil {
					b.Fatal(err)
				}
			}
		})
	})
}
