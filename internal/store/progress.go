package store

import (
	"encoding/binary"
	"fmt"

	"thread/index"
)

// ProgressRecord is how far a consumer is. Table progress, by [ConsumerKey].
//
// It is valid if and only if its crc fits and it has this form:
//
//	form        1  1
//	last_acked  8
//	newest      8
//	updated_at     the rest, text
//	crc         4
type ProgressRecord struct {
	LastAcked int64  // the id that the consumer named last
	Newest    int64  // the newest id at that moment
	UpdatedAt string // in event.TimeLayout, or as it was imported
}

const progressForm = 1

// From is the id after which the unread events begin. An id that was named before the
// event existed does not count (T-40).
func (p *ProgressRecord) From() int64 { return min(p.LastAcked, p.Newest) }

// ConsumerKey is the key of a consumer's record.
func ConsumerKey(consumer string) []byte { return append([]byte{'c'}, consumer...) }

// Encode returns the record for key.
func (p *ProgressRecord) Encode(key []byte) []byte {
	b := binary.BigEndian.AppendUint64([]byte{progressForm}, uint64(p.LastAcked))
	b = binary.BigEndian.AppendUint64(b, uint64(p.Newest))
	return index.AppendSum(append(b, p.UpdatedAt...), key)
}

// DecodeProgress reads a record; ErrCorrupt if it is not valid.
func DecodeProgress(key, value []byte) (p ProgressRecord, err error) {
	b, ok := index.CheckSum(key, value)
	if !ok || len(b) < 17 || b[0] != progressForm {
		return p, fmt.Errorf("%w: progress %q", ErrCorrupt, key)
	}
	return ProgressRecord{
		LastAcked: int64(binary.BigEndian.Uint64(b[1:])),
		Newest:    int64(binary.BigEndian.Uint64(b[9:])),
		UpdatedAt: string(b[17:]),
	}, nil
}
