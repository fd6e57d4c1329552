package index

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// BlockEvents is how many events a block of the column covers.
const BlockEvents = 1024

// A Block is one entry of bucket columns, valid if and only if its length and
// checksum fit:
//
//	key    id of the first event, big-endian, 8 bytes
//	value  format   1  1: ids are consecutive, 2: ids follow; 3 and 4 are the same
//	                   with times
//	       width    1  bytes of a series id: 1, 2 or 4
//	       count    2  big-endian, 1 to BlockEvents
//	       times    formats 3 and 4 only: 8, 8, big-endian milliseconds since 1970.
//	                No created_at lies before the first or after the second, and
//	                all have the form of event.AppendTime
//	       series   count × width, big-endian
//	       ids      formats 2 and 4 only: count × 8, big-endian, rising
//	       crc      4  CRC-32C of key and value up to here
//
// The accessors read the value in place.
type Block struct {
	First, Last int64
	Count       int
	Times       Times
	width       int
	series, ids []byte
}

// Times are bounds of the created_at of some events. The zero value is of none.
type Times struct {
	Low, High int64 // milliseconds since 1970
	known     bool  // there are events, and these are their bounds
	odd       bool  // there is an event without milliseconds, so there are no bounds
}

// Add takes in one more event. Exact is false for a created_at that is not what
// event.AppendTime writes for ms.
func (t *Times) Add(ms int64, exact bool) {
	switch {
	case !exact || t.odd:
		*t = Times{odd: true}
	case t.known:
		t.Low, t.High = min(t.Low, ms), max(t.High, ms)
	default:
		*t = Times{Low: ms, High: ms, known: true}
	}
}

// Known reports whether Low and High mean anything.
func (t *Times) Known() bool { return t.known }

// Miss reports whether no event can lie in [low, high].
func (t *Times) Miss(low, high int64) bool { return t.known && (t.High < low || t.Low > high) }

// The format of a block is the sum of these.
const (
	formatBlock = 1
	withIDs     = 1
	withTimes   = 2
)

// EncodeBlock returns the value for events with rising ids, their series and
// bounds of their times. Ids and series have the same length, 1 to BlockEvents.
func EncodeBlock(ids []int64, series []uint32, times Times) []byte {
	width := 1
	for _, s := range series {
		switch {
		case s > 0xFFFF:
			width = 4
		case s > 0xFF && width == 1:
			width = 2
		}
	}
	format := byte(formatBlock)
	gaps := ids[len(ids)-1]-ids[0] != int64(len(ids)-1)
	if gaps {
		format += withIDs
	}
	if times.known {
		format += withTimes
	}
	v := make([]byte, 0, 24+len(ids)*(width+8))
	v = append(v, format, byte(width))
	v = binary.BigEndian.AppendUint16(v, uint16(len(ids)))
	if times.known {
		v = binary.BigEndian.AppendUint64(v, uint64(times.Low))
		v = binary.BigEndian.AppendUint64(v, uint64(times.High))
	}
	for _, s := range series {
		switch width {
		case 1:
			v = append(v, byte(s))
		case 2:
			v = binary.BigEndian.AppendUint16(v, uint16(s))
		default:
			v = binary.BigEndian.AppendUint32(v, s)
		}
	}
	if gaps {
		for _, id := range ids {
			v = binary.BigEndian.AppendUint64(v, uint64(id))
		}
	}
	return AppendSum(v, binary.BigEndian.AppendUint64(nil, uint64(ids[0])))
}

// NewBlock returns the block of events that are not in the column yet. Ids and
// series have the same length and may be empty.
func NewBlock(ids []int64, series []uint32, times Times) Block {
	b := Block{Count: len(ids), Times: times, width: 4}
	if len(ids) == 0 {
		return b
	}
	b.First, b.Last = ids[0], ids[len(ids)-1]
	for i, s := range series {
		b.series = binary.BigEndian.AppendUint32(b.series, s)
		if b.Last-b.First != int64(len(ids)-1) {
			b.ids = binary.BigEndian.AppendUint64(b.ids, uint64(ids[i]))
		}
	}
	return b
}

// DecodeBlock reads the block stored under key. It aliases value.
func DecodeBlock(key, value []byte) (Block, error) {
	bad := func() (Block, error) { return Block{}, fmt.Errorf("%w: column block %x", ErrDamaged, key) }
	body, ok := CheckSum(key, value)
	if !ok || len(key) != 8 || len(body) < 4 {
		return bad()
	}
	b := Block{First: int64(binary.BigEndian.Uint64(key)), width: int(body[1]), Count: int(binary.BigEndian.Uint16(body[2:]))}
	format, rest := body[0]-formatBlock, body[4:]
	if format > withIDs+withTimes {
		return bad()
	}
	if format&withTimes != 0 {
		if len(rest) < 16 {
			return bad()
		}
		b.Times = Times{Low: int64(binary.BigEndian.Uint64(rest)), High: int64(binary.BigEndian.Uint64(rest[8:])), known: true}
		rest = rest[16:]
	}
	if b.Count == 0 || b.Count > BlockEvents || b.width != 1 && b.width != 2 && b.width != 4 || len(rest) < b.Count*b.width {
		return bad()
	}
	b.series, rest = rest[:b.Count*b.width], rest[b.Count*b.width:]
	switch {
	case format&withIDs == 0 && len(rest) == 0:
		b.Last = b.First + int64(b.Count) - 1
	case format&withIDs != 0 && len(rest) == b.Count*8:
		b.ids = rest
		b.Last = b.ID(b.Count - 1)
	default:
		return bad()
	}
	return b, nil
}

// ID returns the id of event i, 0 <= i < Count.
func (b *Block) ID(i int) int64 {
	if b.ids == nil {
		return b.First + int64(i)
	}
	return int64(binary.BigEndian.Uint64(b.ids[i*8:]))
}

// Series returns the series of event i, 0 <= i < Count.
func (b *Block) Series(i int) uint32 {
	switch b.width {
	case 1:
		return uint32(b.series[i])
	case 2:
		return uint32(binary.BigEndian.Uint16(b.series[i*2:]))
	}
	return binary.BigEndian.Uint32(b.series[i*4:])
}

// After returns the smallest i with ID(i) > id, Count when there is none.
func (b *Block) After(id int64) int {
	if id < b.First {
		return 0
	}
	if b.ids == nil {
		return int(min(int64(b.Count), id-b.First+1))
	}
	lo, hi := 0, b.Count
	for lo < hi {
		if mid := (lo + hi) / 2; b.ID(mid) > id {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

// LastBlock returns the newest block of a column bucket, false when it is empty.
func LastBlock(columns *Bucket) (Block, bool, error) {
	if err := CheckLast(columns); err != nil {
		return Block{}, false, err
	}
	k, v := columns.Cursor().Last()
	if k == nil {
		return Block{}, false, nil
	}
	b, err := DecodeBlock(k, v)
	return b, err == nil, err
}

// DropBlocksAfter removes the blocks that reach beyond head. The keys are
// collected first: in a bucket whose every page was emptied by the transaction,
// bbolt's Cursor.Last never returns.
func DropBlocksAfter(columns *Bucket, head int64) error {
	if err := CheckTree(columns); err != nil {
		return err
	}
	var keys [][]byte
	c := columns.Cursor()
	for k, v := c.Last(); k != nil; k, v = c.Prev() {
		b, err := DecodeBlock(k, v)
		if err != nil {
			return err
		}
		if b.Last <= head {
			break
		}
		keys = append(keys, bytes.Clone(k))
	}
	for _, k := range keys {
		if err := columns.Delete(k); err != nil {
			return err
		}
	}
	return nil
}

// Blocks walks a column bucket upwards.
type Blocks struct {
	c    *Cursor
	k, v []byte
	last int64

	steps Steps
	err   error // of BlocksAfter
}

// BlocksAfter starts at the first block that holds an id > after.
func BlocksAfter(columns *Bucket, after int64) Blocks {
	w := Blocks{c: columns.Cursor(), last: -1 << 63}
	w.k, w.v, w.err = Floor(columns, w.c, binary.BigEndian.AppendUint64(nil, uint64(after)+1))
	return w
}

// Next returns the next block, false at the end. Blocks must rise: a disk that
// lost writes can turn the tree into a loop.
func (w *Blocks) Next() (Block, bool, error) {
	if w.k == nil || w.err != nil {
		return Block{}, false, w.err
	}
	b, err := DecodeBlock(w.k, w.v)
	if err != nil {
		return Block{}, false, err
	}
	if b.First <= w.last && w.last != -1<<63 {
		return Block{}, false, fmt.Errorf("%w: column block %d after %d", ErrDamaged, b.First, w.last)
	}
	w.last = b.Last
	if err := w.steps.Check(w.c.Bucket(), w.k); err != nil {
		return Block{}, false, err
	}
	w.k, w.v = w.c.Next()
	return b, true, nil
}
