package index

import (
	"bytes"
	"slices"
)

// Insert is Put for an id below others, which no series has.
func (d *Dictionary) Insert(id uint32, s *Series) error {
	last, err := d.Last()
	if err != nil {
		return err
	}
	if id > last {
		return d.Put(id, s)
	}
	byID, err := d.byID.bucket()
	if err != nil {
		return err
	}
	if err := byID.Put(seriesID(id), encodeSeries(id, s)); err != nil {
		return err
	}
	t := d.types
	of, err := t.typeOf(s.Type, s.Subtype)
	if err != nil {
		return err
	}
	t.tailIDs, t.tail, t.loaded = nil, nil, false
	if id <= TypesCover(last) {
		if err := t.insertIntoBlock(id, of); err != nil {
			return err
		}
	}
	t.count.count++
	return t.putCounters()
}

// insertIntoBlock adds a series to the block that covers it.
func (t *typeTable) insertIntoBlock(id, of uint32) error {
	b, err := t.blocks.bucket()
	if err != nil {
		return err
	}
	before := (id - 1) / blockSeries * blockSeries // the block covers the ids after this one
	var key []byte
	var ids []int64
	var types []uint32
	err = Range(b, typeBlockKey(before+1), func(k, v []byte) (bool, error) {
		block, err := DecodeBlock(k, v)
		if err != nil || block.First > int64(before+blockSeries) {
			return false, err
		}
		key = bytes.Clone(k)
		for i := range block.Count {
			ids, types = append(ids, block.ID(i)), append(types, block.Series(i))
		}
		return false, nil
	})
	if err == nil && key != nil {
		err = Delete(b, key)
	}
	if err != nil {
		return err
	}
	at, _ := slices.BinarySearch(ids, int64(id))
	ids, types = slices.Insert(ids, at, int64(id)), slices.Insert(types, at, of)
	return b.Put(typeBlockKey(uint32(ids[0])), EncodeBlock(ids, types, Times{}))
}
