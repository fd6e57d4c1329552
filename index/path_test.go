package index

import (
	"bytes"
	"encoding/binary"
	"path/filepath"
	"slices"
	"testing"

	"go.etcd.io/bbolt"
	"pgregory.net/rapid"
)

// TestGet: what get finds is what bbolt finds, in buckets of any height, for keys
// that are there and others, in read and in write transactions; and a scan with
// Steps comes to its end, from any key and with jumps ahead.
func TestGet(t *testing.T) {
	db, err := bbolt.Open(filepath.Join(t.TempDir(), "db"), 0o600, &bbolt.Options{NoSync: true, PageSize: 1024})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	name := []byte("b")
	for _, n := range []uint64{0, 1, 3, 60, 5000} {
		err := db.Update(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists(name)
			for i := range n {
				if err == nil {
					err = b.Put(binary.BigEndian.AppendUint64(nil, 2*i), bytes.Repeat([]byte{byte(i)}, int(i%90)))
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		same := func(tx *bbolt.Tx) error {
			b := tx.Bucket(name)
			for i := range 2*n + 3 {
				key := binary.BigEndian.AppendUint64(nil, i)
				got, err := get(Wrap(b), key)
				if want := b.Get(key); err != nil || !bytes.Equal(got, want) || (got == nil) != (want == nil) {
					t.Fatalf("key %d of %d: %x, %v, want %x", i, n, got, err, want)
				}
			}
			var steps Steps
			c, seen := b.Cursor(), uint64(0)
			for k, _ := c.First(); k != nil; k, _ = c.Next() {
				if err := steps.Check(Wrap(b), k); err != nil {
					return err
				}
				if seen++; seen%700 == 0 {
					k, _ = c.Seek(binary.BigEndian.AppendUint64(nil, binary.BigEndian.Uint64(k)+301))
					if k == nil {
						break
					}
					if err := steps.Check(Wrap(b), k); err != nil {
						return err
					}
				}
			}
			return nil
		}
		if err := db.View(same); err != nil {
			t.Fatal(err)
		}
		if err := db.Update(same); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBlock: what is encoded is decoded the same, and no changed byte goes
// unnoticed.
func TestBlock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, BlockEvents).Draw(t, "n")
		gap := rapid.Int64Range(1, 2).Draw(t, "gap")
		top := rapid.SampledFrom([]uint32{1, 0xFF, 0x100, 0xFFFF, 0x10000, 1<<32 - 1}).Draw(t, "top")
		odd := rapid.IntRange(0, 2000).Draw(t, "odd")
		var times Times
		ids, series := make([]int64, n), make([]uint32, n)
		low, high := int64(1<<62), int64(-1<<62)
		for i := range ids {
			ids[i], series[i] = 7+gap*int64(i), top-uint32(i)%top
			ms := int64(i*7919%1000) - 500
			low, high = min(low, ms), max(high, ms)
			times.Add(ms, i != odd)
		}
		if times.Known() != (odd >= n) || times.Known() && (times.Low != low || times.High != high) {
			t.Fatalf("%+v", times)
		}
		key := binary.BigEndian.AppendUint64(nil, 7)
		value := EncodeBlock(ids, series, times)
		b, err := DecodeBlock(key, value)
		if err != nil || b.Count != n || b.First != 7 || b.Last != ids[n-1] || b.Times.Known() != times.Known() || times.Known() && b.Times != times {
			t.Fatalf("%+v, %v", b, err)
		}
		for i := range ids {
			if b.ID(i) != ids[i] || b.Series(i) != series[i] {
				t.Fatalf("event %d: %d, %d", i, b.ID(i), b.Series(i))
			}
		}
		at := rapid.IntRange(0, len(value)-1).Draw(t, "at")
		bad := slices.Clone(value)
		bad[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if _, err := DecodeBlock(key, bad); err == nil {
			t.Fatalf("byte %d may change", at)
		}
	})
}

func TestTimesMiss(t *testing.T) {
	var none, odd, some Times
	odd.Add(5, false)
	odd.Add(6, true)
	some.Add(10, true)
	some.Add(20, true)
	if none.Miss(0, 1) || odd.Miss(0, 1) || odd.Known() || none.Known() {
		t.Error("without bounds nothing is missed")
	}
	for _, c := range []struct {
		low, high int64
		miss      bool
	}{{0, 9, true}, {0, 10, false}, {12, 13, false}, {20, 99, false}, {21, 99, true}, {13, 12, false}, {99, 0, true}} {
		if some.Miss(c.low, c.high) != c.miss {
			t.Errorf("[%d, %d]: missed %v", c.low, c.high, !c.miss)
		}
	}
}
