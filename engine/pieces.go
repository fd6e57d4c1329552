package engine

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"go.etcd.io/bbolt"

	"thread/index"
)

// # Large contents
//
// From format 2 on, a content of more than largeBytes is kept in pieces in a
// bucket of its own. bbolt writes a leaf page as a whole, and keeps up to four
// values on one whatever their size: beside large contents every push would write
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
var bucketPieces = []byte("pieces")

const (
	largeBytes    = 4096
	piecePages    = 8
	pieceKeyBytes = 16
	pieceBytes    = (piecePages*pageBytes-boltPageHeader)/2 - elementBytes - pieceKeyBytes
)

// putPieces stores a large content and returns its checksum. bbolt keeps the
// content until the commit.
func putPieces(b *bbolt.Bucket, id int64, content string) (sum uint32, err error) {
	rest := unsafe.Slice(unsafe.StringData(content), len(content))
	keys := make([]byte, 0, (len(rest)+pieceBytes-1)/pieceBytes*pieceKeyBytes)
	for n := uint32(0); len(rest) > 0; n++ {
		piece := rest[:min(len(rest), pieceBytes)]
		rest = rest[len(piece):]
		start := len(keys)
		keys = binary.BigEndian.AppendUint64(keys, uint64(id))
		keys = binary.BigEndian.AppendUint32(keys, n)
		crc := index.Sum(keys[start:], piece)
		keys = binary.BigEndian.AppendUint32(keys, crc)
		sum = nextSum(sum, crc)
		if err := b.Put(keys[start:len(keys):len(keys)], piece); err != nil {
			return 0, err
		}
	}
	return sum, nil
}

// nextSum is the checksum of a content up to a piece with this crc: that of the
// crcs before it and this one. So no byte is summed twice.
func nextSum(sum, crc uint32) uint32 {
	var b [8]byte
	binary.BigEndian.PutUint32(b[:], sum)
	binary.BigEndian.PutUint32(b[4:], crc)
	return index.Sum(nil, b[:])
}

// splitPieceKey returns the parts of a key of bucket pieces whose crc fits.
func splitPieceKey(key, value []byte) (id int64, n, crc uint32, ok bool) {
	if len(key) != pieceKeyBytes {
		return 0, 0, 0, false
	}
	id, n, crc = int64(binary.BigEndian.Uint64(key)), binary.BigEndian.Uint32(key[8:]), binary.BigEndian.Uint32(key[12:])
	return id, n, crc, id > 0 && len(value) > 0 && len(value) <= pieceBytes && index.Sum(key[:12], value) == crc
}

// assembly puts the pieces of a content together, in their order.
type assembly struct {
	size, have int
	n, sum     uint32
	want       uint32
}

// add counts in a piece and reports whether it is the next one.
func (a *assembly) add(n, crc uint32, size int) bool {
	if n != a.n || a.have+size > a.size || size != pieceBytes && a.have+size != a.size {
		return false
	}
	a.n++
	a.have += size
	a.sum = nextSum(a.sum, crc)
	return true
}

// whole reports whether all pieces are there.
func (a *assembly) whole() bool { return a.have == a.size && a.sum == a.want }

// eachPiece calls fn for the pieces of event id, which has some. Unless all are
// there and fit, it returns an error in the end.
func (tx *Tx) eachPiece(id int64, r *record, fn func(k, v []byte) error) error {
	bad := fmt.Errorf("%w: content of event %d", ErrCorrupt, id)
	b, err := index.Bucket(tx.b, bucketPieces)
	if err != nil {
		return err
	}
	if b == nil {
		return bad
	}
	a := assembly{size: r.size, want: r.sum}
	err = index.Range(b, eventKey(id), func(k, v []byte) (bool, error) {
		at, n, crc, ok := splitPieceKey(k, v)
		if !ok || at != id || !a.add(n, crc, len(v)) {
			return false, bad
		}
		return a.have < a.size, fn(k, v)
	})
	if err == nil && !a.whole() {
		err = bad
	}
	return err
}

// content returns the content of event id: for a large one in memory of its own,
// else in the database's pages. The length comes from a record whose checksum fits.
func (tx *Tx) content(id int64, r *record) ([]byte, error) {
	if !r.pieces {
		return r.content, nil
	}
	content := make([]byte, 0, r.size)
	err := tx.eachPiece(id, r, func(_, v []byte) error {
		content = append(content, v...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return content, nil
}
