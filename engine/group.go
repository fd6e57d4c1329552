package engine

import (
	"encoding/binary"
	"fmt"
	"math"

	"thread/index"
)

// # Groups of events
//
// From format 2 on, an entry of bucket events holds several events. A key, the
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
//	created_at  varint: milliseconds since that of the event before in the group
//	            that has milliseconds, or since 1970. Or, when it is not what
//	            event.AppendTime writes: uvarint length, and the text
//	content  n  or, when it is in bucket pieces, the crc of it, 4 bytes
const (
	groupFirst  = 3
	groupSecond = 4

	headOdd    = 1
	headPieces = 2
	oddGap     = 1
	oddTime    = 2

	// Events above pageEventBytes are put into pairs of two pages: of one page, half
	// an event of theirs would be too much to leave empty.
	pageEventBytes = 512
	sumBytes       = 4
)

// pairBytes is the length of both values of a pair that fills so many pages.
func pairBytes(pages int) int { return pages*pageBytes - boltPageHeader - 2*(elementBytes+8) }

// record is a decoded event. The slices alias the database's pages.
type record struct {
	series   uint32
	at       int64  // created_at in milliseconds, unless
	verbatim []byte // is not nil
	content  []byte // nil when it is in bucket pieces
	size     int    // bytes of the content
	sum      uint32 // of a content in pieces
	pieces   bool
}

// group is an entry of bucket events that is being read. An entry of format 1 is
// a group of one.
type group struct {
	key  []byte
	rest []byte // events not read yet
	form byte
	id   int64 // of the event read last, before the first one its id - 1
	ms   int64 // its milliseconds, or those of an event before it
	read int   // events
}

// openGroup looks at the checksum of an entry, and begins to read it.
func openGroup(key, value []byte) (group, error) {
	b, ok := index.CheckSum(key, value)
	if !ok {
		err := corruptEvent(key)
		if len(value) > 0 && (value[0] == groupFirst || value[0] == groupSecond) {
			err = fmt.Errorf("%w and those stored with it", err)
		}
		return group{}, err
	}
	return beginGroup(key, b)
}

// openUnchecked is openGroup for those who need neither content nor certainty.
func openUnchecked(key, value []byte) (group, error) {
	return beginGroup(key, value[:max(0, len(value)-sumBytes)])
}

func beginGroup(key, b []byte) (g group, err error) {
	first, err := eventID(key)
	if err != nil || len(b) == 0 {
		return g, corruptEvent(key)
	}
	g = group{key: key, rest: b[1:], form: b[0], id: first - 1}
	switch g.form {
	case recordExact, recordVerbatim:
		g.rest = b
	case groupFirst:
	case groupSecond:
		_, w := binary.Uvarint(g.rest)
		if w <= 0 {
			return g, corruptEvent(key)
		}
		g.rest = g.rest[w:]
	default:
		return g, corruptEvent(key)
	}
	if len(g.rest) == 0 {
		return g, corruptEvent(key) // there is at least one
	}
	return g, nil
}

// next reads the next event; more is false behind the last one.
func (g *group) next(r *record) (more bool, err error) {
	if len(g.rest) == 0 {
		return false, nil
	}
	g.id++
	g.read++
	var ok bool
	if g.form <= recordVerbatim {
		ok = r.decodeSingle(g.rest)
		g.rest = nil
	} else {
		ok = g.decode(r)
	}
	if !ok {
		return false, corruptEvent(g.key)
	}
	return true, nil
}

// decode reads an event of a group of several, and reports whether it is one.
func (g *group) decode(r *record) bool {
	b := g.rest
	head, w := binary.Uvarint(b)
	if w <= 0 || head>>2 > math.MaxInt32 {
		return false
	}
	b = b[w:]
	*r = record{size: int(head >> 2), pieces: head&headPieces != 0}
	odd := byte(0)
	if head&headOdd != 0 {
		if len(b) == 0 || b[0] == 0 || b[0] > oddGap|oddTime {
			return false
		}
		odd, b = b[0], b[1:]
	}
	if odd&oddGap != 0 {
		gap, w := binary.Uvarint(b)
		if w <= 0 || g.read == 1 || gap == 0 || gap > uint64(math.MaxInt64-g.id) {
			return false
		}
		g.id += int64(gap)
		b = b[w:]
	}
	series, w := binary.Uvarint(b)
	if w <= 0 || series > math.MaxUint32 || g.id <= 0 {
		return false
	}
	r.series, b = uint32(series), b[w:]
	if odd&oddTime == 0 {
		ms, w := binary.Varint(b)
		if w <= 0 {
			return false
		}
		g.ms += ms
		r.at, b = g.ms, b[w:]
	} else {
		n, w := binary.Uvarint(b)
		if w <= 0 || n > uint64(len(b)-w) {
			return false
		}
		r.verbatim, b = b[w:w+int(n):w+int(n)], b[w+int(n):]
	}
	n := r.size
	if r.pieces {
		n = sumBytes
	}
	if n > len(b) {
		return false
	}
	if r.pieces {
		r.sum = binary.BigEndian.Uint32(b)
	} else {
		r.content = b[:n:n]
	}
	g.rest = b[n:]
	return true
}

// end reads on to the last event.
func (g *group) end() error {
	var r record
	for {
		if more, err := g.next(&r); err != nil || !more {
			return err
		}
	}
}

// appended is an event that is to become part of a group.
type appended struct {
	id       int64
	series   uint32
	at       *timeText
	content  string
	inPieces bool
	size     int    // of a content in pieces,
	sum      uint32 // and its checksum
}

// append appends an event to a group whose latest one g has read: id and
// milliseconds count from there, and are set.
func (g *group) append(b []byte, e *appended) []byte {
	size, odd := len(e.content), byte(0)
	if e.inPieces {
		size = e.size
	}
	head := uint64(size) << 2
	if g.read > 0 && e.id != g.id+1 {
		odd |= oddGap
	}
	if !e.at.exact {
		odd |= oddTime
	}
	if odd != 0 {
		head |= headOdd
	}
	if e.inPieces {
		head |= headPieces
	}
	b = binary.AppendUvarint(b, head)
	if odd != 0 {
		b = append(b, odd)
	}
	if odd&oddGap != 0 {
		b = binary.AppendUvarint(b, uint64(e.id-g.id-1))
	}
	b = binary.AppendUvarint(b, uint64(e.series))
	if e.at.exact {
		b = binary.AppendVarint(b, e.at.ms-g.ms)
		g.ms = e.at.ms
	} else {
		b = binary.AppendUvarint(b, uint64(len(e.at.text)))
		b = append(b, e.at.text...)
	}
	g.id = e.id
	g.read++
	if e.inPieces {
		return binary.BigEndian.AppendUint32(b, e.sum)
	}
	return append(b, e.content...)
}
