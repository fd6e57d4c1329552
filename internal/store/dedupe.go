package store

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"thread/index"
)

// KeyRecord says which event has a dedupe key. Table dedupe, by [DedupeKey]. It is
// valid if and only if its crc fits and it has this form:
//
//	id         8  of the event that was stored with the key
//	stored_at  8  milliseconds since 1970
//	window     8  milliseconds; the key expires at stored_at + window
//	before     24 the same three of the event that had the key before, if its
//	              window was not over: or nothing. It comes back when a crash
//	              takes this one away with the batch that it came in
//	crc        4
//
// For every key record there is one in table dedupe_expiry:
//
//	key    when the dedupe key expires, 8 bytes, and the event's id, 8 bytes
//	value  the key of the key record, crc
type KeyRecord struct {
	ID, StoredAt, Window int64
	Before               *KeyRecord
}

// DedupeKey is the key of a key record.
func DedupeKey(key string) []byte { return append([]byte{'k'}, key...) }

func (r *KeyRecord) append(b []byte) []byte {
	for _, n := range []int64{r.ID, r.StoredAt, r.Window} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	if r.Before != nil {
		b = r.Before.append(b)
	}
	return b
}

// Encode returns the record for key.
func (r *KeyRecord) Encode(key []byte) []byte { return index.AppendSum(r.append(nil), key) }

// ExpiryKey is the key in table dedupe_expiry.
func (r *KeyRecord) ExpiryKey() []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(r.StoredAt+r.Window)), uint64(r.ID))
}

// EncodeExpiry returns the record in table dedupe_expiry for at, an ExpiryKey, and the
// key of the key record.
func EncodeExpiry(at, key []byte) []byte { return index.AppendSum(bytes.Clone(key), at) }

// DecodeExpiry reads a record of table dedupe_expiry: when the key expires, the event,
// and the key of the key record.
func DecodeExpiry(at, value []byte) (expires, id int64, key []byte, err error) {
	key, ok := index.CheckSum(at, value)
	if !ok || len(at) != 16 {
		return 0, 0, nil, fmt.Errorf("%w: expiry of a dedupe key", ErrCorrupt)
	}
	return int64(binary.BigEndian.Uint64(at)), int64(binary.BigEndian.Uint64(at[8:])), key, nil
}

// DecodeKeyRecord reads a record; ErrCorrupt if it is not valid.
func DecodeKeyRecord(key, value []byte) (r KeyRecord, err error) {
	b, ok := index.CheckSum(key, value)
	if !ok || len(b) != 24 && len(b) != 48 {
		return r, fmt.Errorf("%w: dedupe key %q", ErrCorrupt, key)
	}
	numbers := []*int64{&r.ID, &r.StoredAt, &r.Window}
	if len(b) == 48 {
		r.Before = &KeyRecord{}
		numbers = append(numbers, &r.Before.ID, &r.Before.StoredAt, &r.Before.Window)
	}
	for i, n := range numbers {
		*n = int64(binary.BigEndian.Uint64(b[i*8:]))
	}
	return r, nil
}
