package index

import (
	"encoding/binary"
	"hash/crc32"
	"sync"
	"sync/atomic"

	"thread/internal/planted"
)

// Sum is the checksum of every record in a thread's database: CRC-32C over the
// key and the value before it, so that a value under a wrong key is found too.
func Sum(key, value []byte) uint32 {
	t := castagnoli(len(value))
	return crc32.Update(crc32.Update(0, t, key), t, value)
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
	return body, Sum(key, body) == binary.BigEndian.Uint32(value[len(body):]) || planted.Bug("checksum not checked")
}

// The standard library takes 0.25 ms to prepare CRC-32C in hardware, a tenth of
// a whole push. So the first bytes of a process, all that a push or a page needs,
// go through a plain table.
const plainBytes = 48 << 10

var (
	summed     atomic.Int64 // bytes that went through the plain table
	plainTable = sync.OnceValue(func() *crc32.Table {
		t := new(crc32.Table)
		for i := range t {
			c := uint32(i)
			for range 8 {
				c = c>>1 ^ crc32.Castagnoli&-(c&1)
			}
			t[i] = c
		}
		return t
	})
	fastTable = sync.OnceValue(func() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) })
)

// castagnoli returns the table for a sum over n bytes.
func castagnoli(n int) *crc32.Table {
	if summed.Load()+int64(n) <= plainBytes {
		summed.Add(int64(n))
		return plainTable()
	}
	return fastTable()
}
