package engine

import (
	"encoding/binary"
	"math"
	"os"

	"thread/index"
)

// Ids are not given twice, also where the record of those that were given is lost.
// So a repair begins above every id that it saw anywhere, and where it cannot know
// whether there were higher ones, well above.

// see notes the ids that an entry of a bucket shows to have been given. What has no
// checksum that fits shows nothing. Of an unused page the bucket is not known, "".
func (s *salvage) see(bucket string, e *element) {
	switch bucket {
	case "":
		// Ids of other programs can be any number, but what looks like one of them
		// here may be eight letters.
		if id, err := eventID(e.key); err == nil && id>>56 == 0 {
			s.see(string(bucketEvents), e)
			s.see(string(bucketColumns), e)
		}
		s.see(string(bucketPieces), e)
		s.see(string(bucketMeta), e)
	case string(bucketMeta):
		if st, err := decodeState(e.value); err == nil && string(e.key) == string(keyState) {
			s.saw(st.lastID)
		}
	case string(bucketEvents):
		g, err := openGroup(e.key, e.value)
		for more := true; err == nil && more; {
			var r record
			if more, err = g.next(&r); more {
				s.saw(g.id)
			}
		}
	case string(bucketPieces):
		if id, _, _, ok := splitPieceKey(e.key, e.value); ok {
			s.saw(id)
		}
	case string(bucketColumns):
		if b, err := index.DecodeBlock(e.key, e.value); err == nil {
			s.saw(b.Last)
		}
	case string(bucketSeriesByID):
		if id, ok := keyID(e.key); ok {
			if v, err := index.DecodeSeries(id, e.value); err == nil {
				s.saw(v.First)
			}
		}
	case string(bucketProgress):
		if p, err := decodeProgress(e.key, e.value); err == nil {
			s.saw(p.Newest) // not what was acked, which can be any number
		}
	case string(bucketDead), string(bucketRetries):
		if _, err := decodeLetter(e.key, e.value); err == nil {
			_, id, _ := splitLetterKey(e.key)
			s.saw(id)
		}
	case string(bucketDedupeExpiry):
		if _, ok := index.CheckSum(e.key, e.value); ok && len(e.key) == 16 {
			s.saw(int64(binary.BigEndian.Uint64(e.key[8:])))
		}
	}
}

func (s *salvage) saw(id int64) {
	if !s.unfinished(id) {
		s.seen = max(s.seen, id)
	}
}

// lastGiven returns the highest id that may have been given, and whether that is
// known, not guessed.
func (s *salvage) lastGiven() (id int64, known bool) {
	room := int64(2 * maxGroup) // the last transaction, of which nothing may be left
	switch {
	case s.st == nil:
		// What the file has room for, if each of its bytes was an event's.
		if s.pages != nil {
			room = max(room, int64(s.pages.pages)*s.pages.pageSize/leastEventBytes)
		}
	case s.stateInDoubt():
	default:
		if id = max(s.st.lastID, s.newestLine); s.seen <= id {
			return id, true
		}
	}
	if s.st != nil {
		id = s.st.lastID
	}
	if id = max(id, s.seen); id > math.MaxInt64-2*room {
		return id, false
	}
	return (id + room + roundGiven - 1) / roundGiven * roundGiven, false
}

const (
	leastEventBytes = 3     // in a group: its head, series and created_at
	roundGiven      = 10000 // a number that catches the eye
)

// stateInDoubt reports whether the state that was found may be that before the last
// change: it is of a meta page that may be the older one, and events.jsonl, to
// which a push appends after its change, neither is as the state says nor goes on
// from there.
func (s *salvage) stateInDoubt() bool {
	if s.stateOf == fromDatabase && !s.badMetas || s.newestLine > s.st.head {
		return false
	}
	info, err := os.Lstat(s.src.path("events.jsonl"))
	return err != nil || info.Size() != s.st.log.Size
}

// unknown returns the ids up to last of which it is not known whether there were
// events: where the state is lost any, else those above it, that are neither saved
// nor known to be lost. Both of these rise.
func (s *salvage) unknown(last int64, saved []int64, lost []IDRange) (ranges []IDRange) {
	next := int64(1)
	if s.st != nil {
		next = s.st.lastID + 1
	}
	upto := func(first, end int64) {
		if first > next {
			ranges = append(ranges, IDRange{next, first - 1})
		}
		next = end + 1 // negative behind the greatest id
	}
	for _, id := range saved {
		for ; len(lost) > 0 && lost[0].First < id; lost = lost[1:] {
			upto(lost[0].First, lost[0].Last)
		}
		upto(id, id)
	}
	for _, l := range lost {
		upto(l.First, l.Last)
	}
	if 0 < next && next <= last {
		ranges = append(ranges, IDRange{next, last})
	}
	return ranges
}
