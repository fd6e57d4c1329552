package engine

import (
	"encoding/binary"
	"fmt"

	"thread/index"
)

// logStart says where the thread's part of events*.jsonl begins. Without it nobody
// could tell a rotated file that is gone from one that never was: an import writes
// lines of its newest events only.
//
// meta "lines", valid if and only if it has 20 bytes and the crc fits; older
// directories do not have it:
//
//	from  8  every event from this id on has a line
//	skip  8  bytes in events.jsonl that stood there before that line
//	crc   4
type logStart struct {
	known      bool
	from, skip int64
}

var keyLines = []byte("lines")

func (s logStart) encode() []byte {
	v := binary.BigEndian.AppendUint64(nil, uint64(s.from))
	v = binary.BigEndian.AppendUint64(v, uint64(s.skip))
	return index.AppendSum(v, keyLines)
}

func decodeLogStart(v []byte) (s logStart, err error) {
	if v == nil {
		return s, nil
	}
	b, ok := index.CheckSum(keyLines, v)
	if !ok || len(b) != 16 {
		return s, fmt.Errorf("%w: lines record", ErrCorrupt)
	}
	s = logStart{known: true, from: int64(binary.BigEndian.Uint64(b)), skip: int64(binary.BigEndian.Uint64(b[8:]))}
	if s.from <= 0 || s.skip < 0 {
		return s, fmt.Errorf("%w: lines record", ErrCorrupt)
	}
	return s, nil
}

// logStart returns what is known of the beginning of events*.jsonl.
func (tx *Tx) logStart() (logStart, error) {
	v, err := index.Get(tx.meta, keyLines)
	if err != nil {
		return logStart{}, err
	}
	return decodeLogStart(v)
}
