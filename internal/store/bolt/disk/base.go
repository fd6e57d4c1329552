package disk

import (
	"encoding/binary"
	"fmt"

	"thread/index"
	"thread/internal/store"
)

// KeyJournal is the key in bucket meta of what the records of events.journal continue:
//
//	epoch  8  rises with each commit of the thread, in every copy
//	salt   8  random, new with each commit
//	used   1  1 when records may follow: events.journal must be there
//	crc    4
//
// A database that was never written to does not have it.
var KeyJournal = []byte("journal")

// Base names a commit for the journal.
type Base struct {
	Epoch, Salt uint64
	Used        bool
}

// Encode returns the record.
func (b Base) Encode() []byte {
	v := binary.BigEndian.AppendUint64(nil, b.Epoch)
	v = append(binary.BigEndian.AppendUint64(v, b.Salt), 0)
	if b.Used {
		v[16] = 1
	}
	return index.AppendSum(v, KeyJournal)
}

// DecodeBase reads a record, nil for none; ErrCorrupt if it is not valid.
func DecodeBase(v []byte) (b Base, err error) {
	if v == nil {
		return b, nil
	}
	body, ok := index.CheckSum(KeyJournal, v)
	if !ok || len(body) != 17 {
		return b, fmt.Errorf("%w: journal record", store.ErrCorrupt)
	}
	return Base{binary.BigEndian.Uint64(body), binary.BigEndian.Uint64(body[8:]), body[16] == 1}, nil
}
