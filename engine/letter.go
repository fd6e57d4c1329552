package engine

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"go.etcd.io/bbolt"

	"thread/event"
	"thread/index"
)

// Failures is what is known of a consumer's failed attempts at one event.
type Failures struct {
	// Attempts is how many attempts were counted, those before a retry of the dead
	// letter included. EX_TEMPFAIL does not count.
	Attempts   int64
	ExitCode   int64  // of the latest failure, -1 when there was no exit code
	FirstError string // at most MaxErrorBytes bytes of text
	LastError  string
	FirstAt    time.Time // zero: never failed
	LastAt     time.Time
	NextAt     time.Time // not to be tried before, zero: now
	DiedAt     time.Time // when it became a dead letter, zero: it is none

	round     int64 // of Attempts, those since the start or the latest retry
	deferrals int64 // EX_TEMPFAIL in a row
}

// MaxErrorBytes bounds the text of an error that is kept with an event.
const MaxErrorBytes = 1024

// The record of Failures is valid if and only if it consists of fields in the
// form of a subscription record; in the buckets dead and retries a crc of 4 bytes
// follows. Numbers and times have 8 bytes, times are milliseconds since 1970. A
// field that is missing is 0 or empty.
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

func appendNumber(b []byte, tag uint64, n int64) []byte {
	if n == 0 {
		return b
	}
	return appendField(b, tag, uint64Text(uint64(n)))
}

func appendTime(b []byte, tag uint64, t time.Time) []byte {
	if t.IsZero() {
		return b
	}
	return appendNumber(b, tag, t.UnixMilli())
}

func (l *Failures) append(b []byte) []byte {
	b = appendNumber(b, fieldAttempts, l.Attempts)
	b = appendNumber(b, fieldRound, l.round)
	b = appendNumber(b, fieldDeferrals, l.deferrals)
	b = appendNumber(b, fieldExitCode, l.ExitCode)
	if l.FirstError != "" {
		b = appendField(b, fieldFirstError, l.FirstError)
	}
	if l.LastError != "" {
		b = appendField(b, fieldLastError, l.LastError)
	}
	b = appendTime(b, fieldFirstAt, l.FirstAt)
	b = appendTime(b, fieldLastAt, l.LastAt)
	b = appendTime(b, fieldNextAt, l.NextAt)
	return appendTime(b, fieldDiedAt, l.DiedAt)
}

func decodeFailures(b []byte) (l Failures, err error) {
	err = eachField(b, func(tag uint64, v []byte) error {
		switch tag {
		case fieldFirstError:
			l.FirstError = string(v)
			return nil
		case fieldLastError:
			l.LastError = string(v)
			return nil
		}
		if tag > fieldDiedAt {
			return nil // of a newer version
		}
		n, err := number(v)
		switch at := time.UnixMilli(n); tag {
		case fieldAttempts:
			l.Attempts = n
		case fieldRound:
			l.round = n
		case fieldDeferrals:
			l.deferrals = n
		case fieldExitCode:
			l.ExitCode = n
		case fieldFirstAt:
			l.FirstAt = at
		case fieldLastAt:
			l.LastAt = at
		case fieldNextAt:
			l.NextAt = at
		case fieldDiedAt:
			l.DiedAt = at
		}
		return err
	})
	return l, err
}

func number(v []byte) (int64, error) {
	if len(v) != 8 {
		return 0, fmt.Errorf("%w: a number of %d bytes", ErrCorrupt, len(v))
	}
	return int64(binary.BigEndian.Uint64(v)), nil
}

// eachField calls fn for the fields of a record without its crc.
func eachField(b []byte, fn func(tag uint64, v []byte) error) error {
	for len(b) > 0 {
		tag, w := binary.Uvarint(b)
		if w <= 0 {
			return fmt.Errorf("%w: fields", ErrCorrupt)
		}
		n, w2 := binary.Uvarint(b[w:])
		if w2 <= 0 || n > uint64(len(b)-w-w2) {
			return fmt.Errorf("%w: fields", ErrCorrupt)
		}
		if err := fn(tag, b[w+w2:w+w2+int(n)]); err != nil {
			return err
		}
		b = b[w+w2+int(n):]
	}
	return nil
}

// fail notes one more failure at now.
func (l *Failures) fail(r Result, now time.Time, counted bool) {
	// A replacement is longer than what it replaces: the bound comes last, and
	// before it only to spare the work.
	text := cutText(strings.ToValidUTF8(cutText(r.Error, 2*MaxErrorBytes), "\uFFFD"), MaxErrorBytes)
	if l.FirstAt.IsZero() {
		l.FirstAt, l.FirstError = now, text
	}
	l.LastAt, l.LastError, l.ExitCode, l.NextAt = now, text, r.ExitCode, time.Time{}
	if counted {
		l.Attempts++
		l.round++
		l.deferrals = 0
	} else {
		l.deferrals++
	}
}

// cutText returns the start of s, at most so many bytes, without the half of a
// character at its end.
func cutText(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for n := most; n > most-utf8.UTFMax; n-- {
		if utf8.RuneStart(s[n]) {
			return s[:n]
		}
	}
	return s[:most] // it is no UTF-8
}

// letterKey is the key in the buckets dead and retries: all letters of a
// consumer lie together, in the order of their ids.
func letterKey(consumer string, id int64) []byte {
	return binary.BigEndian.AppendUint64(letterPrefix(consumer), uint64(id))
}

func letterPrefix(consumer string) []byte {
	b := binary.BigEndian.AppendUint16([]byte{'c'}, uint16(len(consumer)))
	return append(b, consumer...)
}

// splitLetterKey is the inverse of letterKey.
func splitLetterKey(k []byte) (consumer string, id int64, err error) {
	if len(k) < 3+8 || k[0] != 'c' || int(binary.BigEndian.Uint16(k[1:])) != len(k)-3-8 {
		return "", 0, fmt.Errorf("%w: key %x of a letter", ErrCorrupt, k)
	}
	return string(k[3 : len(k)-8]), int64(binary.BigEndian.Uint64(k[len(k)-8:])), nil
}

func putLetter(b *bbolt.Bucket, consumer string, id int64, l *Failures) error {
	key := letterKey(consumer, id)
	return index.Put(b, key, index.AppendSum(l.append(nil), key))
}

func decodeLetter(key, value []byte) (Failures, error) {
	b, ok := index.CheckSum(key, value)
	if !ok {
		return Failures{}, fmt.Errorf("%w: letter %x", ErrCorrupt, key)
	}
	return decodeFailures(b)
}

// later returns the bucket of that name, which databases have since their first
// use of it. In a read transaction it may be nil.
func (tx *Tx) later(name []byte) (*bbolt.Bucket, error) {
	if b, err := index.Bucket(tx.b, name); b != nil || err != nil || !tx.b.Writable() {
		return b, err
	}
	return tx.b.CreateBucket(name)
}

// event returns the event with that id, and whether it is stored. Its content is
// a copy.
func (tx *Tx) event(id int64) (e event.Event, ok bool, err error) {
	c, found, err := tx.record(id)
	if !found || err != nil {
		return event.Event{ID: id}, false, err
	}
	err = tx.fill(&e, id, &c.rec)
	if !c.rec.pieces {
		e.Content = strings.Clone(e.Content)
	}
	return e, err == nil, err
}
