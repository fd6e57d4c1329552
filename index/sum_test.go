package index

import (
	"hash/crc32"
	"testing"
)

// Both ways to compute it give the same sum.
func TestSum(t *testing.T) {
	key := []byte("key")
	for n := range 200 {
		value := make([]byte, n*97+n%8)
		for i := range value {
			value[i] = byte(i * n)
		}
		want := crc32.Checksum(append(append([]byte{}, key...), value...), crc32.MakeTable(crc32.Castagnoli))
		if got := Sum(key, value); got != want {
			t.Fatalf("sum %d of %d bytes is %08x, want %08x", n, len(value), got, want)
		}
		if got := fewTables().update(fewTables().update(0, key), value); got != want {
			t.Fatalf("sum %d of %d bytes by tables is %08x, want %08x", n, len(value), got, want)
		}
	}
	if got := fewTables().update(0, []byte("123456789")); got != 0xE3069283 { // the check value of CRC-32C
		t.Fatalf("%08x", got)
	}
}

func BenchmarkSum(b *testing.B) {
	key, value := make([]byte, 8), make([]byte, 400)
	b.Run("tables", func(b *testing.B) {
		b.SetBytes(int64(len(value)))
		for b.Loop() {
			fewTables().update(0, value)
		}
	})
	b.Run("fast", func(b *testing.B) {
		fastTable.Store(crc32.MakeTable(crc32.Castagnoli))
		b.SetBytes(int64(len(value)))
		for b.Loop() {
			Sum(key, value)
		}
	})
	b.Run("making tables", func(b *testing.B) {
		for b.Loop() {
			newTables()
		}
	})
}
