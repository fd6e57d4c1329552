package index

import (
	"encoding/binary"
	"hash/crc32"
	"sync"
	"sync/atomic"
)

// Sum is the checksum of every record in a thread's database: CRC-32C over the
// key and the value before it, so that a value under a wrong key is found too.
func Sum(key, value []byte) uint32 {
	few := fewTables()
	sum := few.update(0, key) // short
	fast := fastTable.Load()
	if fast == nil && summed.Add(int64(len(value))) > tableBytes {
		fast = crc32.MakeTable(crc32.Castagnoli)
		fastTable.Store(fast)
	}
	if fast == nil {
		return few.update(sum, value)
	}
	return crc32.Update(sum, fast, value)
}

// AppendSum appends Sum(key, value) to value.
func AppendSum(value, key []byte) []byte {
	return binary.BigEndian.AppendUint32(value, Sum(key, value))
}

// CheckSum splits the checksum off value and reports whether it fits.
func CheckSum(key, value []byte) (body []byte, ok bool) {
	if len(value) < 4 {
		return nil, false
	}
	body = value[:len(value)-4]
	return body, Sum(key, body) == binary.BigEndian.Uint32(value[len(body):])
}

// The standard library takes 0.25 ms to prepare CRC-32C in hardware, a tenth of
// a whole push. So the first bytes of a process, all that a push or a page needs,
// go through tables that are quick to make.
const tableBytes = 128 << 10

var (
	summed    atomic.Int64 // bytes of values that went through tables
	fewTables = sync.OnceValue(newTables)
	fastTable atomic.Pointer[crc32.Table] // nil until that was enough
)

// tables are for eight bytes at a time ("slicing by 8", Kounavis and Berry 2005):
// tables[k][i] is the sum of byte i with k bytes of 0 after it.
type tables [8][256]uint32

func newTables() *tables {
	t := new(tables)
	for i := range t[0] {
		c := uint32(i)
		for range 8 {
			c = c>>1 ^ crc32.Castagnoli&-(c&1)
		}
		t[0][i] = c
	}
	for i, c := range t[0] {
		for k := 1; k < len(t); k++ {
			c = t[0][byte(c)] ^ c>>8
			t[k][i] = c
		}
	}
	return t
}

func (t *tables) update(crc uint32, p []byte) uint32 {
	crc = ^crc
	for ; len(p) >= 8; p = p[8:] {
		low := crc ^ binary.LittleEndian.Uint32(p)
		high := binary.LittleEndian.Uint32(p[4:])
		crc = t[0][high>>24] ^ t[1][byte(high>>16)] ^ t[2][byte(high>>8)] ^ t[3][byte(high)] ^
			t[4][low>>24] ^ t[5][byte(low>>16)] ^ t[6][byte(low>>8)] ^ t[7][byte(low)]
	}
	for _, b := range p {
		crc = t[0][byte(crc)^b] ^ crc>>8
	}
	return ^crc
}
