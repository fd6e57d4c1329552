package event

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// AppendJSON appends the JSON form of e to dst, without a newline. Bytes that
// are not valid UTF-8, which only an imported event can hold, are written as
// U+FFFD each, because JSON cannot carry them.
func (e *Event) AppendJSON(dst []byte) []byte {
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
	dst = append(dst, `,"content":`...)
	dst = AppendString(dst, e.Content)
	return append(dst, '}')
}

// MarshalJSON is AppendJSON for encoding/json.
func (e Event) MarshalJSON() ([]byte, error) { return e.AppendJSON(nil), nil }

// AppendString appends s as a JSON string, quotes included, escaped as
// JavaScript's JSON.stringify does: only what JSON requires, so that '<', '/',
// U+2028 and all non-ASCII text stay as they are (contract T-25).
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
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
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

// plain8 reports whether the first 8 bytes of s are ASCII that needs no escape.
// It looks at all of them at once: a byte that is below 0x20, or equal to '"' or
// '\\', borrows from its top bit, and so may one above such a byte, which only
// costs a closer look.
func plain8[T string | []byte](s T) bool {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	w := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
	return (w|(w-0x20*ones)|((w^'"'*ones)-ones)|((w^'\\'*ones)-ones))&tops == 0
}

// ParseDraft reads one line of a batch: a JSON object with non-empty text
// source and type, content, and optionally subtype and dedupe_key. Other keys are ignored and
// of a repeated key the last counts, so that events.jsonl can be pushed again.
// Content that is not a string is kept as its compact JSON. The draft is
// validated, and does not alias line. Every error wraps ErrInvalid. Contract
// T-31, T-33.
func ParseDraft(line []byte) (Draft, error) {
	var d Draft
	switch {
	case !utf8.Valid(line):
		return d, fmt.Errorf("%w: not valid UTF-8", ErrInvalid)
	case !validJSON(line):
		return d, fmt.Errorf("%w: not valid JSON", ErrInvalid)
	}
	var source, typ, subtype, content, dedupeKey []byte
	rest := bytes.TrimLeft(line, " \t\r\n")
	if rest[0] != '{' {
		return d, fmt.Errorf("%w: not a JSON object", ErrInvalid)
	}
	// validJSON has checked the syntax, so the walk only has to find the ends.
	for rest = skipSpace(rest[1:]); rest[0] != '}'; {
		key, value, tail := nextMember(rest)
		name, err := decodeString(key)
		if err != nil {
			return d, err
		}
		switch name {
		case "source":
			source = value
		case "type":
			typ = value
		case "subtype":
			subtype = value
		case "content":
			content = value
		case "dedupe_key":
			dedupeKey = value
		}
		rest = tail
	}
	var err error
	if d.Source, err = textMember("source", source); err != nil {
		return d, err
	}
	if d.Type, err = textMember("type", typ); err != nil {
		return d, err
	}
	if subtype != nil && subtype[0] != 'n' {
		s, err := textMember("subtype", subtype)
		if err != nil {
			return d, err
		}
		d.Subtype = &s
	}
	if dedupeKey != nil && dedupeKey[0] != 'n' {
		if d.DedupeKey, err = textMember("dedupe_key", dedupeKey); err != nil {
			return d, err
		}
		if d.DedupeKey == "" {
			return d, fmt.Errorf("%w: dedupe_key is empty", ErrInvalid)
		}
	}
	switch {
	case content == nil || content[0] == 'n':
		return d, fmt.Errorf("%w: content is missing", ErrInvalid)
	case content[0] == '"':
		if d.Content, err = decodeString(content); err != nil {
			return d, err
		}
	default:
		var buf bytes.Buffer
		if err := json.Compact(&buf, content); err != nil {
			return d, fmt.Errorf("%w: content: %w", ErrInvalid, err)
		}
		d.Content = buf.String()
	}
	return d, d.Validate()
}

func textMember(name string, value []byte) (string, error) {
	if value == nil || value[0] == 'n' {
		return "", fmt.Errorf("%w: %s is missing", ErrInvalid, name)
	}
	if value[0] != '"' {
		return "", fmt.Errorf("%w: %s is not a string", ErrInvalid, name)
	}
	return decodeString(value)
}

// nextMember splits `"key" : value , …` and returns what follows the comma, or
// the closing brace.
func nextMember(b []byte) (key, value, rest []byte) {
	n := stringEnd(b)
	key, b = b[:n], skipSpace(b[n:])
	b = skipSpace(b[1:]) // the colon
	n = valueEnd(b)
	value, b = b[:n], skipSpace(b[n:])
	if b[0] == ',' {
		b = skipSpace(b[1:])
	}
	return key, value, b
}

func skipSpace(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t' || b[0] == '\n' || b[0] == '\r') {
		b = b[1:]
	}
	return b
}

// stringEnd returns the length of the JSON string that b starts with.
func stringEnd(b []byte) int {
	for i := 1; ; i++ {
		for len(b)-i >= 8 && plain8(b[i:]) {
			i += 8
		}
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
}

// valueEnd returns the length of the JSON value that b starts with.
func valueEnd(b []byte) int {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			i += stringEnd(b[i:]) - 1
			if depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i // the end of the object around a bare literal
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return i
			}
		}
	}
	return len(b)
}

// decodeString returns the text of a valid JSON string. A \u escape that is
// half of a surrogate pair is refused: encoding/json would replace it silently.
func decodeString(raw []byte) (string, error) {
	text := raw[1 : len(raw)-1]
	i := bytes.IndexByte(text, '\\')
	if i < 0 {
		return string(text), nil
	}
	plain := make([]byte, 0, len(text))
	for ; i >= 0; i = bytes.IndexByte(text, '\\') {
		c := text[i+1]
		switch c {
		case 'u':
			return decodeUnicode(raw)
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		}
		plain = append(append(plain, text[:i]...), c)
		text = text[i+2:]
	}
	return string(append(plain, text...)), nil
}

func decodeUnicode(raw []byte) (string, error) {
	if hasLoneSurrogate(raw) {
		return "", fmt.Errorf("%w: half of a surrogate pair in a \\u escape", ErrInvalid)
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return s, nil
}

func hasLoneSurrogate(raw []byte) bool {
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		i++
		if raw[i] != 'u' {
			continue
		}
		u := escapedUnit(raw[i+1:])
		i += 4
		if u < 0xD800 || u > 0xDFFF {
			continue
		}
		if u >= 0xDC00 || i+2 >= len(raw) || raw[i+1] != '\\' || raw[i+2] != 'u' {
			return true
		}
		if low := escapedUnit(raw[i+3:]); low < 0xDC00 || low > 0xDFFF {
			return true
		}
		i += 6
	}
	return false
}

func escapedUnit(hex []byte) uint64 {
	u, _ := strconv.ParseUint(string(hex[:4]), 16, 32) // validJSON saw four hex digits
	return u
}
