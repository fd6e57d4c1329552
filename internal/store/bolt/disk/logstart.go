package disk

import (
	"encoding/binary"
	"fmt"
	"math"

	"thread/index"
	"thread/internal/store"
)

// LogStart says where the thread's part of events*.jsonl begins. Without it no process
// could tell a rotated file that is gone from one that never was: an import writes
// lines of its newest events only.
//
// meta "lines", valid if and only if it has 20 bytes and the crc fits; older
// directories do not have it:
//
//	from  8  every event from this id on has a line
//	skip  8  bytes in events.jsonl that stood there before that line
//	crc   4
//
// From is math.MaxInt64 in a thread whose lines are off: no event has a line.
// Programs that do not know this find no line missing.
type LogStart struct {
	Known      bool
	From, Skip int64
}

// Off reports whether pushes write no lines.
func (s LogStart) Off() bool { return s.From == math.MaxInt64 }

// KeyLines is its key in bucket meta.
var KeyLines = []byte("lines")

// Encode returns the record.
func (s LogStart) Encode() []byte {
	v := binary.BigEndian.AppendUint64(nil, uint64(s.From))
	v = binary.BigEndian.AppendUint64(v, uint64(s.Skip))
	return index.AppendSum(v, KeyLines)
}

// DecodeLogStart reads a record, nil for none; ErrCorrupt if it is not valid.
func DecodeLogStart(v []byte) (s LogStart, err error) {
	if v == nil {
		return s, nil
	}
	b, ok := index.CheckSum(KeyLines, v)
	if !ok || len(b) != 16 {
		return s, fmt.Errorf("%w: lines record", store.ErrCorrupt)
	}
	s = LogStart{Known: true, From: int64(binary.BigEndian.Uint64(b)), Skip: int64(binary.BigEndian.Uint64(b[8:]))}
	if s.From <= 0 || s.Skip < 0 {
		return s, fmt.Errorf("%w: lines record", store.ErrCorrupt)
	}
	return s, nil
}
