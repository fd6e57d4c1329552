package store

import "thread/internal/store/rec"

// Delivery is how far a consumer's deliveries are, next to its progress. Table
// deliveries, by [ConsumerKey]. A record is valid if and only if its crc fits and it
// consists of fields, followed by a crc of 4 bytes.
type Delivery struct {
	Number  int64 // of the latest delivery, they are counted from 1
	First   int64 // ids of its first and last event
	Last    int64
	Count   int64 // its events while it is in flight; 0 when its result is stored
	Retry   int64 // 1: it is a dead letter that was sent back
	Suspect int64 // last id of a group that has failed and is being split, 0: none
	Failing int64 // the unread event that has failed, 0: none
	Letter  Failures
	Retried int64 // how often something was handed back: a dead letter, or by Seek

	Moved  int64 // how often the set above the progress, or attempts, were changed from outside
	Window int64 // of the latest ParallelFeed
	Mark   int64 // 1 + progress when the set was changed last, 0: there is none

	// While Count is not 0, of a delivery that outlives the process that took it: when it
	// was given out, or the lease was drawn out last, and when it ends, in milliseconds.
	LeasedAt int64
	LeaseEnd int64 // 0: it has no lease
}

func (d *Delivery) walk(w *rec.Walk) {
	w.Int(1, &d.Number)
	w.Int(2, &d.First)
	w.Int(3, &d.Last)
	w.Int(4, &d.Count)
	w.Int(5, &d.Retry)
	w.Int(6, &d.Suspect)
	w.Int(7, &d.Failing)
	w.Record(8, d.Failing != 0, d.Letter.walk)
	w.Int(9, &d.Retried)
	w.Int(10, &d.Moved)
	w.Int(11, &d.Window)
	w.Int(12, &d.Mark)
	w.Int(13, &d.LeasedAt)
	w.Int(14, &d.LeaseEnd)
}

// Encode returns the record for key.
func (d *Delivery) Encode(key []byte) []byte { return rec.Encode(key, d.walk) }

// DecodeDelivery reads a record; ErrCorrupt if it is not valid.
func DecodeDelivery(key, value []byte) (d Delivery, err error) {
	return d, decode("delivery %q", key, value, d.walk)
}
