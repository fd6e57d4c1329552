package event

import (
	"io"
	"strconv"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// AppendJSON appends the JSON form of e to dst, without a newline. Bytes that
// are not valid UTF-8, which only an imported event can hold, are written as
// U+FFFD each, because JSON cannot carry them.
func (e *Event) AppendJSON(dst []byte) []byte {
	dst = appendEscaped(e.appendBeforeContent(dst), e.Content)
	return append(dst, `"}`...)
}

// appendBeforeContent appends the JSON form up to the text of the content.
func (e *Event) appendBeforeContent(dst []byte) []byte {
	dst = append(dst, `{"id":`...)
	dst = strconv.AppendInt(dst, e.ID, 10)
	dst = append(dst, `,"created_at":`...)
	dst = AppendString(dst, e.CreatedAt)
	dst = append(dst, `,"source":`...)
	dst = AppendString(dst, e.Source)
	dst = append(dst, `,"type":`...)
	dst = AppendString(dst, e.Type)
	dst = append(dst, `,"subtype":`...)
	if e.Subtype == nil {
		dst = append(dst, "null"...)
	} else {
		dst = AppendString(dst, *e.Subtype)
	}
	return append(dst, `,"content":"`...)
}

// linePieceBytes is how much content is escaped at a time.
const linePieceBytes = 32 << 10

// WriteJSON writes what [Event.AppendJSON] appends, a large content in pieces: the
// JSON form of one of 64 MiB can be six times as long. Buf is scratch space; it is
// returned, grown, for the next call.
func (e *Event) WriteJSON(w io.Writer, buf []byte) ([]byte, error) { return e.write(w, buf, `"}`) }

// WriteLine is [Event.WriteJSON] with a newline.
func (e *Event) WriteLine(w io.Writer, buf []byte) ([]byte, error) { return e.write(w, buf, "\"}\n") }

func (e *Event) write(w io.Writer, buf []byte, end string) ([]byte, error) {
	buf = e.appendBeforeContent(buf[:0])
	rest := e.Content
	for len(rest) > linePieceBytes {
		n := pieceEnd(rest)
		buf = appendEscaped(buf, rest[:n])
		rest = rest[n:]
		if _, err := w.Write(buf); err != nil {
			return buf, err
		}
		buf = buf[:0]
	}
	buf = append(appendEscaped(buf, rest), end...)
	_, err := w.Write(buf)
	return buf, err
}

// pieceEnd returns where to cut s, so that no character is cut.
func pieceEnd(s string) int {
	for n := linePieceBytes; n > linePieceBytes-utf8.UTFMax; n-- {
		if utf8.RuneStart(s[n]) {
			return n
		}
	}
	return linePieceBytes // not valid UTF-8, whichever way it is cut
}

// LineLen returns how many bytes [Event.WriteLine] writes.
func (e *Event) LineLen() int {
	var n lengthWriter
	if _, err := e.WriteLine(&n, make([]byte, 0, linePieceBytes)); err != nil {
		panic(err)
	}
	return int(n)
}

type lengthWriter int

func (n *lengthWriter) Write(b []byte) (int, error) {
	*n += lengthWriter(len(b))
	return len(b), nil
}

// MarshalJSON is [Event.AppendJSON] for encoding/json.
func (e Event) MarshalJSON() ([]byte, error) { return e.AppendJSON(nil), nil }

// AppendString appends s as a JSON string, quotes included, escaped as
// JavaScript's JSON.stringify does: only what JSON requires, so that '<', '/',
// U+2028 and all non-ASCII text stay as they are (T-25).
func AppendString(dst []byte, s string) []byte {
	return append(appendEscaped(append(dst, '"'), s), '"')
}

// appendEscaped is AppendString without the quotes.
func appendEscaped(dst []byte, s string) []byte {
	start := 0
	for i := 0; i < len(s); {
		if len(s)-i >= 8 && plain8(s[i:]) {
			i += 8
			continue
		}
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				dst = append(dst, s[start:i]...)
				dst = append(dst, "\uFFFD"...)
				start = i + 1
			}
			i += size
			continue
		}
		dst = append(dst, s[start:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\f':
			dst = append(dst, '\\', 'f')
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		start = i
	}
	return append(dst, s[start:]...)
}

// plain8 reports whether the first 8 bytes of s are ASCII that needs no escape.
// It looks at all of them at once: a byte that is below 0x20, or equal to '"' or
// '\\', borrows from its top bit, and so may the byte above it, which only
// costs a closer look.
func plain8[T string | []byte](s T) bool {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	w := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
	return (w|(w-0x20*ones)|((w^'"'*ones)-ones)|((w^'\\'*ones)-ones))&tops == 0
}
