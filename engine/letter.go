package engine

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"thread/internal/redact"
	"thread/internal/store"
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
	// History has the newest MaxHistory of the counted attempts, in their order. Attempts
	// of before a program with this field are not in it.
	History []Failure
}

// Failure is one counted attempt that failed.
type Failure struct {
	At       time.Time
	ExitCode int64  // -1 when there was no exit code
	Error    string // at most MaxHistoryBytes bytes of text
}

// Bounds of Failures.History.
const (
	MaxHistory      = store.MaxHistory
	MaxHistoryBytes = 256
)

// MaxErrorBytes bounds the text of an error that is kept with an event.
const MaxErrorBytes = 1024

// failures is f without what is the engine's own business.
func failures(f *store.Failures) Failures {
	out := Failures{
		Attempts: f.Attempts, ExitCode: f.ExitCode, FirstError: f.FirstError, LastError: f.LastError,
		FirstAt: f.FirstAt, LastAt: f.LastAt, NextAt: f.NextAt, DiedAt: f.DiedAt,
	}
	for _, h := range f.History {
		out.History = append(out.History, Failure(h))
	}
	return out
}

// fail notes one more failure at now.
func fail(l *store.Failures, r Result, now time.Time, counted bool) {
	// A replacement is longer than what it replaces: the bound comes last, and
	// before it only to spare the work.
	text := cutText(strings.ToValidUTF8(redact.Text(cutText(r.Error, 2*MaxErrorBytes)), "\uFFFD"), MaxErrorBytes)
	if l.FirstAt.IsZero() {
		l.FirstAt, l.FirstError = now, text
	}
	l.LastAt, l.LastError, l.ExitCode, l.NextAt = now, text, r.ExitCode, time.Time{}
	if counted {
		l.Attempts++
		l.Round++
		l.Deferrals = 0
		// A new slice: the caller's copy of l may share the old one.
		l.History = append(slices.Clone(l.History), store.Failure{At: now, ExitCode: r.ExitCode, Error: cutText(text, MaxHistoryBytes)})
		l.History = l.History[max(0, len(l.History)-MaxHistory):]
	} else {
		l.Deferrals++
	}
}

// cutText returns the start of s, at most that many bytes, without the half of a
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
	return s[:most] // it is not UTF-8
}

// putLetter stores a dead letter in one of its tables.
func (tx *Tx) putLetter(t store.Table, consumer string, id int64, l *store.Failures) error {
	key := store.LetterKey(consumer, id)
	return tx.s.Put(t, key, l.EncodeLetter(key))
}
