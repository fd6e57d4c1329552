package store

import (
	"time"

	"thread/internal/store/rec"
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

func (l *Limits) walk(w *rec.Walk) {
	w.Millis(1, &l.MaxAge)
	w.Int(2, &l.MaxBytes)
	w.Int(3, &l.MaxEvents)
	force := int64(0)
	if l.Force {
		force = 1
	}
	w.Int(4, &force)
	l.Force = force == 1
	w.Time(5, &l.Trusted)
	w.Time(6, &l.Doubted)
	w.Time(7, &l.AgeAt)
	w.Time(8, &l.TriedAt)
	w.Int(9, &l.NextID)
	w.Int(10, &l.Wanted)
}

// Encode returns the record.
func (l *Limits) Encode() []byte { return rec.Encode(LimitsKey, l.walk) }

// DecodeLimits reads the record; ErrCorrupt if it is not valid.
func DecodeLimits(value []byte) (l Limits, err error) {
	return l, decode("%s", LimitsKey, value, l.walk)
}
