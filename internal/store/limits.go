package store

import (
	"fmt"
	"time"

	"thread/index"
)

// Limits is what a thread keeps by itself, and how far that is. Table limits, by
// [LimitsKey].
//
// Its record is valid if and only if it consists of fields and a crc of 4 bytes.
type Limits struct {
	MaxAge    time.Duration // 0: any
	MaxBytes  int64         // of the database, 0: any
	MaxEvents int64         // 0: any
	Force     bool          // unread events and dead letters count like others

	// Age counts up to Trusted, which follows the clock. A clock that has jumped since
	// is not followed before it has gone on for a while; it was seen first at Doubted,
	// zero when there is no doubt.
	Trusted, Doubted time.Time

	AgeAt   time.Time // when the oldest event is too old; zero: there was none
	TriedAt time.Time // when events were dropped last, or it was tried
	NextID  int64     // no other try before that id is given, 0: at any time
	Wanted  int64     // up to here events were to be dropped and could not, 0: they were
}

// LimitsKey is the key of the one record of table limits.
var LimitsKey = []byte("limits")

const (
	fieldMaxAge    = 1
	fieldMaxBytes  = 2
	fieldMaxEvents = 3
	fieldForce     = 4
	fieldTrusted   = 5
	fieldDoubted   = 6
	fieldAgeAt     = 7
	fieldTriedAt   = 8
	fieldNextID    = 9
	fieldWanted    = 10
)

// Encode returns the record.
func (l *Limits) Encode() []byte {
	b := appendNumber(nil, fieldMaxAge, l.MaxAge.Milliseconds())
	b = appendNumber(b, fieldMaxBytes, l.MaxBytes)
	b = appendNumber(b, fieldMaxEvents, l.MaxEvents)
	if l.Force {
		b = appendNumber(b, fieldForce, 1)
	}
	b = appendTime(b, fieldTrusted, l.Trusted)
	b = appendTime(b, fieldDoubted, l.Doubted)
	b = appendTime(b, fieldAgeAt, l.AgeAt)
	b = appendTime(b, fieldTriedAt, l.TriedAt)
	b = appendNumber(b, fieldNextID, l.NextID)
	b = appendNumber(b, fieldWanted, l.Wanted)
	return index.AppendSum(b, LimitsKey)
}

// DecodeLimits reads the record; ErrCorrupt if it is not valid.
func DecodeLimits(value []byte) (l Limits, err error) {
	b, ok := index.CheckSum(LimitsKey, value)
	if !ok {
		return l, fmt.Errorf("%w: limits", ErrCorrupt)
	}
	err = eachField(b, func(tag uint64, v []byte) error {
		if tag > fieldWanted {
			return nil // of a newer version
		}
		n, err := number(v)
		switch at := time.UnixMilli(n); tag {
		case fieldMaxAge:
			l.MaxAge = time.Duration(n) * time.Millisecond
		case fieldMaxBytes:
			l.MaxBytes = n
		case fieldMaxEvents:
			l.MaxEvents = n
		case fieldForce:
			l.Force = n == 1
		case fieldTrusted:
			l.Trusted = at
		case fieldDoubted:
			l.Doubted = at
		case fieldAgeAt:
			l.AgeAt = at
		case fieldTriedAt:
			l.TriedAt = at
		case fieldNextID:
			l.NextID = n
		case fieldWanted:
			l.Wanted = n
		}
		return err
	})
	return l, err
}
