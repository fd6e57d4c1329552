package store

import (
	"encoding/binary"
	"fmt"
	"time"

	"thread/index"
)

// Failures is what is known of a consumer's failed attempts at one event.
//
// Its record is valid if and only if it consists of fields; in the tables dead and
// retries, by [LetterKey], a crc of 4 bytes follows.
type Failures struct {
	Attempts   int64  // that were counted, those before a retry of the dead letter included
	ExitCode   int64  // of the latest failure, -1 when there was no exit code
	FirstError string // at most engine.MaxErrorBytes bytes of text
	LastError  string
	FirstAt    time.Time // zero: never failed
	LastAt     time.Time
	NextAt     time.Time // not to be tried before, zero: now
	DiedAt     time.Time // when it became a dead letter, zero: it is none

	Round     int64 // of Attempts, those since the start or the latest retry
	Deferrals int64 // EX_TEMPFAIL in a row
}

const (
	fieldAttempts   = 1
	fieldRound      = 2
	fieldDeferrals  = 3
	fieldExitCode   = 4
	fieldFirstError = 5
	fieldLastError  = 6
	fieldFirstAt    = 7
	fieldLastAt     = 8
	fieldNextAt     = 9
	fieldDiedAt     = 10
)

func (f *Failures) append(b []byte) []byte {
	b = appendNumber(b, fieldAttempts, f.Attempts)
	b = appendNumber(b, fieldRound, f.Round)
	b = appendNumber(b, fieldDeferrals, f.Deferrals)
	b = appendNumber(b, fieldExitCode, f.ExitCode)
	if f.FirstError != "" {
		b = appendField(b, fieldFirstError, f.FirstError)
	}
	if f.LastError != "" {
		b = appendField(b, fieldLastError, f.LastError)
	}
	b = appendTime(b, fieldFirstAt, f.FirstAt)
	b = appendTime(b, fieldLastAt, f.LastAt)
	b = appendTime(b, fieldNextAt, f.NextAt)
	return appendTime(b, fieldDiedAt, f.DiedAt)
}

func decodeFailures(b []byte) (f Failures, err error) {
	err = eachField(b, func(tag uint64, v []byte) error {
		switch tag {
		case fieldFirstError:
			f.FirstError = string(v)
			return nil
		case fieldLastError:
			f.LastError = string(v)
			return nil
		}
		if tag > fieldDiedAt {
			return nil // of a newer version
		}
		n, err := number(v)
		switch at := time.UnixMilli(n); tag {
		case fieldAttempts:
			f.Attempts = n
		case fieldRound:
			f.Round = n
		case fieldDeferrals:
			f.Deferrals = n
		case fieldExitCode:
			f.ExitCode = n
		case fieldFirstAt:
			f.FirstAt = at
		case fieldLastAt:
			f.LastAt = at
		case fieldNextAt:
			f.NextAt = at
		case fieldDiedAt:
			f.DiedAt = at
		}
		return err
	})
	return f, err
}

// LetterKey is the key of a dead letter: all of a consumer lie together, in the order
// of their ids. It is 'c', the length of the consumer's id in 2 bytes, that id, and the
// event's id in 8 bytes.
func LetterKey(consumer string, id int64) []byte {
	return binary.BigEndian.AppendUint64(LetterPrefix(consumer), uint64(id))
}

// LetterPrefix is what the keys of a consumer's dead letters begin with.
func LetterPrefix(consumer string) []byte {
	b := binary.BigEndian.AppendUint16([]byte{'c'}, uint16(len(consumer)))
	return append(b, consumer...)
}

// SplitLetterKey is the inverse of LetterKey; ErrCorrupt if k is none.
func SplitLetterKey(k []byte) (consumer string, id int64, err error) {
	if len(k) < 3+8 || k[0] != 'c' || int(binary.BigEndian.Uint16(k[1:])) != len(k)-3-8 {
		return "", 0, fmt.Errorf("%w: key %x of a letter", ErrCorrupt, k)
	}
	return string(k[3 : len(k)-8]), int64(binary.BigEndian.Uint64(k[len(k)-8:])), nil
}

// EncodeLetter returns the record of a dead letter for key.
func (f *Failures) EncodeLetter(key []byte) []byte { return index.AppendSum(f.append(nil), key) }

// DecodeLetter reads a record of a dead letter; ErrCorrupt if it is not valid.
func DecodeLetter(key, value []byte) (Failures, error) {
	b, ok := index.CheckSum(key, value)
	if !ok {
		return Failures{}, fmt.Errorf("%w: letter %x", ErrCorrupt, key)
	}
	return decodeFailures(b)
}
