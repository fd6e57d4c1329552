package store

import (
	"encoding/binary"
	"fmt"
	"time"

	"thread/internal/store/rec"
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

	History []Failure // counted attempts, the newest MaxHistory of them, in their order

	Round     int64 // of Attempts, those since the start or the latest retry
	Deferrals int64 // EX_TEMPFAIL in a row
}

// Failure is one failed attempt. Its record consists of fields.
type Failure struct {
	At       time.Time
	ExitCode int64
	Error    string
}

// MaxHistory bounds Failures.History.
const MaxHistory = 20

func (f *Failure) walk(w *rec.Walk) {
	w.Time(1, &f.At)
	w.Int(2, &f.ExitCode)
	w.Text(3, &f.Error)
}

func (f *Failures) walk(w *rec.Walk) {
	w.Int(1, &f.Attempts)
	w.Int(2, &f.Round)
	w.Int(3, &f.Deferrals)
	w.Int(4, &f.ExitCode)
	w.Text(5, &f.FirstError)
	w.Text(6, &f.LastError)
	w.Time(7, &f.FirstAt)
	w.Time(8, &f.LastAt)
	w.Time(9, &f.NextAt)
	w.Time(10, &f.DiedAt)
	rec.List(w, 16, &f.History, (*Failure).walk) // 11 to 15 are of Attempt
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
func (f *Failures) EncodeLetter(key []byte) []byte { return rec.Encode(key, f.walk) }

// DecodeLetter reads a record of a dead letter; ErrCorrupt if it is not valid.
func DecodeLetter(key, value []byte) (f Failures, err error) {
	return f, decode("letter %x", key, value, f.walk)
}

// decode reads a record. The error names it by its key.
func decode(name string, key, value []byte, walk func(*rec.Walk)) error {
	if err := rec.Decode(key, value, walk); err != nil {
		return fmt.Errorf("%w: "+name+": %w", ErrCorrupt, key, err)
	}
	return nil
}
