package index

import (
	"hash/crc32"
	"testing"
)

// Both ways to compute it give the same sum.
func TestSum(t *testing.T) {
	key := []byte("key")
	for n := range 200 {
		value := make([]byte, n*97)
		for i := range value {
			value[i] = byte(i * n)
		}
		want := crc32.Checksum(append(append([]byte{}, key...), value...), crc32.MakeTable(crc32.Castagnoli))
		if got := Sum(key, value); got != want {
			t.Fatalf("sum %d of %d bytes is %08x, want %08x", n, len(value), got, want)
		}
	}
	if got := crc32.Checksum([]byte("123456789"), plainTable()); got != 0xE3069283 { // the check value of CRC-32C
		t.Fatalf("%08x", got)
	}
}
