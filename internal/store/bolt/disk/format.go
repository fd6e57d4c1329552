package disk

import (
	"encoding/binary"
	"fmt"

	"thread/event"
	"thread/index"
	"thread/internal/store"
	"thread/jsonlog"
)

// The format is in the package comment.
//
// An event record of format 1 is valid if and only if its crc fits and it has one of these
// forms:
//
//	form        1  1
//	series      4  series id
//	created_at  8  milliseconds since 1970; the text is event.AppendTime of it
//	content     n
//	crc         4
//
//	form        1  2
//	series      4
//	created_at     uvarint length, then the text, as it was imported
//	content     n
//	crc         4
const (
	FormatFirst   = 1
	FormatVersion = 2
	formatMagic   = "thrd"
	stateBytes    = 9*8 + 4

	RecordExact    = 1
	RecordVerbatim = 2
)

// The keys in bucket meta, and the names of the buckets.
var (
	KeyFormat = []byte("format")
	KeyState  = []byte("state")
	KeySeries = []byte("series") // see package index

	BucketMeta          = []byte(store.Meta)
	BucketEvents        = []byte(store.Events)
	BucketSeries        = []byte(store.Series)
	BucketSeriesByID    = []byte(store.SeriesByID)
	BucketColumns       = []byte(store.Columns)
	BucketTypes         = []byte(store.Types)
	BucketTypeBlocks    = []byte(store.TypeBlocks)
	BucketSubscriptions = []byte(store.Subscriptions)
	BucketProgress      = []byte(store.Progress)
)

// EncodeFormat returns the record meta "format".
func EncodeFormat(version uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte(formatMagic), version)
}

// DecodeFormat reads it; ErrNotDatabase for anything else, ErrNewerFormat.
func DecodeFormat(v []byte) (version uint32, err error) {
	if len(v) != 8 || string(v[:4]) != formatMagic {
		return 0, store.ErrNotDatabase
	}
	switch version = binary.BigEndian.Uint32(v[4:]); {
	case version < FormatFirst:
		return 0, store.ErrNotDatabase
	case version > FormatVersion:
		return 0, fmt.Errorf("%w: format %d, this program knows %d", store.ErrNewerFormat, version, FormatVersion)
	}
	return version, nil
}

// State is what every writer changes and every reader starts from.
type State struct {
	Head, LastID, Count, Stored, Tail int64
	Log                               jsonlog.Position
}

// Encode returns the record meta "state".
func (s *State) Encode() []byte {
	v := make([]byte, 0, stateBytes)
	for _, n := range []int64{s.Head, s.LastID, s.Count, s.Stored, s.Tail, s.Log.Size, s.Log.Lines, s.Log.Base, s.Log.First} {
		v = binary.BigEndian.AppendUint64(v, uint64(n))
	}
	return index.AppendSum(v, KeyState)
}

// DecodeState reads it; ErrCorrupt if it is not valid.
func DecodeState(v []byte) (s State, err error) {
	b, ok := index.CheckSum(KeyState, v)
	if !ok || len(v) != stateBytes {
		return s, fmt.Errorf("%w: state record", store.ErrCorrupt)
	}
	for i, p := range []*int64{&s.Head, &s.LastID, &s.Count, &s.Stored, &s.Tail, &s.Log.Size, &s.Log.Lines, &s.Log.Base, &s.Log.First} {
		*p = int64(binary.BigEndian.Uint64(b[i*8:]))
	}
	if s.Head < 0 || s.LastID < s.Head || s.Count < s.Stored || s.Stored < 0 || s.Tail < 0 || s.Tail >= index.BlockEvents {
		return s, fmt.Errorf("%w: state record", store.ErrCorrupt)
	}
	return s, nil
}

// EventKey returns the key of a group that begins with that event.
func EventKey(id int64) []byte { return binary.BigEndian.AppendUint64(make([]byte, 0, 8), uint64(id)) }

// TimeText is a created_at in both of its forms. The text and the milliseconds
// of the latest one are kept, because neighbours often share it.
type TimeText struct {
	Text   string
	Millis int64
	Exact  bool // text is event.AppendTime of ms; otherwise ms means nothing
}

// SetText sets the text.
func (t *TimeText) SetText(s string) {
	if s != t.Text || s == "" {
		t.Text = s
		t.Millis, t.Exact = event.ParseTime(s)
	}
}

func (t *TimeText) setMillis(ms int64) {
	if ms != t.Millis || !t.Exact {
		var buf [len(event.TimeLayout)]byte
		*t = TimeText{Text: string(event.AppendTime(buf[:0], ms)), Millis: ms, Exact: true}
	}
}

// Of returns the created_at text of r, which does not alias the database.
func (t *TimeText) Of(r *Record) string {
	if r.Verbatim != nil {
		return string(r.Verbatim)
	}
	t.setMillis(r.At)
	return t.Text
}

// RecordBytes is an upper bound of the length of e's record.
func RecordBytes(e *event.Event) int {
	return 1 + 4 + max(8, binary.MaxVarintLen64+len(e.CreatedAt)) + len(e.Content) + 4
}

// AppendRecord appends the event record for key.
func AppendRecord(b, key []byte, series uint32, at *TimeText, content string) []byte {
	start := len(b)
	if at.Exact {
		b = append(b, RecordExact)
		b = binary.BigEndian.AppendUint32(b, series)
		b = binary.BigEndian.AppendUint64(b, uint64(at.Millis))
	} else {
		b = append(b, RecordVerbatim)
		b = binary.BigEndian.AppendUint32(b, series)
		b = binary.AppendUvarint(b, uint64(len(at.Text)))
		b = append(b, at.Text...)
	}
	b = append(b, content...)
	return binary.BigEndian.AppendUint32(b, index.Sum(key, b[start:]))
}

// decodeSingle reads a record of format 1, without its crc, and reports whether it
// is one.
func (r *Record) decodeSingle(b []byte) bool {
	if len(b) < 5 {
		return false
	}
	form := b[0]
	*r = Record{Series: binary.BigEndian.Uint32(b[1:])}
	b = b[5:]
	if form == RecordExact {
		if len(b) < 8 {
			return false
		}
		r.At, r.Content = int64(binary.BigEndian.Uint64(b)), b[8:]
	} else {
		n, w := binary.Uvarint(b)
		if w <= 0 || n > uint64(len(b)-w) {
			return false
		}
		r.Verbatim, r.Content = b[w:w+int(n):w+int(n)], b[w+int(n):]
	}
	r.Size = len(r.Content)
	return true
}

// CorruptEvent returns ErrCorrupt for the event, or the group, of that key.
func CorruptEvent(key []byte) error {
	if len(key) == 8 {
		return fmt.Errorf("%w: event %d", store.ErrCorrupt, int64(binary.BigEndian.Uint64(key)))
	}
	return fmt.Errorf("%w: event key %x", store.ErrCorrupt, key)
}
