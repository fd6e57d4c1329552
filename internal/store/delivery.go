package store

import (
	"fmt"

	"thread/index"
)

// Delivery is how far a consumer's deliveries are, beside its progress. Table
// deliveries, by [ConsumerKey]. A record is valid if and only if its crc fits and it
// consists of fields, followed by a crc of 4 bytes.
type Delivery struct {
	Number  int64 // of the latest delivery, they are counted from 1
	First   int64 // ids of its first and last event
	Last    int64
	Count   int64 // its events while it is out; 0 when its result is stored
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

const (
	fieldNumber  = 1
	fieldFirst   = 2
	fieldLast    = 3
	fieldCount   = 4
	fieldRetry   = 5
	fieldSuspect = 6
	fieldFailing = 7
	fieldLetter  = 8 // Failures
	fieldRetried = 9
	fieldMoved   = 10
	fieldRoom    = 11
	fieldMark    = 12
	fieldLeased  = 13
	fieldLease   = 14
)

func (d *Delivery) numbers() []*int64 {
	return []*int64{fieldNumber: &d.Number, fieldFirst: &d.First, fieldLast: &d.Last, fieldCount: &d.Count,
		fieldRetry: &d.Retry, fieldSuspect: &d.Suspect, fieldFailing: &d.Failing, fieldRetried: &d.Retried,
		fieldMoved: &d.Moved, fieldRoom: &d.Window, fieldMark: &d.Mark,
		fieldLeased: &d.LeasedAt, fieldLease: &d.LeaseEnd}
}

// Encode returns the record for key.
func (d *Delivery) Encode(key []byte) []byte {
	var b []byte
	for tag, n := range d.numbers() {
		if n != nil {
			b = appendNumber(b, uint64(tag), *n)
		} else if tag == fieldLetter && d.Failing != 0 {
			b = appendField(b, fieldLetter, string(d.Letter.append(nil)))
		}
	}
	return index.AppendSum(b, key)
}

// DecodeDelivery reads a record; ErrCorrupt if it is not valid.
func DecodeDelivery(key, value []byte) (d Delivery, err error) {
	b, ok := index.CheckSum(key, value)
	if !ok {
		return d, fmt.Errorf("%w: delivery %q", ErrCorrupt, key)
	}
	numbers := d.numbers()
	err = eachField(b, func(tag uint64, v []byte) (err error) {
		switch {
		case tag == fieldLetter:
			d.Letter, err = decodeFailures(v)
		case tag < uint64(len(numbers)) && numbers[tag] != nil:
			*numbers[tag], err = number(v)
		}
		return err
	})
	return d, err
}
