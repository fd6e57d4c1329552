package index

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// seriesKey is the key of the counters in bucket meta.
var seriesKey = []byte("series")

type seriesCounters struct{ last, lastType, count uint32 }

func (c seriesCounters) encode() []byte {
	v := make([]byte, 0, 16)
	for _, n := range []uint32{c.last, c.lastType, c.count} {
		v = binary.BigEndian.AppendUint32(v, n)
	}
	return AppendSum(v, seriesKey)
}

// typeTable is what format 2 has in addition to the series.
type typeTable struct {
	meta          *Bucket
	types, blocks lazy
	read          bool // the counters
	count         seriesCounters

	ids map[string]uint32 // of types, by key; at most maxKnownTypes

	// The series that no type block covers yet, and their types, once loaded.
	tailIDs []int64
	tail    []uint32
	loaded  bool
}

const (
	maxKnownTypes = 1 << 12
	// blockSeries is how many ids a type block covers. It is not more than
	// BlockEvents.
	blockSeries = 1024
)

func (t *typeTable) counters() (seriesCounters, error) {
	if t.read {
		return t.count, nil
	}
	v, err := get(t.meta, seriesKey)
	if err != nil {
		return t.count, err
	}
	t.count, err = decodeCounters(v)
	t.read = err == nil
	return t.count, err
}

// decodeCounters reads the record, which is nil before the first series.
func decodeCounters(v []byte) (c seriesCounters, err error) {
	if v == nil {
		return c, nil
	}
	b, ok := CheckSum(seriesKey, v)
	if !ok || len(b) != 12 {
		return c, fmt.Errorf("%w: counters of series", ErrDamaged)
	}
	for i, n := range []*uint32{&c.last, &c.lastType, &c.count} {
		*n = binary.BigEndian.Uint32(b[i*4:])
	}
	return c, nil
}

// DecodeCounters returns the highest id of a series ever given, and how many series
// there are.
func DecodeCounters(value []byte) (last uint32, count int64, err error) {
	c, err := decodeCounters(value)
	return c.last, int64(c.count), err
}

// TypesCover returns the id up to which the types of series are in type blocks when
// last is the highest id ever given.
func TypesCover(last uint32) uint32 { return last / blockSeries * blockSeries }

func (t *typeTable) putCounters() error { return t.meta.Put(seriesKey, t.count.encode()) }

// typeKey returns the key of a type in bucket types.
func typeKey(typ string, subtype *string) []byte {
	k := SeriesKey("", typ, subtype)
	return k[2:] // without the source
}

func encodeType(id uint32, key []byte, typ string, subtype *string) []byte {
	v := binary.BigEndian.AppendUint32(nil, id)
	v = appendFields(append(v, flagsOf(subtype)), typ, textOf(subtype))
	return AppendSum(v, key)
}

// TypeView is a distinct pair of type and subtype. The texts alias the database.
type TypeView struct {
	ID            uint32
	Type, Subtype string
	HasSubtype    bool
}

// TypeKey returns the key of a type in bucket types.
func TypeKey(v *TypeView) []byte {
	if !v.HasSubtype {
		return typeKey(v.Type, nil)
	}
	return typeKey(v.Type, &v.Subtype)
}

// DecodeType reads an entry of bucket types, which it aliases.
func DecodeType(key, value []byte) (v TypeView, err error) {
	b, ok := CheckSum(key, value)
	if ok = ok && len(b) >= 5; ok {
		v.ID, v.HasSubtype = binary.BigEndian.Uint32(b), b[4] == 1
		v.Type, b, ok = cutField(b[5:])
	}
	if ok {
		v.Subtype, b, ok = cutField(b)
	}
	if !ok || len(b) > 0 {
		return v, fmt.Errorf("%w: type %q", ErrDamaged, key)
	}
	return v, nil
}

// typeID returns the id of a type, 0 when it is not there.
func (t *typeTable) typeID(key []byte) (uint32, error) {
	if id := t.ids[string(key)]; id != 0 {
		return id, nil
	}
	b, err := t.types.bucket()
	if err != nil {
		return 0, err
	}
	value, err := get(b, key)
	if err != nil || value == nil {
		return 0, err
	}
	v, err := DecodeType(key, value)
	if err != nil {
		return v.ID, err
	}
	t.know(key, v.ID)
	return v.ID, nil
}

func (t *typeTable) know(key []byte, id uint32) {
	if t.ids == nil || len(t.ids) == maxKnownTypes {
		t.ids = make(map[string]uint32)
	}
	t.ids[string(key)] = id
}

// typeOf returns the id of a type, which it stores when it is new.
func (t *typeTable) typeOf(typ string, subtype *string) (uint32, error) {
	if _, err := t.counters(); err != nil {
		return 0, err
	}
	key := typeKey(typ, subtype)
	of, err := t.typeID(key)
	if err != nil || of != 0 {
		return of, err
	}
	b, err := t.types.bucket()
	if err != nil {
		return 0, err
	}
	t.count.lastType++
	of = t.count.lastType
	t.know(key, of)
	return of, b.Put(key, encodeType(of, key, typ, subtype))
}

// putType notes the type of a new series, whose id is above all others.
func (d *Dictionary) putType(id uint32, typ string, subtype *string) error {
	t := d.types
	of, err := t.typeOf(typ, subtype)
	if err != nil {
		return err
	}
	if err := d.advance(id - 1); err != nil {
		return err
	}
	if t.loaded {
		t.tailIDs, t.tail = append(t.tailIDs, int64(id)), append(t.tail, of)
	}
	t.count.count++
	return d.advance(id)
}

// advance moves the highest id given up to last. Where that ends the ids of a type
// block, the block is written.
func (d *Dictionary) advance(last uint32) error {
	t := d.types
	if last <= t.count.last {
		return nil
	}
	if begin := t.count.last / blockSeries * blockSeries; last-begin >= blockSeries {
		if !t.loaded {
			if err := d.loadTypes(begin+1, begin+blockSeries); err != nil {
				return err
			}
		}
		if len(t.tail) > 0 {
			b, err := t.blocks.bucket()
			if err != nil {
				return err
			}
			b.SetFill(1)
			if err := b.Put(typeBlockKey(uint32(t.tailIDs[0])), EncodeBlock(t.tailIDs, t.tail, Times{})); err != nil {
				return err
			}
		}
		t.tailIDs, t.tail, t.loaded = t.tailIDs[:0], t.tail[:0], true
	}
	t.count.last = last
	return t.putCounters()
}

func typeBlockKey(id uint32) []byte { return binary.BigEndian.AppendUint64(nil, uint64(id)) }

// loadTypes reads the types of the series in [from, upto].
func (d *Dictionary) loadTypes(from, upto uint32) error {
	t := d.types
	t.tailIDs, t.tail = t.tailIDs[:0], t.tail[:0]
	err := d.Each(from, upto, func(id uint32, v *SeriesView) (bool, error) {
		of, err := t.typeID(typeKey(v.Type, v.subtype()))
		if err == nil && of == 0 {
			err = fmt.Errorf("%w: the type of series %d is missing", ErrDamaged, id)
		}
		t.tailIDs, t.tail = append(t.tailIDs, int64(id)), append(t.tail, of)
		return true, err
	})
	t.loaded = err == nil
	return err
}

// SetLast sets the highest id ever given, if it is above the ids of the series.
func (d *Dictionary) SetLast(last uint32) error {
	if _, err := d.types.counters(); err != nil {
		return err
	}
	return d.advance(last)
}

// dropTypes takes n series, all those with ids above last, out of the type blocks
// and the count. Their ids are not given again.
func (d *Dictionary) dropTypes(last uint32, n int) error {
	t := d.types
	if _, err := t.counters(); err != nil {
		return err
	}
	b, err := t.blocks.bucket()
	if err != nil {
		return err
	}
	var keys [][]byte
	var ids []int64
	var types []uint32
	err = Range(b, typeBlockKey(last/blockSeries*blockSeries), func(k, v []byte) (bool, error) {
		block, err := DecodeBlock(k, v)
		if err != nil || block.Last <= int64(last) {
			return true, err
		}
		keys = append(keys, bytes.Clone(k))
		for i := range block.Count {
			if block.ID(i) <= int64(last) {
				ids, types = append(ids, block.ID(i)), append(types, block.Series(i))
			}
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	if err := DeleteAll(b, keys); err != nil {
		return err
	}
	if len(ids) > 0 {
		if err := b.Put(typeBlockKey(uint32(ids[0])), EncodeBlock(ids, types, Times{})); err != nil {
			return err
		}
	}
	t.tailIDs, t.tail, t.loaded = nil, nil, false
	t.count.count -= uint32(min(int64(n), int64(t.count.count)))
	return t.putCounters()
}

// EachType calls fn for the types with low <= type and, unless high is empty, type
// < high, in their order, until it returns false. Texts longer than a key holds may
// be reported although they lie outside.
func (d *Dictionary) EachType(low, high string, fn func(v TypeView) (more bool, err error)) error {
	b, err := d.types.types.bucket()
	if err != nil {
		return err
	}
	from, _ := appendKeyPrefix(nil, low)
	var to []byte
	if high != "" && len(high) <= maxKeyField {
		to, _ = appendKeyPrefix(nil, high)
	}
	return Range(b, from, func(k, value []byte) (bool, error) {
		if to != nil && string(k) >= string(to) {
			return false, nil
		}
		v, err := DecodeType(k, value)
		if err != nil {
			return false, err
		}
		return fn(v)
	})
}

// EachTypeBlock calls fn for the type blocks with series above after, until it
// returns false, and returns the id above which there are none: the types of the
// series behind it are in their records only.
func (d *Dictionary) EachTypeBlock(after uint32, fn func(b *Block) (more bool)) (covered uint32, err error) {
	c, err := d.types.counters()
	if err != nil {
		return 0, err
	}
	b, err := d.types.blocks.bucket()
	if err != nil {
		return 0, err
	}
	err = Range(b, typeBlockKey(after/blockSeries*blockSeries), func(k, v []byte) (bool, error) {
		block, err := DecodeBlock(k, v)
		if err != nil {
			return false, err
		}
		return fn(&block), nil
	})
	return TypesCover(c.last), err
}
