package store

import (
	"encoding/binary"
	"fmt"

	"thread/index"
	"thread/internal/store/rec"
)

// SettledRange is a range of ids that a consumer has settled above its progress, both
// ends included. Table settled, by the [LetterKey] of First; a record is valid if and
// only if it has 20 bytes and its crc fits:
//
//	last   8
//	count  8
//	crc    4
type SettledRange struct {
	First, Last int64
	Count       int64 // events of it that were delivered
}

// Encode returns the record for key.
func (r *SettledRange) Encode(key []byte) []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(r.Last))
	return index.AppendSum(binary.BigEndian.AppendUint64(b, uint64(r.Count)), key)
}

// DecodeSettledRange reads a record; ErrCorrupt if it is not valid.
func DecodeSettledRange(key, value []byte) (r SettledRange, err error) {
	b, ok := index.CheckSum(key, value)
	if !ok || len(b) != 16 {
		return r, fmt.Errorf("%w: settled range %x", ErrCorrupt, key)
	}
	_, r.First, err = SplitLetterKey(key)
	r.Last, r.Count = int64(binary.BigEndian.Uint64(b)), int64(binary.BigEndian.Uint64(b[8:]))
	return r, err
}

// Attempt is what is known of a single event of a consumer whose deliveries are in flight
// side by side. Table attempts, by [LetterKey]: the fields of Failures, those below,
// and a crc of 4 bytes. An event has a record while it is in flight, and from its first
// failure or postponement until it is settled.
type Attempt struct {
	Failures
	State  int64 // AttemptWaiting, AttemptReserved or AttemptRunning
	Most   int64 // the largest group that it may be given out in, 0: any
	Group  int64 // events in the delivery that it is in flight in
	Number int64 // of that delivery
	Resent int64 // 1: it is a dead letter that was sent back; its failures are in retries
}

// The states of an attempt. Only what was durably running counts as an attempt when its
// user is killed.
const (
	AttemptWaiting  = 0 // it is not out
	AttemptReserved = 1 // it may have been begun
	AttemptRunning  = 2
)

func (a *Attempt) walk(w *rec.Walk) {
	a.Failures.walk(w)
	w.Int(11, &a.State)
	w.Int(12, &a.Most)
	w.Int(13, &a.Group)
	w.Int(14, &a.Number)
	w.Int(15, &a.Resent)
}

// Void reports whether nothing is worth keeping of it.
func (a *Attempt) Void() bool {
	return a.State == AttemptWaiting && a.Most == 0 && a.FirstAt.IsZero() && a.NextAt.IsZero()
}

// Encode returns the record for key.
func (a *Attempt) Encode(key []byte) []byte { return rec.Encode(key, a.walk) }

// DecodeAttempt reads a record; ErrCorrupt if it is not valid.
func DecodeAttempt(key, value []byte) (a Attempt, err error) {
	return a, decode("attempt %x", key, value, a.walk)
}
