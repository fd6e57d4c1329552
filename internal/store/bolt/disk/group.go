package disk

import (
	"encoding/binary"
	"fmt"
	"math"

	"thread/index"
)

// # Groups of events
//
// An entry of bucket events holds several events. A key, the
// header of an element of a leaf, the time and the checksum are some 40 bytes for
// each event alone, more than most contents need for anything else.
//
// bbolt never puts fewer than two entries on a leaf page, and splits a page that
// is too full after its second entry at the earliest. So groups come in pairs
// that fill a page, or two: the first takes up to half of it, the second what the
// first has left. A group that is full is never written to again, but as a
// neighbour on its page; a push rewrites the pages of the newest pair and of the
// one before.
//
// The key is the id of the first event. The value is valid if and only if its crc
// fits and it has this form:
//
//	form     1  3: the first of a pair, 4: the second
//	before      uvarint, form 4 only: the length of the first one's value
//	events      one or more
//	crc      4
//
// An event:
//
//	head        uvarint: length of the content × 4, and 2: the content is in bucket
//	            pieces, 1: a byte "odd" follows
//	odd      1  1: a gap follows, 2: the text of created_at follows. Not 0
//	gap         uvarint: how many ids lie between the event before and this one. The
//	            first event of a group has none
//	series      uvarint
//	created_at  varint: milliseconds since the time of the event before in the group
//	            that has milliseconds, or since 1970. Or, when it is not what
//	            event.AppendTime writes: uvarint length, and the text
//	content  n  or, when it is in bucket pieces, the crc of it, 4 bytes
const (
	GroupFirst  = 3
	GroupSecond = 4

	headOdd    = 1
	headPieces = 2
	oddGap     = 1
	oddTime    = 2

	// Events above pageEventBytes are put into pairs of two pages: of one page, half
	// an event of theirs would be too much to leave empty.
	PageEventBytes = 512
	SumBytes       = 4
)

// PairBytes is the length of both values of a pair that fills that many pages.
func PairBytes(pages int) int { return pages*PageBytes - PageHeaderBytes - 2*(elementBytes+8) }

// Record is a decoded event. The slices alias the database's pages.
type Record struct {
	Series   uint32
	At       int64  // created_at in milliseconds, unless
	Verbatim []byte // is not nil
	Content  []byte // nil when it is in bucket pieces
	Size     int    // bytes of the content
	Sum      uint32 // of a content in pieces
	Pieces   bool
}

// Group is an entry of bucket events that is being read.
type Group struct {
	Key  []byte
	Rest []byte // events not read yet
	Form byte
	ID   int64 // of the event read last, before the first one its id - 1
	ms   int64 // its milliseconds, or the milliseconds of an event before it
	Read int   // events
}

// OpenGroup looks at the checksum of an entry, and begins to read it.
func OpenGroup(key, value []byte) (Group, error) {
	b, ok := index.CheckSum(key, value)
	if !ok {
		err := CorruptEvent(key)
		if len(value) > 0 && (value[0] == GroupFirst || value[0] == GroupSecond) {
			err = fmt.Errorf("%w and those stored with it", err)
		}
		return Group{}, err
	}
	return beginGroup(key, b)
}

// OpenUnchecked is openGroup for those who need neither content nor certainty.
func OpenUnchecked(key, value []byte) (Group, error) {
	return beginGroup(key, value[:max(0, len(value)-SumBytes)])
}

func beginGroup(key, b []byte) (g Group, err error) {
	first, err := EventID(key)
	if err != nil || len(b) == 0 {
		return g, CorruptEvent(key)
	}
	g = Group{Key: key, Rest: b[1:], Form: b[0], ID: first - 1}
	switch g.Form {
	case GroupFirst:
	case GroupSecond:
		_, w := binary.Uvarint(g.Rest)
		if w <= 0 {
			return g, CorruptEvent(key)
		}
		g.Rest = g.Rest[w:]
	default:
		return g, CorruptEvent(key)
	}
	if len(g.Rest) == 0 {
		return g, CorruptEvent(key) // there is at least one
	}
	return g, nil
}

// Next reads the next event; more is false behind the last one.
func (g *Group) Next(r *Record) (more bool, err error) {
	if len(g.Rest) == 0 {
		return false, nil
	}
	g.ID++
	g.Read++
	if !g.decode(r) {
		return false, CorruptEvent(g.Key)
	}
	return true, nil
}

// decode reads an event of a group of several, and reports whether it is one.
func (g *Group) decode(r *Record) bool {
	b := g.Rest
	head, w := binary.Uvarint(b)
	if w <= 0 || head>>2 > math.MaxInt32 {
		return false
	}
	b = b[w:]
	*r = Record{Size: int(head >> 2), Pieces: head&headPieces != 0}
	odd := byte(0)
	if head&headOdd != 0 {
		if len(b) == 0 || b[0] == 0 || b[0] > oddGap|oddTime {
			return false
		}
		odd, b = b[0], b[1:]
	}
	if odd&oddGap != 0 {
		gap, w := binary.Uvarint(b)
		if w <= 0 || g.Read == 1 || gap == 0 || gap > uint64(math.MaxInt64-g.ID) {
			return false
		}
		g.ID += int64(gap)
		b = b[w:]
	}
	series, w := binary.Uvarint(b)
	if w <= 0 || series > math.MaxUint32 || g.ID <= 0 {
		return false
	}
	r.Series, b = uint32(series), b[w:]
	if odd&oddTime == 0 {
		ms, w := binary.Varint(b)
		if w <= 0 {
			return false
		}
		g.ms += ms
		r.At, b = g.ms, b[w:]
	} else {
		n, w := binary.Uvarint(b)
		if w <= 0 || n > uint64(len(b)-w) {
			return false
		}
		r.Verbatim, b = b[w:w+int(n):w+int(n)], b[w+int(n):]
	}
	n := r.Size
	if r.Pieces {
		n = SumBytes
	}
	if n > len(b) {
		return false
	}
	if r.Pieces {
		r.Sum = binary.BigEndian.Uint32(b)
	} else {
		r.Content = b[:n:n]
	}
	g.Rest = b[n:]
	return true
}

// End reads on to the last event.
func (g *Group) End() error {
	var r Record
	for {
		if more, err := g.Next(&r); err != nil || !more {
			return err
		}
	}
}

// Appended is an event that is to become part of a group.
type Appended struct {
	ID       int64
	Series   uint32
	At       *TimeText
	Content  string
	InPieces bool
	Size     int    // of a content in pieces,
	Sum      uint32 // and its checksum
}

// Append appends an event to a group whose latest one g has read: id and
// milliseconds count from there, and are set.
func (g *Group) Append(b []byte, e *Appended) []byte {
	size, odd := len(e.Content), byte(0)
	if e.InPieces {
		size = e.Size
	}
	head := uint64(size) << 2
	if g.Read > 0 && e.ID != g.ID+1 {
		odd |= oddGap
	}
	if !e.At.Exact {
		odd |= oddTime
	}
	if odd != 0 {
		head |= headOdd
	}
	if e.InPieces {
		head |= headPieces
	}
	b = binary.AppendUvarint(b, head)
	if odd != 0 {
		b = append(b, odd)
	}
	if odd&oddGap != 0 {
		b = binary.AppendUvarint(b, uint64(e.ID-g.ID-1))
	}
	b = binary.AppendUvarint(b, uint64(e.Series))
	if e.At.Exact {
		b = binary.AppendVarint(b, e.At.Millis-g.ms)
		g.ms = e.At.Millis
	} else {
		b = binary.AppendUvarint(b, uint64(len(e.At.Text)))
		b = append(b, e.At.Text...)
	}
	g.ID = e.ID
	g.Read++
	if e.InPieces {
		return binary.BigEndian.AppendUint32(b, e.Sum)
	}
	return append(b, e.Content...)
}

// EventID is the inverse of EventKey; ErrCorrupt if key is none.
func EventID(key []byte) (int64, error) {
	if len(key) != 8 {
		return 0, CorruptEvent(key)
	}
	return int64(binary.BigEndian.Uint64(key)), nil
}
