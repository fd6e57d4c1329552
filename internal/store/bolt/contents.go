package bolt

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"thread/index"
	"thread/internal/store"
	"thread/internal/store/bolt/disk"
)

// putPieces stores a large content and returns its checksum. bbolt keeps the
// content until the commit.
func putPieces(b *index.Bucket, id int64, content string) (sum uint32, err error) {
	rest := unsafe.Slice(unsafe.StringData(content), len(content))
	keys := make([]byte, 0, (len(rest)+disk.PieceBytes-1)/disk.PieceBytes*disk.PieceKeyBytes)
	for n := uint32(0); len(rest) > 0; n++ {
		piece := rest[:min(len(rest), disk.PieceBytes)]
		rest = rest[len(piece):]
		start := len(keys)
		keys = binary.BigEndian.AppendUint64(keys, uint64(id))
		keys = binary.BigEndian.AppendUint32(keys, n)
		crc := index.Sum(keys[start:], piece)
		keys = binary.BigEndian.AppendUint32(keys, crc)
		sum = disk.NextSum(sum, crc)
		if err := b.Put(keys[start:len(keys):len(keys)], piece); err != nil {
			return 0, err
		}
	}
	return sum, nil
}

// eachPiece calls fn for the pieces of event id, which has some. Unless all are
// there and fit, it returns an error in the end.
func (tx *Tx) eachPiece(id int64, r *disk.Record, fn func(k, v []byte) error) error {
	bad := fmt.Errorf("%w: content of event %d", store.ErrCorrupt, id)
	b, err := tx.bucket(disk.BucketPieces)
	if err != nil {
		return err
	}
	if b == nil {
		return bad
	}
	a := disk.Assembly{Size: r.Size, Want: r.Sum}
	err = index.Range(b, disk.EventKey(id), func(k, v []byte) (bool, error) {
		at, n, crc, ok := disk.SplitPieceKey(k, v)
		if !ok || at != id || !a.Add(n, crc, len(v)) {
			return false, bad
		}
		return a.Have < a.Size, fn(k, v)
	})
	if err == nil && !a.Whole() {
		err = bad
	}
	return err
}

// content returns the content of event id: for a large one in separate memory,
// else in the database's pages. The length comes from a record whose checksum fits.
func (tx *Tx) content(id int64, r *disk.Record) ([]byte, error) {
	if !r.Pieces {
		return r.Content, nil
	}
	content := make([]byte, 0, r.Size)
	err := tx.eachPiece(id, r, func(_, v []byte) error {
		content = append(content, v...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return content, nil
}
