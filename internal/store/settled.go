package store

import (
	"encoding/binary"
	"fmt"

	"thread/index"
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

// Attempt is what is known of a single event of a consumer whose deliveries are out
// side by side. Table attempts, by [LetterKey]: the fields of Failures, those below,
// and a crc of 4 bytes. An event has a record while it is out, and from its first
// failure or postponement until it is settled.
type Attempt struct {
	Failures
	State  int64 // AttemptWaiting, AttemptReserved or AttemptRunning
	Most   int64 // the largest group that it may be given out in, 0: any
	Group  int64 // events in the delivery that it is out in
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

const (
	fieldState  = 11
	fieldMost   = 12
	fieldGroup  = 13
	fieldOut    = 14
	fieldResent = 15
)

func (a *Attempt) numbers() [fieldResent + 1]*int64 {
	return [...]*int64{fieldState: &a.State, fieldMost: &a.Most, fieldGroup: &a.Group, fieldOut: &a.Number, fieldResent: &a.Resent}
}

// Void reports whether nothing is worth keeping of it.
func (a *Attempt) Void() bool {
	return a.State == AttemptWaiting && a.Most == 0 && a.FirstAt.IsZero() && a.NextAt.IsZero()
}

// Encode returns the record for key.
func (a *Attempt) Encode(key []byte) []byte {
	b := a.append(nil)
	for tag, n := range a.numbers() {
		if n != nil {
			b = appendNumber(b, uint64(tag), *n)
		}
	}
	return index.AppendSum(b, key)
}

// DecodeAttempt reads a record; ErrCorrupt if it is not valid.
func DecodeAttempt(key, value []byte) (a Attempt, err error) {
	b, ok := index.CheckSum(key, value)
	if !ok {
		return a, fmt.Errorf("%w: attempt %x", ErrCorrupt, key)
	}
	if a.Failures, err = decodeFailures(b); err != nil {
		return a, err
	}
	numbers := a.numbers()
	return a, eachField(b, func(tag uint64, v []byte) (err error) {
		if tag < uint64(len(numbers)) && numbers[tag] != nil {
			*numbers[tag], err = number(v)
		}
		return err
	})
}
