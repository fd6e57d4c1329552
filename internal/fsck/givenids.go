package fsck

import (
	"math"
	"os"

	"thread/index"
	"thread/internal/store"
	"thread/internal/store/bolt"
	"thread/internal/store/bolt/disk"
)

// Ids are not given twice, also where the record of those that were given is lost.
// So a repair begins above every id that it saw anywhere, and where it cannot know
// whether there were higher ones, well above.

// see notes the ids that an entry of a bucket shows to have been given. What has no
// checksum that fits shows nothing. Of an unused page the bucket is not known, "".
func (s *salvage) see(bucket string, e *disk.Element) {
	switch bucket {
	case "":
		// Ids of other programs can be any number, but what looks like one of them
		// here may be eight letters.
		if id, err := disk.EventID(e.Key); err == nil && id>>56 == 0 {
			s.see(string(store.Events), e)
			s.see(string(store.Columns), e)
		}
		s.see(string(store.Pieces), e)
		s.see(string(store.Meta), e)
	case string(store.Meta):
		if st, err := disk.DecodeState(e.Value); err == nil && string(e.Key) == string(disk.KeyState) {
			s.saw(st.LastID)
		}
	case string(store.Events):
		g, err := disk.OpenGroup(e.Key, e.Value)
		for more := true; err == nil && more; {
			var r disk.Record
			if more, err = g.Next(&r); more {
				s.saw(g.ID)
			}
		}
	case string(store.Pieces):
		if id, _, _, ok := disk.SplitPieceKey(e.Key, e.Value); ok {
			s.saw(id)
		}
	case string(store.Columns):
		if b, err := index.DecodeBlock(e.Key, e.Value); err == nil {
			s.saw(b.Last)
		}
	case string(store.SeriesByID):
		if id, ok := keyID(e.Key); ok {
			if v, err := index.DecodeSeries(id, e.Value); err == nil {
				s.saw(v.First)
			}
		}
	case string(store.Progress):
		if p, err := store.DecodeProgress(e.Key, e.Value); err == nil {
			s.saw(p.Newest) // not what was acked, which can be any number
		}
	case string(store.Settled):
		if r, err := store.DecodeSettledRange(e.Key, e.Value); err == nil {
			s.saw(r.Last)
		}
	case string(store.Dead), string(store.Retries), string(store.Attempts):
		if _, err := store.DecodeLetter(e.Key, e.Value); err == nil {
			_, id, _ := store.SplitLetterKey(e.Key)
			s.saw(id)
		}
	case string(store.DedupeExpiry):
		if _, id, _, err := store.DecodeExpiry(e.Key, e.Value); err == nil {
			s.saw(id)
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
	room := int64(2 * bolt.MaxGroup) // the last transaction, of which nothing may be left
	switch {
	case s.st == nil:
		// What the file has room for, if each of its bytes was an event's.
		if s.pages != nil {
			room = max(room, int64(s.pages.Pages)*s.pages.PageSize/leastEventBytes)
		}
	case s.stateInDoubt():
	default:
		if id = max(s.st.LastID, s.newestLine); s.seen <= id {
			return id, true
		}
	}
	if s.st != nil {
		id = s.st.LastID
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
// which a push appends after its change, neither is as the state says nor continues
// from there.
func (s *salvage) stateInDoubt() bool {
	if s.stateOf == fromDatabase && !s.badMetas || s.newestLine > s.st.Head {
		return false
	}
	info, err := os.Lstat(s.src.Path("events.jsonl"))
	return err != nil || info.Size() != s.st.Log.Size
}

// unknown returns the ids up to last of which it is not known whether there were
// events: where the state is lost any, else those above it, that are neither saved
// nor known to be lost. Both of these rise.
func (s *salvage) unknown(last int64, saved []int64, lost []IDRange) (ranges []IDRange) {
	next := int64(1)
	if s.st != nil {
		next = s.st.LastID + 1
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
