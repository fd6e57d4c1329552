package event

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"thread/internal/similar"
)

// ParseDraft reads one line of a batch: a JSON object with non-empty text source and
// type, content, and optionally subtype and dedupe_key. id and created_at are ignored,
// so that events.jsonl can be pushed again, other keys are refused, and of a repeated
// key the last counts. A number
// as source, type or subtype is taken as its text, as it is written; content that is
// not a string is kept as its compact JSON. The draft is validated, and does not
// alias line. Every error wraps [ErrInvalid], and the error of text that is not valid
// [ErrNotText].
func ParseDraft(line []byte) (Draft, error) {
	p := draftParser{strict: true}
	return p.parse(line)
}

// ParseDraftLossy is [ParseDraft] for clients that cut texts anywhere: bytes that are
// not valid UTF-8, and a \u escape that is half of a surrogate pair, become U+FFFD
// each, as other readers of JSON have it, and are counted. A dedupe key is a name:
// changed, it could be another one's, so it is refused as by ParseDraft.
func ParseDraftLossy(line []byte) (d Draft, replaced int, err error) {
	var p draftParser
	d, err = p.parse(line)
	return d, p.replaced, err
}

// draftMembers are the members of a line. It is a function because a list at package
// level would be built at every start of the program.
func draftMembers() []string {
	return []string{"source", "type", "subtype", "content", "dedupe_key"}
}

type draftParser struct {
	strict   bool // refuse text that is not valid
	replaced int
}

func (p *draftParser) parse(line []byte) (d Draft, err error) {
	if !validJSON(line) {
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
		switch name, _ := decodeString(key); name {
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
		case "id", "created_at": // of an event that is pushed again
		case "outbox":
			return d, fmt.Errorf("%w: the member \"outbox\" is read by thread outbox push", ErrInvalid)
		default:
			return d, fmt.Errorf("%w: %s", ErrInvalid, similar.Unknown("member", name, draftMembers()))
		}
		rest = tail
	}
	if d.Source, err = p.name("source", source); err != nil {
		return d, err
	}
	if d.Type, err = p.name("type", typ); err != nil {
		return d, err
	}
	if !isNull(subtype) {
		s, err := p.name("subtype", subtype)
		if err != nil {
			return d, err
		}
		d.Subtype = &s
	}
	if !isNull(dedupeKey) {
		strict := draftParser{strict: true}
		if d.DedupeKey, err = strict.text("dedupe_key", dedupeKey); err != nil {
			return d, err
		}
		if d.DedupeKey == "" {
			return d, fmt.Errorf("%w: dedupe_key is empty", ErrInvalid)
		}
	}
	if d.Content, err = p.content(content); err != nil {
		return d, err
	}
	return d, d.Validate()
}

// isNull reports whether a member is missing or null.
func isNull(value []byte) bool { return value == nil || value[0] == 'n' }

// name returns the text of a member that is to be a string, or a number.
func (p *draftParser) name(field string, value []byte) (string, error) {
	if !isNull(value) && (value[0] == '-' || value[0] >= '0' && value[0] <= '9') {
		return string(value), nil
	}
	return p.text(field, value)
}

func (p *draftParser) content(value []byte) (string, error) {
	if !isNull(value) && value[0] != '"' {
		var buf bytes.Buffer
		if err := json.Compact(&buf, value); err != nil {
			return "", fmt.Errorf("%w: content: %w", ErrInvalid, err)
		}
		return p.valid("content", buf.String(), 0)
	}
	return p.text("content", value)
}

func (p *draftParser) text(field string, value []byte) (string, error) {
	if isNull(value) {
		return "", fmt.Errorf("%w: %s is missing", ErrInvalid, field)
	}
	if value[0] != '"' {
		return "", fmt.Errorf("%w: %s is not a string", ErrInvalid, field)
	}
	s, halves := decodeString(value)
	return p.valid(field, s, halves)
}

// valid returns the text of a field in which that many halves of surrogate pairs
// are replaced already.
func (p *draftParser) valid(field, s string, halves int) (string, error) {
	if p.strict {
		if halves > 0 {
			return "", fmt.Errorf("%w: %s has half of a surrogate pair in a \\u escape", ErrNotText, field)
		}
		return s, nil // Validate sees the rest
	}
	s, n := toValidUTF8(s)
	p.replaced += halves + n
	return s, nil
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

// decodeString returns the text of a valid JSON string. A \u escape that is half
// of a surrogate pair becomes U+FFFD; halves counts them.
func decodeString(raw []byte) (s string, halves int) {
	text := raw[1 : len(raw)-1]
	i := bytes.IndexByte(text, '\\')
	if i < 0 {
		return string(text), 0
	}
	plain := make([]byte, 0, len(text))
	for ; i >= 0; i = bytes.IndexByte(text, '\\') {
		plain = append(plain, text[:i]...)
		c := text[i+1]
		text = text[i+2:]
		switch c {
		case 'u':
			r := escapedUnit(text)
			text = text[4:]
			if utf16.IsSurrogate(r) {
				pair := utf8.RuneError
				if len(text) >= 6 && text[0] == '\\' && text[1] == 'u' {
					pair = utf16.DecodeRune(r, escapedUnit(text[2:]))
				}
				if r = pair; r == utf8.RuneError {
					halves++
				} else {
					text = text[6:]
				}
			}
			plain = utf8.AppendRune(plain, r)
			continue
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
		plain = append(plain, c)
	}
	return string(append(plain, text...)), halves
}

func escapedUnit(hex []byte) rune {
	u, _ := strconv.ParseUint(string(hex[:4]), 16, 32) // validJSON saw four hex digits
	return rune(u)
}
