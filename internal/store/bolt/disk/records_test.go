package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"thread/event"
	"thread/index"
	"thread/internal/store"
	"thread/jsonlog"
)

// damages calls test with every damage of b: each byte changed in three ways, and each
// shorter length.
func damages(b []byte, test func(what string, damaged []byte)) {
	for i := range b {
		for _, v := range []byte{b[i] ^ 1, 0, 0xff} {
			if v != b[i] {
				d := bytes.Clone(b)
				d[i] = v
				test(fmt.Sprintf("byte %d is %#x", i, v), d)
			}
		}
		test(fmt.Sprintf("cut to %d bytes", i), bytes.Clone(b[:i]))
	}
}

// summed is damaged, except for its last 4 bytes, with the checksum of what it is now: as a
// mistake of a program leaves it.
func summed(key, damaged []byte) []byte {
	return index.AppendSum(bytes.Clone(damaged[:max(0, len(damaged)-SumBytes)]), key)
}

// TestRecords: whatever is damaged in a record of bucket meta, it is not read.
func TestRecords(t *testing.T) {
	state := State{Head: 5, LastID: 7, Count: 9, Stored: 4, Tail: 3, Log: jsonlog.Position{Size: 1, Lines: 2, Base: 3, First: 4}}
	for name, r := range map[string]struct {
		key, value []byte
		want       any
		decode     func(v []byte) (any, error)
	}{
		"journal": {KeyJournal, Base{3, 4, true}.Encode(), Base{3, 4, true}, func(v []byte) (any, error) { return DecodeBase(v) }},
		"unused":  {KeyJournal, Base{3, 4, false}.Encode(), Base{3, 4, false}, func(v []byte) (any, error) { return DecodeBase(v) }},
		"lines":   {KeyLines, LogStart{From: 3, Skip: 4}.Encode(), LogStart{true, 3, 4}, func(v []byte) (any, error) { return DecodeLogStart(v) }},
		"off": {KeyLines, LogStart{From: math.MaxInt64}.Encode(), LogStart{true, math.MaxInt64, 0}, func(v []byte) (any, error) {
			s, err := DecodeLogStart(v)
			if err == nil && !s.Off() {
				err = errors.New("they are on")
			}
			return s, err
		}},
		"state": {KeyState, state.Encode(), state, func(v []byte) (any, error) { return DecodeState(v) }},
	} {
		if got, err := r.decode(r.value); err != nil || got != r.want {
			t.Errorf("%s: %+v, want %+v, %v", name, got, r.want, err)
		}
		damages(r.value, func(what string, d []byte) {
			if got, err := r.decode(d); !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("%s, %s: %+v, %v", name, what, got, err)
			}
			if len(d) < len(r.value) { // sound, but of another length
				if got, err := r.decode(index.AppendSum(d, r.key)); len(d) != len(r.value)-SumBytes && !errors.Is(err, store.ErrCorrupt) {
					t.Errorf("%s, %s with a sum: %+v, %v", name, what, got, err)
				}
			}
		})
	}
	for name, err := range map[string]error{
		"lines before the first event":       second(DecodeLogStart(LogStart{From: 0}.Encode())),
		"lines before the file":              second(DecodeLogStart(LogStart{From: 1, Skip: -1}.Encode())),
		"a negative head":                    second(DecodeState((&State{Head: -1}).Encode())),
		"events behind the last id":          second(DecodeState((&State{Head: 2, LastID: 1}).Encode())),
		"more stored than ever":              second(DecodeState((&State{Count: 1, Stored: 2}).Encode())),
		"fewer stored than none":             second(DecodeState((&State{Stored: -1}).Encode())),
		"a negative tail":                    second(DecodeState((&State{Tail: -1}).Encode())),
		"a tail that is a block":             second(DecodeState((&State{Tail: index.BlockEvents}).Encode())),
		"an event's key that is not a key":   second(EventID([]byte("short"))),
		"an event's key that is not as long": second(EventID(nil)),
	} {
		if !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, got := range map[string]any{"journal": first(DecodeBase(nil)), "lines": first(DecodeLogStart(nil))} {
		if got != (Base{}) && got != (LogStart{}) {
			t.Errorf("no record %s: %+v", name, got)
		}
	}
	if s, err := DecodeState((&State{Tail: index.BlockEvents - 1}).Encode()); err != nil || s.Tail != index.BlockEvents-1 {
		t.Errorf("the longest tail: %+v, %v", s, err)
	}
}

func first[T any](v T, _ error) T        { return v }
func second[T any](_ T, err error) error { return err }

// TestFormatRecord: what names the format is another version's, or not ours.
func TestFormatRecord(t *testing.T) {
	good := EncodeFormat(FormatVersion)
	if v, err := DecodeFormat(good); v != FormatVersion || err != nil {
		t.Error(v, err)
	}
	damages(good, func(what string, d []byte) {
		_, err := DecodeFormat(d)
		if !errors.Is(err, store.ErrNotDatabase) && !errors.Is(err, store.ErrOldFormat) && !errors.Is(err, store.ErrNewerFormat) {
			t.Errorf("%s: %v", what, err)
		}
	})
	for version, want := range map[uint32]error{0: store.ErrNotDatabase, 1: store.ErrOldFormat, FormatVersion - 1: store.ErrOldFormat, FormatVersion + 1: store.ErrNewerFormat} {
		if _, err := DecodeFormat(EncodeFormat(version)); !errors.Is(err, want) {
			t.Errorf("version %d: %v", version, err)
		}
	}
}

// group is an entry of bucket events with each kind of event, and what is in it.
func group(form byte) (key, value []byte, want []Record, ids []int64) {
	at := func(text string) *TimeText {
		var t TimeText
		t.SetText(text)
		return &t
	}
	exact := "2026-03-18T10:30:00.123Z"
	events := []Appended{
		{ID: 300, Series: 1, At: at(exact), Content: "one"},
		{ID: 301, Series: 70_000, At: at("2026-03-18T10:29:59.000Z"), Content: ""},
		{ID: 303, Series: 2, At: at("half past ten"), Content: strings.Repeat("x", 200)},
		{ID: 5_000_000, Series: math.MaxUint32, At: at(""), InPieces: true, Size: 70_000, Sum: 0x12345678},
		{ID: math.MaxInt64, Series: 3, At: at(exact), Content: "last"},
	}
	key = EventKey(events[0].ID)
	value = []byte{form}
	if form == GroupSecond {
		value = binary.AppendUvarint(value, 900)
	}
	g := Group{Key: key}
	for i := range events {
		e := &events[i]
		value = g.Append(value, e)
		r := Record{Series: e.Series, Size: e.Size, Sum: e.Sum, Pieces: e.InPieces}
		if !e.InPieces {
			r.Size, r.Content = len(e.Content), []byte(e.Content)
		}
		if e.At.Exact {
			r.At = e.At.Millis
		} else {
			r.Verbatim = []byte(e.At.Text)
		}
		want, ids = append(want, r), append(ids, e.ID)
	}
	return key, index.AppendSum(value, key), want, ids
}

// readGroup reads a group to its end.
func readGroup(open func(key, value []byte) (Group, error), key, value []byte) (got []Record, ids []int64, err error) {
	g, err := open(key, value)
	for more := err == nil; more; {
		var r Record
		if more, err = g.Next(&r); more {
			got, ids = append(got, r), append(ids, g.ID)
		}
	}
	return got, ids, err
}

// TestDamagedGroups: a group in which a byte is damaged is not read. One that a program
// wrote so, with its checksum, is read as far as it is sound: its ids rise, and its error
// names the event.
func TestDamagedGroups(t *testing.T) {
	for _, form := range []byte{GroupFirst, GroupSecond} {
		key, value, want, wantIDs := group(form)
		for _, open := range []func(key, value []byte) (Group, error){OpenGroup, OpenUnchecked} {
			got, ids, err := readGroup(open, key, value)
			if err != nil || !reflect.DeepEqual(got, want) || !reflect.DeepEqual(ids, wantIDs) {
				t.Errorf("form %d: %+v %v, want %+v %v, %v", form, got, ids, want, wantIDs, err)
			}
		}
		if g, err := OpenGroup(key, value); err != nil || g.End() != nil || g.ID != math.MaxInt64 {
			t.Errorf("form %d ends at %d, %v", form, g.ID, err)
		}
		damages(value, func(what string, d []byte) {
			if _, err := OpenGroup(key, d); !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), "event 300") {
				t.Errorf("form %d, %s: %v", form, what, err)
			}
			for _, open := range []func(key, value []byte) (Group, error){OpenGroup, OpenUnchecked} {
				_, ids, err := readGroup(open, key, summed(key, d))
				if err != nil && (!errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), "event 300")) {
					t.Errorf("form %d, %s with a sum: %v", form, what, err)
				}
				for i, id := range ids {
					if id < 300 || i > 0 && id <= ids[i-1] {
						t.Errorf("form %d, %s with a sum: ids %v", form, what, ids)
						break
					}
				}
			}
		})
		for _, key := range [][]byte{nil, []byte("short"), append(bytes.Clone(key), 0)} {
			if _, err := OpenUnchecked(key, value); !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("key %x: %v", key, err)
			}
		}
		if _, err := OpenGroup(EventKey(301), value); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("under another key: %v", err)
		}
	}
}

// TestImpossibleEvents: numbers that no program writes are damage, each at its place.
func TestImpossibleEvents(t *testing.T) {
	const endless = "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"
	number := func(n uint64) string { return string(binary.AppendUvarint(nil, n)) }
	sound := number(4) + number(1) + "\x00" + "x" // a sound event of one byte
	for name, events := range map[string]string{
		"a head without an end":            endless,
		"a content of 2 GiB":               number((math.MaxInt32+1)<<2) + number(1) + "\x00",
		"a content that is cut":            number(8) + number(1) + "\x00" + "x",
		"odd without its byte":             number(headOdd),
		"odd, but in nothing":              number(headOdd) + "\x00" + number(1) + "\x00",
		"odd in what is not known":         number(headOdd) + "\x04" + number(1) + "\x00",
		"a gap before the first":           number(headOdd) + "\x01" + number(1) + number(1) + "\x00",
		"a gap of nothing":                 sound + number(headOdd) + "\x01" + number(0) + number(1) + "\x00",
		"a gap behind all ids":             sound + number(headOdd) + "\x01" + number(math.MaxInt64) + number(1) + "\x00",
		"a gap without an end":             sound + number(headOdd) + "\x01" + endless,
		"a series without an end":          number(0) + endless,
		"a series behind all":              number(0) + number(math.MaxUint32+1) + "\x00",
		"a time without an end":            number(0) + number(1) + endless,
		"a time's text that is cut":        number(headOdd) + "\x02" + number(1) + number(5) + "text",
		"a time's text of no known length": number(headOdd) + "\x02" + number(1) + endless,
		"a checksum that is cut":           number(4<<2|headPieces) + number(1) + "\x00" + "abc",
		"no event":                         "",
	} {
		key := EventKey(7)
		_, _, err := readGroup(OpenGroup, key, index.AppendSum(append([]byte{GroupFirst}, events...), key))
		if !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), "event 7") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, value := range map[string]string{"nothing": "", "another form": "\x05" + sound, "a first length without an end": "\x04" + endless, "form 4 alone": "\x04"} {
		key := EventKey(7)
		if _, err := OpenGroup(key, index.AppendSum([]byte(value), key)); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	key := EventKey(0)
	if _, _, err := readGroup(OpenGroup, key, index.AppendSum(append([]byte{GroupFirst}, sound...), key)); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("event 0: %v", err)
	}
}

// TestTimeText: both forms of a time are the same one, whatever was asked before.
func TestTimeText(t *testing.T) {
	var text TimeText
	for _, ms := range []int64{0, 5, 5, 1773829800123, 0} {
		if got, want := text.Of(&Record{At: ms}), string(event.AppendTime(nil, ms)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if got := text.Of(&Record{At: ms, Verbatim: []byte("noon")}); got != "noon" {
			t.Error(got)
		}
		text.SetText("half past ten")
	}
}

// TestDamagedPieces: a key that does not fit to its piece, and pieces that are not a whole.
func TestDamagedPieces(t *testing.T) {
	piece := []byte("piece")
	key := binary.BigEndian.AppendUint32(EventKey(9), 3)
	key = binary.BigEndian.AppendUint32(key, index.Sum(key, piece))
	if id, n, crc, ok := SplitPieceKey(key, piece); !ok || id != 9 || n != 3 || crc != binary.BigEndian.Uint32(key[12:]) {
		t.Error(id, n, crc, ok)
	}
	damages(key, func(what string, d []byte) {
		if _, _, _, ok := SplitPieceKey(d, piece); ok {
			t.Errorf("a key, %s", what)
		}
	})
	damages(piece, func(what string, d []byte) {
		if _, _, _, ok := SplitPieceKey(key, d); ok {
			t.Errorf("a piece, %s", what)
		}
	})
	whole := Assembly{Size: PieceBytes + 5, Want: NextSum(NextSum(0, 11), 12)}
	for name, tt := range map[string]struct {
		n, crc []uint32
		size   []int
		whole  bool
	}{
		"all":            {[]uint32{0, 1}, []uint32{11, 12}, []int{PieceBytes, 5}, true},
		"one missing":    {[]uint32{0}, []uint32{11}, []int{PieceBytes}, false},
		"another order":  {[]uint32{1, 0}, []uint32{12, 11}, []int{5, PieceBytes}, false},
		"a short first":  {[]uint32{0, 1}, []uint32{11, 12}, []int{PieceBytes - 1, 6}, false},
		"too long":       {[]uint32{0, 1}, []uint32{11, 12}, []int{PieceBytes, 6}, false},
		"of another one": {[]uint32{0, 1}, []uint32{11, 13}, []int{PieceBytes, 5}, false},
	} {
		a, ok := whole, true
		for i := range tt.n {
			ok = ok && a.Add(tt.n[i], tt.crc[i], tt.size[i])
		}
		if ok = ok && a.Whole(); ok != tt.whole {
			t.Errorf("%s: whole is %v", name, ok)
		}
	}
}
