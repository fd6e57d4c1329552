package pgstore

import (
	"time"

	"thread/event"
)

// Event implements store.Tx.
func (tx *tx) Event(id int64) (e event.Event, stored bool, err error) {
	e.ID = id
	if id <= tx.floor || id > tx.head {
		return e, false, tx.failed
	}
	rs, err := tx.read(span{after: id - 1, upto: id, contents: true}, 1)
	if err != nil || len(rs) == 0 {
		return e, false, err
	}
	e, err = tx.event(rs[0])
	return e, err == nil, err
}

// Yield implements store.Tx. Writers do not wait for readers, but a server keeps what a
// long transaction may still look at.
func (tx *tx) Yield() bool { return time.Since(tx.began) >= yieldTime }

// Unused implements store.Tx: the server uses again what becomes free.
func (tx *tx) Unused() int64 { return 0 }
