package filter

import (
	"strconv"
	"strings"
)

// step is one step of a JSON path: a label of an object or an index of an array.
type step struct {
	label   *string
	index   int
	fromEnd bool // [#-N]: N before the length
}

// parsePath reads $ with .label, ."label", [N] and [#-N]. It refuses labels with
// a backslash, and indexes so large that SQLite's counter would overflow.
func parsePath(s string) ([]step, bool) {
	if s == "" || s[0] != '$' {
		return nil, false
	}
	path := []step{}
	for s = s[1:]; s != ""; {
		var label string
		switch {
		case strings.HasPrefix(s, `."`):
			end := strings.IndexByte(s[2:], '"')
			if end < 0 {
				return nil, false
			}
			label, s = s[2:2+end], s[3+end:]
		case s[0] == '.':
			end := strings.IndexAny(s[1:], ".[")
			if end < 0 {
				end = len(s) - 1
			}
			if end == 0 {
				return nil, false
			}
			label, s = s[1:1+end], s[1+end:]
		case s[0] == '[':
			end := strings.IndexByte(s, ']')
			if end < 0 {
				return nil, false
			}
			digits, fromEnd := strings.CutPrefix(s[1:end], "#-")
			if len(digits) > 9 || strings.Trim(digits, "0123456789") != "" {
				return nil, false
			}
			n, err := strconv.Atoi(digits)
			if err != nil {
				return nil, false
			}
			path = append(path, step{index: n, fromEnd: fromEnd})
			s = s[end+1:]
			continue
		default:
			return nil, false
		}
		if strings.IndexByte(label, '\\') >= 0 {
			return nil, false
		}
		path = append(path, step{label: &label})
	}
	return path, true
}

// path checks the path argument of a JSON function.
func (c *checker) path(n, arg *node) {
	ok := false
	if arg.op == opLiteral && arg.lit.k == text {
		n.aux.path, ok = parsePath(arg.lit.s)
	}
	if !ok {
		c.fail(arg.pos, "a JSON path that is not supported", `write a literal like '$.name', '$."a b"', '$.list[0]' or '$[#-1]'`)
	}
}

// arrow checks -> and ->>. What is not the same in all versions of SQLite on the
// right side is refused.
func (c *checker) arrow(n *node) {
	c.value(n.left)
	n.inherit(n.left)
	n.fails = true
	n.aux = &aux{}
	r := n.right
	switch {
	case r.op != opLiteral || r.word:
	case r.lit.k == integer && r.lit.i >= 0 && r.lit.i < 1e9:
		n.aux.path = []step{{index: int(r.lit.i)}}
		return
	case r.lit.k == text && isPlainLabel(r.lit.s):
		n.aux.path = []step{{label: &r.lit.s}}
		return
	case r.lit.k == text:
		var ok bool
		if n.aux.path, ok = parsePath(r.lit.s); ok {
			return
		}
	}
	c.fail(r.pos, "the right side of an arrow that means different things in different versions of SQLite",
		`write a plain name, an index from 0, or a path: '$."a.b"', '$[#-1]'`)
}

func isPlainLabel(s string) bool {
	for i := range len(s) {
		if c := s[i]; c >= 0x80 || c == '$' || !isNameByte(c) || i == 0 && isDigit(c) {
			return false
		}
	}
	return s != ""
}

// jsonKeyIs compares a key in its quotes with a label. A key with escapes is
// decoded and compared as a C string (jsonLabelCompareEscaped).
func jsonKeyIs(key, label string) bool {
	key = key[1 : len(key)-1]
	if strings.IndexByte(key, '\\') < 0 {
		return key == label
	}
	return untilNUL(jsonUnescape(key)) == label
}

// jsonUnescape decodes the inside of a JSON string. A surrogate that has no
// partner is encoded as it stands, in three bytes.
func jsonUnescape(s string) string {
	i := strings.IndexByte(s, '\\')
	if i < 0 {
		return s
	}
	b := append(make([]byte, 0, len(s)), s[:i]...)
	for ; i < len(s); i++ {
		c := s[i]
		if c != '\\' {
			b = append(b, c)
			continue
		}
		i++
		switch s[i] {
		case 'b':
			b = append(b, '\b')
		case 'f':
			b = append(b, '\f')
		case 'n':
			b = append(b, '\n')
		case 'r':
			b = append(b, '\r')
		case 't':
			b = append(b, '\t')
		case 'u':
			v := hex4(s[i+1:])
			i += 4
			if v&0xFC00 == 0xD800 && i+6 < len(s) && s[i+1] == '\\' && s[i+2] == 'u' {
				if low := hex4(s[i+3:]); low&0xFC00 == 0xDC00 {
					v = (v&0x3FF)<<10 + low&0x3FF + 0x10000
					i += 6
				}
			}
			b = appendChar(b, v)
		default:
			b = append(b, s[i])
		}
	}
	return string(b)
}

// hex4 reads the four hexadecimal digits that s begins with.
func hex4(s string) uint32 {
	v, _ := strconv.ParseUint(s[:4], 16, 32)
	return uint32(v)
}

// jsonMinify removes the white space between the tokens of a valid value.
func jsonMinify(s string) string {
	var b []byte
	from := 0
	for i := 0; i < len(s); {
		switch s[i] {
		case '"':
			i = jsonString(s, i)
		case ' ', '\t', '\n', '\r':
			b = append(b, s[from:i]...)
			i = jsonSpace(s, i)
			from = i
		default:
			i++
		}
	}
	if b == nil {
		return s
	}
	return string(append(b, s[from:]...))
}

// jsonKind is what json_type says of a valid value.
func jsonKind(v string) string {
	switch v[0] {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "text"
	case 't':
		return "true"
	case 'f':
		return "false"
	case 'n':
		return "null"
	}
	if strings.ContainsAny(v, ".eE") {
		return "real"
	}
	return "integer"
}

// jsonSQL is a valid JSON value as an SQL value.
func jsonSQL(v string) value {
	switch v[0] {
	case '{', '[':
		return textValue(jsonMinify(v))
	case '"':
		return textValue(jsonUnescape(v[1 : len(v)-1]))
	case 't', 'f':
		return boolValue(v[0] == 't')
	case 'n':
		return value{}
	}
	n := scanNumber(v)
	if n.real {
		return realValue(n.f)
	}
	return intValue(n.i)
}

// json evaluates a JSON function on x, which is not NULL.
func (f *frame) json(n *node, x value) value {
	v, ok := jsonTrim(x.text())
	if n.fn == fnJSONValid {
		return boolValue(ok)
	}
	if !ok {
		return f.fail(errJSON)
	}
	if v, ok = jsonFind(v, n.aux.path); !ok {
		return value{}
	}
	switch n.fn {
	case fnJSONType:
		return textValue(jsonKind(v))
	case fnJSONArrayLength:
		if v[0] != '[' {
			return intValue(0)
		}
		return intValue(int64(jsonCount(v)))
	}
	return jsonSQL(v)
}

// arrow evaluates -> (JSON text) and ->> (SQL value).
func (f *frame) arrow(n *node) value {
	x := f.value(n.left)
	if x.k == null {
		return x
	}
	v, ok := jsonTrim(x.text())
	if !ok {
		return f.fail(errJSON)
	}
	if v, ok = jsonFind(v, n.aux.path); !ok {
		return value{}
	}
	if n.op == opArrow {
		return textValue(jsonMinify(v))
	}
	return jsonSQL(v)
}
