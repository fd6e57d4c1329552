package engine

import (
	"encoding/binary"

	"go.etcd.io/bbolt"

	"thread/index"
)

// eventCursor reads events at rising ids. Most of the time the next one is near.
type eventCursor struct {
	b     *bbolt.Bucket
	c     *bbolt.Cursor
	at    int64
	k     []byte // the key at the cursor
	key   [8]byte
	steps index.Steps
}

// seek returns the record of an event, nil when it is not there. The key is
// valid until the next call.
func (e *eventCursor) seek(id int64) (key, value []byte, err error) {
	key = e.key[:]
	binary.BigEndian.PutUint64(key, uint64(id))
	var v []byte
	if e.at != 0 && id == e.at+1 && e.k != nil {
		if err := e.steps.Check(e.b, e.k); err != nil {
			return nil, nil, err
		}
		e.k, v = e.c.Next()
	}
	if string(e.k) != string(key) {
		if err := index.CheckPath(e.b, key); err != nil {
			return nil, nil, err
		}
		e.k, v = e.c.Seek(key)
	}
	e.at = id
	if string(e.k) != string(key) {
		v = nil
	}
	return key, v, nil
}
