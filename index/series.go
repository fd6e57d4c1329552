// Package index finds events without reading them. A series is a distinct
// triple of source, type and subtype; every event belongs to one, and a column
// of series ids, 1024 events to a block, says which. A filter over these three
// fields has one answer per series, so it is asked once per series and then read
// off the column.
//
// The package works on buckets that its caller opened and is internal to this
// program: it makes no promise to library users.
//
// # Series
//
// Bucket series_by_id, valid if and only if the key has 4 bytes and the checksum
// fits:
//
//	key    series id, big-endian uint32, from 1
//	value  first    8  big-endian int64, id of the first event of the series
//	       flags    1  bit 0: the subtype is not NULL
//	       source   uvarint length, then the bytes
//	       type     the same
//	       subtype  the same, length 0 when NULL
//	       crc      4  CRC-32C of key and value up to here
//
// Bucket series: key → series id, 4 bytes. The key begins with the source, so
// that the series of one source, or of a range of sources, lie together. Each of
// source, type and subtype is written with 0x00 as 0x00 0xFF and ended by 0x00
// 0x01; a NULL subtype is the single byte 0x00. A field longer than
// maxKeyField is cut to that, and the key then ends with the SHA-256 of the whole
// triple.
//
// There are two more buckets. Bucket types: key → type id, 4 bytes, flags 1 (bit
// 0: the subtype is not NULL), type and subtype as in series_by_id, and a crc. The
// key is the key of a triple without its source. A type, here, is a distinct pair of
// type and subtype; there are few in most threads, and they say of most filters
// that nothing can match. A type may be there without a series.
//
// Bucket type_blocks: which series are of which type, in the form of a Block whose
// ids are series ids and whose series are type ids. A block covers the series with
// ids from n × 1024 + 1 to (n+1) × 1024, as far as there are any, and its key is
// the first of them. It is written when the last id of these is given.
//
// Meta "series", format 2 only, valid if and only if it has 16 bytes and the crc
// fits. Ids are never given again, because readers remember what their filter said
// of an id:
//
//	last       4  the highest series id ever given to a visible event, or higher
//	last type  4  the same of types
//	count      4  series that are there
//	crc        4
package index

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unsafe"
)

// ErrDamaged is wrapped by the errors about bytes that break a format above.
var ErrDamaged = errors.New("index is damaged")

// Series is one distinct triple of source, type and subtype.
type Series struct {
	Source, Type string
	Subtype      *string // nil: NULL
	First        int64   // id of its first event
}

// maxKeyField keeps the longest key, with every byte escaped, under bbolt's
// 32768.
const maxKeyField = 4096

// SeriesKey returns the key of a triple in bucket series.
func SeriesKey(source, typ string, subtype *string) []byte {
	k := make([]byte, 0, len(source)+len(typ)+24)
	k, cut := appendKeyField(k, source)
	k, cut2 := appendKeyField(k, typ)
	cut3 := false
	if subtype == nil {
		k = append(k, 0)
	} else {
		k, cut3 = appendKeyField(k, *subtype)
	}
	if cut || cut2 || cut3 {
		sum := sha256.Sum256(appendTriple(nil, &Series{Source: source, Type: typ, Subtype: subtype}))
		k = append(k, sum[:]...)
	}
	return k
}

func appendKeyField(k []byte, s string) ([]byte, bool) {
	k, cut := appendKeyPrefix(k, s)
	return append(k, 0, 1), cut
}

// appendKeyPrefix appends what all fields that begin with s begin with.
func appendKeyPrefix(k []byte, s string) ([]byte, bool) {
	cut := len(s) > maxKeyField
	if cut {
		s = s[:maxKeyField]
	}
	for i := 0; i < len(s); i++ {
		if k = append(k, s[i]); s[i] == 0 {
			k = append(k, 0xFF)
		}
	}
	return k, cut
}

func appendTriple(b []byte, s *Series) []byte {
	return appendFields(append(b, flagsOf(s.Subtype)), s.Source, s.Type, textOf(s.Subtype))
}

func appendFields(b []byte, fields ...string) []byte {
	for _, f := range fields {
		b = binary.AppendUvarint(b, uint64(len(f)))
		b = append(b, f...)
	}
	return b
}

func flagsOf(subtype *string) byte {
	if subtype == nil {
		return 0
	}
	return 1
}

func textOf(subtype *string) string {
	if subtype == nil {
		return ""
	}
	return *subtype
}

// encodeSeries returns the value of series id.
func encodeSeries(id uint32, s *Series) []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(s.First))
	return AppendSum(appendTriple(b, s), seriesID(id))
}

// DecodeSeries is the inverse of encodeSeries. The strings are copies.
func DecodeSeries(id uint32, value []byte) (Series, error) {
	v, err := ViewSeries(id, value)
	if err != nil {
		return Series{}, err
	}
	// One copy, which the fields share. An addition of one text to empty ones is none.
	var b strings.Builder
	b.Grow(len(v.Source) + len(v.Type) + len(v.Subtype))
	for _, field := range [...]string{v.Source, v.Type, v.Subtype} {
		b.WriteString(field)
	}
	all := b.String()
	s := Series{First: v.First, Source: all[:len(v.Source)], Type: all[len(v.Source) : len(v.Source)+len(v.Type)]}
	if v.HasSubtype {
		sub := all[len(v.Source)+len(v.Type):]
		s.Subtype = &sub
	}
	return s, nil
}

// SeriesView is a series whose texts alias the database.
type SeriesView struct {
	First                 int64
	Source, Type, Subtype string
	HasSubtype            bool
}

// ViewKey returns the key of a series in bucket series.
func ViewKey(v *SeriesView) []byte { return SeriesKey(v.Source, v.Type, v.subtype()) }

func (v *SeriesView) subtype() *string {
	if !v.HasSubtype {
		return nil
	}
	return &v.Subtype
}

// ViewSeries reads an entry of bucket series_by_id, which it aliases.
func ViewSeries(id uint32, value []byte) (s SeriesView, err error) {
	var key [4]byte
	binary.BigEndian.PutUint32(key[:], id)
	b, ok := CheckSum(key[:], value)
	if !ok || len(b) < 9 {
		return s, damagedSeries(id)
	}
	s.First, s.HasSubtype = int64(binary.BigEndian.Uint64(b)), b[8] == 1
	b = b[9:]
	for _, field := range [...]*string{&s.Source, &s.Type, &s.Subtype} {
		if *field, b, ok = cutField(b); !ok {
			return s, damagedSeries(id)
		}
	}
	if len(b) > 0 {
		return s, damagedSeries(id)
	}
	return s, nil
}

// cutField takes a text with its length before it off b, which it aliases.
func cutField(b []byte) (field string, rest []byte, ok bool) {
	n, w := binary.Uvarint(b)
	if w <= 0 || n > uint64(len(b)-w) {
		return "", nil, false
	}
	field = unsafe.String(unsafe.SliceData(b[w:]), int(n))
	return field, b[w+int(n):], true
}

func damagedSeries(id uint32) error { return fmt.Errorf("%w: series %d", ErrDamaged, id) }

func seriesID(id uint32) []byte { return binary.BigEndian.AppendUint32(nil, id) }
