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
const (
	FormatVersion = 3 // 1 and 2 were of programs that were never released
	formatMagic   = "thrd"
	stateBytes    = 9*8 + 4
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

// DecodeFormat reads it; ErrNotDatabase for anything else, ErrOldFormat, ErrNewerFormat.
func DecodeFormat(v []byte) (version uint32, err error) {
	if len(v) != 8 || string(v[:4]) != formatMagic {
		return 0, store.ErrNotDatabase
	}
	switch version = binary.BigEndian.Uint32(v[4:]); {
	case version == 0:
		return 0, store.ErrNotDatabase
	case version < FormatVersion:
		return 0, store.ErrOldFormat
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

// CorruptEvent returns ErrCorrupt for the event, or the group, of that key.
func CorruptEvent(key []byte) error {
	if len(key) == 8 {
		return fmt.Errorf("%w: event %d", store.ErrCorrupt, int64(binary.BigEndian.Uint64(key)))
	}
	return fmt.Errorf("%w: event key %x", store.ErrCorrupt, key)
}
