// Package event defines the event, the limits of its fields, and its one JSON
// form. It depends on nothing else in this module.
//
// # JSON form
//
// One line of compact JSON with the keys in this order (T-24, T-25, T-38):
//
//	{"id":7,"created_at":"2026-03-18T10:30:00.123Z","source":"self","type":"record","subtype":null,"content":"…"}
//
// Content is always a string and is never parsed. Text is written raw except
// for the quote, the backslash and the control characters U+0000 to U+001F.
package event

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// The bounds of the fields, in bytes (T-29).
const (
	MaxNameBytes    = 4096     // source, type, subtype, and a consumer's id
	MaxContentBytes = 64 << 20 // content
)

// TimeLayout is the form of created_at that this program writes: UTC with
// milliseconds, always 24 bytes.
const TimeLayout = "2006-01-02T15:04:05.000Z"

// Event is one stored event.
type Event struct {
	// ID rises by one with every push, starting at 1, and is never reused.
	ID int64
	// CreatedAt is in TimeLayout for pushed events. An imported event keeps
	// the text it came with.
	CreatedAt string
	Source    string // who sent it, never empty when pushed
	Type      string // what it is, never empty when pushed
	// Subtype is nil when the event has none, which is not the same as "".
	Subtype *string
	// Content is the payload, opaque to this program.
	Content string
}

// Draft is an event that is not stored yet: it has neither id nor time.
type Draft struct {
	Source, Type string
	Subtype      *string // nil: none
	Content      string
	// DedupeKey makes the draft the same event as an earlier one with this key: it
	// is then not stored again. At most MaxNameBytes; "" for none.
	DedupeKey string
	// DedupeWindow is how long the key counts, and how old the earlier event may
	// be; 0 for DefaultDedupeWindow.
	DedupeWindow time.Duration
}

// DefaultDedupeWindow is how long a dedupe key counts unless a draft says
// otherwise.
const DefaultDedupeWindow = 24 * time.Hour

// Text returns a pointer to s, for Draft.Subtype.
func Text(s string) *string { return &s }

// ErrInvalid is wrapped by every error of Validate and ParseDraft.
var ErrInvalid = errors.New("invalid event")

// ErrNotText is wrapped, and wraps [ErrInvalid], where text is not valid UTF-8.
var ErrNotText error = notText{}

type notText struct{}

func (notText) Error() string { return ErrInvalid.Error() }
func (notText) Unwrap() error { return ErrInvalid }

// Validate reports the first thing that keeps d from being stored: an empty source or
// type, a field over its bound, or text that is not valid UTF-8. The error wraps
// [ErrInvalid].
func (d *Draft) Validate() error {
	if d.Source == "" {
		return fmt.Errorf("%w: source is empty", ErrInvalid)
	}
	if d.Type == "" {
		return fmt.Errorf("%w: type is empty", ErrInvalid)
	}
	if err := checkText("source", d.Source, MaxNameBytes); err != nil {
		return err
	}
	if err := checkText("type", d.Type, MaxNameBytes); err != nil {
		return err
	}
	if d.Subtype != nil {
		if err := checkText("subtype", *d.Subtype, MaxNameBytes); err != nil {
			return err
		}
	}
	if d.DedupeWindow < 0 {
		return fmt.Errorf("%w: dedupe window is negative", ErrInvalid)
	}
	if err := checkText("dedupe_key", d.DedupeKey, MaxNameBytes); err != nil {
		return err
	}
	return checkText("content", d.Content, MaxContentBytes)
}

func checkText(field, s string, maxBytes int) error {
	if len(s) > maxBytes {
		return fmt.Errorf("%w: %s is %d bytes long, the limit is %d", ErrInvalid, field, len(s), maxBytes)
	}
	if !utf8.ValidString(s) {
		return fmt.Errorf("%w: %s is not valid UTF-8", ErrNotText, field)
	}
	return nil
}

// ToValidUTF8 puts U+FFFD in the place of each byte of source, type, subtype and
// content that is not valid UTF-8, and returns how many there were. The caller
// decides whether to call it: drafts that are not valid are refused everywhere. A
// dedupe key is a name and stays as it is.
func (d *Draft) ToValidUTF8() (replaced int) {
	fields := []*string{&d.Source, &d.Type, &d.Content}
	if d.Subtype != nil {
		d.Subtype = Text(*d.Subtype) // the caller's text stays
		fields = append(fields, d.Subtype)
	}
	for _, f := range fields {
		s, n := toValidUTF8(*f)
		*f, replaced = s, replaced+n
	}
	return replaced
}

func toValidUTF8(s string) (valid string, replaced int) {
	if utf8.ValidString(s) {
		return s, 0
	}
	b := make([]byte, 0, len(s)+2) // for one; more make it grow
	for i, r := range s {
		if r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD") {
			replaced++
		}
		b = utf8.AppendRune(b, r)
	}
	return string(b), replaced
}

// FormatTime returns t as created_at text, in UTC, cut to milliseconds.
func FormatTime(t time.Time) string { return string(AppendTime(nil, t.UnixMilli())) }

// AppendTime appends the created_at text of ms milliseconds since 1970 to dst.
// Years outside 0000 to 9999 do not have this form; see ParseTime.
func AppendTime(dst []byte, ms int64) []byte {
	t := time.UnixMilli(ms).UTC()
	year, month, day := t.Date()
	if year < 0 || year > 9999 {
		return t.AppendFormat(dst, TimeLayout)
	}
	// A scan does this for every event, and the layout costs ten times as much.
	hour, minute, second := t.Clock()
	dst = appendDigits(appendDigits(dst, year/100), year%100)
	dst = appendDigits(append(dst, '-'), int(month))
	dst = appendDigits(append(dst, '-'), day)
	dst = appendDigits(append(dst, 'T'), hour)
	dst = appendDigits(append(dst, ':'), minute)
	dst = appendDigits(append(dst, ':'), second)
	milli := t.Nanosecond() / 1e6
	dst = append(dst, '.', '0'+byte(milli/100))
	return append(appendDigits(dst, milli%100), 'Z')
}

// appendDigits appends n, from 0 to 99, in two digits.
func appendDigits(dst []byte, n int) []byte { return append(dst, '0'+byte(n/10), '0'+byte(n%10)) }

// ParseTime returns the milliseconds since 1970 of created_at text, and whether the
// text is exactly what [AppendTime] writes for them. Other text is kept verbatim by
// the engine.
func ParseTime(s string) (ms int64, exact bool) {
	if len(s) != len(TimeLayout) {
		return 0, false
	}
	t, err := time.Parse(TimeLayout, s)
	if err != nil {
		return 0, false
	}
	ms = t.UnixMilli()
	var buf [len(TimeLayout)]byte
	return ms, string(AppendTime(buf[:0], ms)) == s
}
