package event

import (
	"bytes"
	"encoding/json"
)

// validJSON is json.Valid, faster for what most lines of a batch are: an object
// whose members are strings, null or small integers. Whatever else it meets it
// leaves to json.Valid.
func validJSON(b []byte) bool {
	rest := skipSpace(b)
	if len(rest) == 0 || rest[0] != '{' {
		return json.Valid(b)
	}
	for rest = skipSpace(rest[1:]); ; rest = skipSpace(rest[1:]) { // past the brace or a comma
		n := plainStringEnd(rest)
		if n == 0 {
			return json.Valid(b)
		}
		if rest = skipSpace(rest[n:]); len(rest) == 0 || rest[0] != ':' {
			return false
		}
		rest = skipSpace(rest[1:])
		if n = plainEnd(rest); n == 0 {
			return json.Valid(b)
		}
		rest = skipSpace(rest[n:])
		if len(rest) == 0 {
			return false
		}
		if rest[0] == '}' {
			return len(skipSpace(rest[1:])) == 0
		}
		if rest[0] != ',' {
			return false
		}
	}
}

// plainEnd returns the length of the null, the integer or the string that b
// starts with, 0 if it is none of these or not plain.
func plainEnd(b []byte) int {
	if bytes.HasPrefix(b, []byte("null")) {
		return len("null")
	}
	if len(b) == 0 || b[0] < '1' || b[0] > '9' {
		return plainStringEnd(b)
	}
	n := 1
	for n < len(b) && b[n] >= '0' && b[n] <= '9' {
		n++
	}
	if n < len(b) && (b[n] == '.' || b[n] == 'e' || b[n] == 'E') {
		return 0
	}
	return n
}

// plainStringEnd returns the length of the valid JSON string that b starts with,
// 0 if it does not start with one or has a \u escape.
func plainStringEnd(b []byte) int {
	if len(b) == 0 || b[0] != '"' {
		return 0
	}
	for i := 1; i < len(b); i++ {
		for len(b)-i >= 8 && plain8(b[i:]) {
			i += 8
		}
		if i == len(b) {
			return 0
		}
		switch c := b[i]; {
		case c == '"':
			return i + 1
		case c < ' ':
			return 0
		case c == '\\':
			i++
			if i == len(b) {
				return 0
			}
			switch b[i] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			default:
				return 0
			}
		}
	}
	return 0
}
