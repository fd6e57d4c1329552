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
//	key    series id, big-endian uint32, from 1, dense
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
package index

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"
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
	flags := byte(0)
	sub := ""
	if s.Subtype != nil {
		flags, sub = 1, *s.Subtype
	}
	b = append(b, flags)
	for _, f := range []string{s.Source, s.Type, sub} {
		b = binary.AppendUvarint(b, uint64(len(f)))
		b = append(b, f...)
	}
	return b
}

// encodeSeries returns the value of series id.
func encodeSeries(id uint32, s *Series) []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(s.First))
	return AppendSum(appendTriple(b, s), seriesID(id))
}

// DecodeSeries is the inverse of encodeSeries. The strings are copies.
func DecodeSeries(id uint32, value []byte) (Series, error) {
	b, ok := CheckSum(seriesID(id), value)
	if !ok || len(b) < 9 {
		return Series{}, fmt.Errorf("%w: series %d", ErrDamaged, id)
	}
	s := Series{First: int64(binary.BigEndian.Uint64(b))}
	hasSubtype := b[8] == 1
	b = b[9:]
	all := string(b) // one copy, which the fields share
	var fields [3]string
	at := 0
	for i := range fields {
		n, w := binary.Uvarint(b[at:])
		if w <= 0 || n > uint64(len(b)-at-w) {
			return Series{}, fmt.Errorf("%w: series %d", ErrDamaged, id)
		}
		at += w
		fields[i] = all[at : at+int(n)]
		at += int(n)
	}
	if at != len(b) {
		return Series{}, fmt.Errorf("%w: series %d", ErrDamaged, id)
	}
	s.Source, s.Type = fields[0], fields[1]
	if hasSubtype {
		s.Subtype = &fields[2]
	}
	return s, nil
}

func seriesID(id uint32) []byte { return binary.BigEndian.AppendUint32(nil, id) }

// Dictionary looks series up and adds them. Decoded series are kept for its
// lifetime, one transaction.
type Dictionary struct {
	byKey, byID *bbolt.Bucket
	known       []*Series // by id
	ids         map[triple]uint32
}

// triple is a Series as the key of a map.
type triple struct {
	source, typ, subtype string
	hasSubtype           bool
}

// NewDictionary reads the buckets series and series_by_id. Nil buckets are empty.
func NewDictionary(byKey, byID *bbolt.Bucket) *Dictionary {
	return &Dictionary{byKey: byKey, byID: byID}
}

// Len returns the largest series id, which is also the number of series.
func (d *Dictionary) Len() (uint32, error) {
	if err := CheckLast(d.byID); err != nil {
		return 0, err
	}
	k, _ := d.byID.Cursor().Last()
	if k == nil {
		return 0, nil
	}
	if len(k) != 4 {
		return 0, fmt.Errorf("%w: series id of %d bytes", ErrDamaged, len(k))
	}
	return binary.BigEndian.Uint32(k), nil
}

// Get returns the series with an id. The result is shared and must not be changed.
func (d *Dictionary) Get(id uint32) (*Series, error) {
	if int64(id) < int64(len(d.known)) && d.known[id] != nil {
		return d.known[id], nil
	}
	var key [4]byte
	binary.BigEndian.PutUint32(key[:], id)
	v, err := get(d.byID, key[:])
	if err != nil {
		return nil, err
	}
	if v == nil {
		return nil, fmt.Errorf("%w: series %d is missing", ErrDamaged, id)
	}
	s, err := DecodeSeries(id, v)
	if err != nil {
		return nil, err
	}
	if grow := int(id) + 1 - len(d.known); grow > 0 {
		d.known = append(d.known, make([]*Series, grow)...)
	}
	d.known[id] = &s
	return &s, nil
}

// Find returns the id of a triple, 0 when it is not there.
func (d *Dictionary) Find(source, typ string, subtype *string) (uint32, error) {
	key := SeriesKey(source, typ, subtype)
	v, err := get(d.byKey, key)
	if err != nil {
		return 0, err
	}
	if v == nil {
		return 0, nil
	}
	if len(v) != 4 {
		return 0, fmt.Errorf("%w: series entry of %d bytes", ErrDamaged, len(v))
	}
	return binary.BigEndian.Uint32(v), nil
}

// Add returns the id of a triple and, when it is new, stores it with first as
// the id of its first event. The transaction must be writable.
func (d *Dictionary) Add(source, typ string, subtype *string, first int64) (uint32, error) {
	t := triple{source: source, typ: typ}
	if subtype != nil {
		t.subtype, t.hasSubtype = *subtype, true
	}
	if id, ok := d.ids[t]; ok {
		return id, nil
	}
	id, err := d.find(source, typ, subtype, first)
	if err == nil {
		if d.ids == nil {
			d.ids = make(map[triple]uint32)
		}
		d.ids[t] = id
	}
	return id, err
}

// find is Add without the memory of a batch.
func (d *Dictionary) find(source, typ string, subtype *string, first int64) (uint32, error) {
	id, err := d.Find(source, typ, subtype)
	if err != nil || id != 0 {
		return id, err
	}
	n, err := d.Len()
	if err != nil {
		return 0, err
	}
	if n == 1<<32-1 {
		return 0, errors.New("a thread holds at most 4294967295 series")
	}
	id = n + 1
	s := Series{Source: source, Type: typ, Subtype: subtype, First: first}
	if err := d.byID.Put(seriesID(id), encodeSeries(id, &s)); err != nil {
		return 0, err
	}
	return id, d.byKey.Put(SeriesKey(source, typ, subtype), seriesID(id))
}

// DropAfter removes the series whose first event has an id above head. They
// are the newest ones. All are found before the first is removed; see
// DropBlocksAfter.
func (d *Dictionary) DropAfter(head int64) error {
	last, err := d.Len()
	if err != nil {
		return err
	}
	from := last
	for ; from > 0; from-- {
		if s, err := d.Get(from); err != nil {
			return err
		} else if s.First <= head {
			break
		}
	}
	for id := last; id > from; id-- {
		s := d.known[id]
		if err := d.byKey.Delete(SeriesKey(s.Source, s.Type, s.Subtype)); err != nil {
			return err
		}
		if err := d.byID.Delete(seriesID(id)); err != nil {
			return err
		}
		d.known[id], d.ids = nil, nil
	}
	return nil
}

// BySource calls fn for every series with low <= source and, unless high is
// empty, source < high; with exact, only for source = low. Sources longer than
// a key holds may be reported although they lie outside.
func (d *Dictionary) BySource(low, high string, exact bool, fn func(id uint32) error) error {
	from, _ := appendKeyPrefix(nil, low)
	var to []byte
	switch {
	case exact:
		from, to = append(from, 0, 1), append(append([]byte{}, from...), 0, 2)
		if len(low) > maxKeyField {
			return d.all(fn) // the key of a cut field ends elsewhere
		}
	case high != "" && len(high) <= maxKeyField:
		to, _ = appendKeyPrefix(nil, high)
	}
	return Range(d.byKey, from, func(k, v []byte) (more bool, err error) {
		if to != nil && string(k) >= string(to) {
			return false, nil
		}
		if len(v) != 4 {
			return false, fmt.Errorf("%w: series entry of %d bytes", ErrDamaged, len(v))
		}
		return true, fn(binary.BigEndian.Uint32(v))
	})
}

func (d *Dictionary) all(fn func(id uint32) error) error {
	n, err := d.Len()
	for id := uint32(1); err == nil && id <= n; id++ {
		err = fn(id)
	}
	return err
}
