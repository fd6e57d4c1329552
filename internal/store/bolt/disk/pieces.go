package disk

import (
	"encoding/binary"

	"thread/index"
	"thread/internal/store"
)

// # Large contents
//
// From format 2 on, a content of more than largeBytes is kept in pieces in a
// separate bucket. bbolt writes a leaf page as a whole, and keeps up to four
// values on one whatever their size: next to large contents every push would write
// them again.
//
//	pieces  key: the event's id, 8 bytes; the number of the piece from 0, 4 bytes;
//	        crc of that and the value, 4 bytes
//	        value: pieceBytes of the content, or fewer at its end
//
// The crc is in the key, so that the value is the content's own memory. Two pieces
// fill piecePages pages.
//
// Pieces of an event that is not there, or not visible, were left by a batch that
// a crash cut short.

// BucketPieces holds them.
var BucketPieces = []byte(store.Pieces)

const (
	LargeBytes    = 4096
	piecePages    = 8
	PieceKeyBytes = 16
	PieceBytes    = (piecePages*PageBytes-PageHeaderBytes)/2 - elementBytes - PieceKeyBytes
)

// NextSum is the checksum of a content up to a piece with this crc: the sum of the
// crcs before it and this one. So no byte is summed twice.
func NextSum(sum, crc uint32) uint32 {
	var b [8]byte
	binary.BigEndian.PutUint32(b[:], sum)
	binary.BigEndian.PutUint32(b[4:], crc)
	return index.Sum(nil, b[:])
}

// SplitPieceKey returns the parts of a key of bucket pieces whose crc fits.
func SplitPieceKey(key, value []byte) (id int64, n, crc uint32, ok bool) {
	if len(key) != PieceKeyBytes {
		return 0, 0, 0, false
	}
	id, n, crc = int64(binary.BigEndian.Uint64(key)), binary.BigEndian.Uint32(key[8:]), binary.BigEndian.Uint32(key[12:])
	return id, n, crc, id > 0 && len(value) > 0 && len(value) <= PieceBytes && index.Sum(key[:12], value) == crc
}

// Assembly puts the pieces of a content together, in their order.
type Assembly struct {
	Size, Have int
	n, sum     uint32
	Want       uint32
}

// Add counts in a piece and reports whether it is the next one.
func (a *Assembly) Add(n, crc uint32, size int) bool {
	if n != a.n || a.Have+size > a.Size || size != PieceBytes && a.Have+size != a.Size {
		return false
	}
	a.n++
	a.Have += size
	a.sum = NextSum(a.sum, crc)
	return true
}

// Whole reports whether all pieces are there.
func (a *Assembly) Whole() bool { return a.Have == a.Size && a.sum == a.Want }
