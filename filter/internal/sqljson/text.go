package sqljson

import (
	"strconv"
	"strings"
	"thread/filter/internal/sqltext"
)

// keyIs compares a key in its quotes with a label. A key with escapes is
// decoded and compared as a C string (jsonLabelCompareEscaped).
func keyIs(key, label string) bool {
	key = key[1 : len(key)-1]
	if strings.IndexByte(key, '\\') < 0 {
		return key == label
	}
	return sqltext.UntilNUL(Unescape(key)) == label
}

// Unescape decodes the inside of a JSON string. A surrogate that has no
// partner is encoded as it stands, in three bytes.
func Unescape(s string) string {
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
			b = sqltext.AppendChar(b, v)
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

// Minify removes the white space between the tokens of a valid value.
func Minify(s string) string {
	var b []byte
	from := 0
	for i := 0; i < len(s); {
		switch s[i] {
		case '"':
			i = str(s, i)
		case ' ', '\t', '\n', '\r':
			b = append(b, s[from:i]...)
			i = space(s, i)
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

// Kind is what json_type says of a valid value.
func Kind(v string) string {
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
