// Package sqljson reads JSON texts as SQLite's JSON functions do.
package sqljson

import (
	"thread/filter/internal/sqltext"
)

// JSON texts are read in place: validating one and finding a value in it
// allocate nothing. Only RFC 8259 is read (docs/spec/filter.md, section 12).

// maxDepth is SQLite's JSON_MAX_DEPTH.
const maxDepth = 1000

// Valid reports whether text is one JSON value, with white space around it or not,
// nested no deeper than 1,000. Text that is not valid UTF-8 may be one.
func Valid(text string) bool {
	end := scan(text, space(text, 0), 0)
	return end >= 0 && space(text, end) == len(text)
}

// scan validates the value at s[i] and gives the offset after it, or -1.
func scan(s string, i, depth int) int {
	if i >= len(s) {
		return -1
	}
	switch c := s[i]; {
	case c == '{':
		return container(s, i, depth+1, true)
	case c == '[':
		return container(s, i, depth+1, false)
	case c == '"':
		return str(s, i)
	case c == '-' || sqltext.IsDigit(c):
		return number(s, i)
	case c == 't':
		return word(s, i, "true")
	case c == 'f':
		return word(s, i, "false")
	case c == 'n':
		return word(s, i, "null")
	}
	return -1
}

func word(s string, i int, w string) int {
	if len(s)-i < len(w) || s[i:i+len(w)] != w {
		return -1
	}
	return i + len(w)
}

func space(s string, i int) int {
	for i < len(s) && (s[i] == ' ' || s[i] == '\t' || s[i] == '\n' || s[i] == '\r') {
		i++
	}
	return i
}

func container(s string, i, depth int, object bool) int {
	if depth > maxDepth {
		return -1
	}
	closing := byte(']')
	if object {
		closing = '}'
	}
	i = space(s, i+1)
	if i < len(s) && s[i] == closing {
		return i + 1
	}
	for {
		if object {
			if i >= len(s) || s[i] != '"' {
				return -1
			}
			if i = str(s, i); i < 0 {
				return -1
			}
			if i = space(s, i); i >= len(s) || s[i] != ':' {
				return -1
			}
			i = space(s, i+1)
		}
		if i = scan(s, i, depth); i < 0 {
			return -1
		}
		if i = space(s, i); i >= len(s) {
			return -1
		}
		switch s[i] {
		case closing:
			return i + 1
		case ',':
			i = space(s, i+1)
		default:
			return -1
		}
	}
}

func str(s string, i int) int {
	for i++; i < len(s); i++ {
		switch c := s[i]; {
		case c > '"' && c != '\\': // most of them
		case c == '"':
			return i + 1
		case c < ' ':
			return -1
		case c == '\\':
			if i++; i >= len(s) {
				return -1
			}
			switch s[i] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				for range 4 {
					if i++; i >= len(s) || !sqltext.IsHexDigit(s[i]) {
						return -1
					}
				}
			default:
				return -1
			}
		}
	}
	return -1
}

func number(s string, i int) int {
	digits := func() bool {
		begin := i
		for i < len(s) && sqltext.IsDigit(s[i]) {
			i++
		}
		return i > begin
	}
	if s[i] == '-' {
		i++
	}
	if i < len(s) && s[i] == '0' {
		i++
	} else if !digits() {
		return -1
	}
	if i < len(s) && sqltext.IsDigit(s[i]) {
		return -1
	}
	if i < len(s) && s[i] == '.' {
		i++
		if !digits() {
			return -1
		}
	}
	if i < len(s) && (s[i] == 'e' || s[i] == 'E') {
		i++
		if i < len(s) && (s[i] == '+' || s[i] == '-') {
			i++
		}
		if !digits() {
			return -1
		}
	}
	return i
}

// Trim gives the value of a JSON text without the white space around it, or
// false if it is not JSON. A text ends at its first NUL.
func Trim(s string) (string, bool) {
	s = sqltext.UntilNUL(s)
	begin := space(s, 0)
	end := scan(s, begin, 0)
	if end < 0 || space(s, end) != len(s) {
		return "", false
	}
	return s[begin:end], true
}

// skip gives the offset after the value at s[i] of a valid JSON text.
func skip(s string, i int) int {
	depth := 0
	for ; i < len(s); i++ {
		switch s[i] {
		case '"':
			i = str(s, i) - 1
			if depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
			if depth < 0 {
				return i
			}
		case ',', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return i
			}
		}
	}
	return i
}

// elements calls visit with each element of the object or array v, for an
// object with the key in its quotes, until visit returns false.
func elements(v string, visit func(key, element string) bool) {
	object := v[0] == '{'
	i := space(v, 1)
	for v[i] != '}' && v[i] != ']' {
		key := ""
		if object {
			end := str(v, i)
			key = v[i:end]
			i = space(v, space(v, end)+1)
		}
		end := skip(v, i)
		if !visit(key, v[i:end]) {
			return
		}
		if i = space(v, end); v[i] == ',' {
			i = space(v, i+1)
		}
	}
}

// Count returns the number of elements of a valid array.
func Count(v string) int {
	n := 0
	elements(v, func(string, string) bool { n++; return true })
	return n
}

// Find follows a path into a valid value.
func Find(v string, path []Step) (string, bool) {
	for _, p := range path {
		found := false
		next := ""
		switch {
		case p.Label == nil && v[0] == '[':
			at := p.Index
			if p.FromEnd {
				at = Count(v) - p.Index
			}
			elements(v, func(_, e string) bool {
				if found = at == 0; found {
					next = e
				}
				at--
				return !found
			})
		case p.Label != nil && v[0] == '{':
			elements(v, func(key, e string) bool {
				if found = keyIs(key, *p.Label); found {
					next = e
				}
				return !found
			})
		}
		if !found {
			return "", false
		}
		v = next
	}
	return v, true
}
