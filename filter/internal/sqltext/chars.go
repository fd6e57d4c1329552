package sqltext

import "strings"

// SQLite reads UTF-8 its own way: a byte from 0xC0 on begins a character and
// takes every continuation byte that follows; a continuation byte elsewhere is a
// separate character. For valid UTF-8 this is the usual reading, and imported
// texts need not be valid (docs/spec/filter.md, section 14).

// ReadChar decodes the character at s[i], which must exist, and gives the offset
// after it: sqlite3Utf8Read in utf.c.
func ReadChar(s string, i int) (uint32, int) {
	c := uint32(s[i])
	i++
	if c < 0xC0 {
		return c, i
	}
	switch {
	case c < 0xE0:
		c &= 0x1F
	case c < 0xF0:
		c &= 0x0F
	case c < 0xF8:
		c &= 0x07
	case c < 0xFC:
		c &= 0x03
	case c < 0xFE:
		c &= 0x01
	default:
		c = 0
	}
	for i < len(s) && s[i]&0xC0 == 0x80 {
		c = c<<6 | uint32(s[i]&0x3F)
		i++
	}
	if c < 0x80 || c&0xFFFFF800 == 0xD800 || c&0xFFFFFFFE == 0xFFFE {
		c = 0xFFFD
	}
	return c, i
}

// SkipChar gives the offset after the character at s[i]: SQLITE_SKIP_UTF8.
func SkipChar(s string, i int) int {
	lead := s[i]
	i++
	if lead >= 0xC0 {
		for i < len(s) && s[i]&0xC0 == 0x80 {
			i++
		}
	}
	return i
}

// CountChars is the length of s in characters.
func CountChars(s string) int {
	n := 0
	for i := 0; i < len(s); n++ {
		if s[i] < 0x80 {
			i++
			continue
		}
		i = SkipChar(s, i)
	}
	return n
}

// AppendChar encodes c as SQLite's char() does. c is at most 0x10FFFF.
func AppendChar(b []byte, c uint32) []byte {
	switch {
	case c < 0x80:
		return append(b, byte(c))
	case c < 0x800:
		return append(b, 0xC0|byte(c>>6), 0x80|byte(c&0x3F))
	case c < 0x10000:
		return append(b, 0xE0|byte(c>>12), 0x80|byte(c>>6&0x3F), 0x80|byte(c&0x3F))
	}
	return append(b, 0xF0|byte(c>>18), 0x80|byte(c>>12&0x3F), 0x80|byte(c>>6&0x3F), 0x80|byte(c&0x3F))
}

// CharBefore gives the offset of the character that ends before s[end]; end must
// be the end of a character and not 0.
func CharBefore(s string, end int) int {
	i := end - 1
	if s[i]&0xC0 != 0x80 {
		return i
	}
	for i > 0 && s[i]&0xC0 == 0x80 {
		i--
	}
	if s[i] >= 0xC0 {
		return i
	}
	return end - 1 // a continuation byte without a lead
}

// UntilNUL is the part of s that SQLite's C-string functions see.
func UntilNUL(s string) string {
	if i := strings.IndexByte(s, 0); i >= 0 {
		return s[:i]
	}
	return s
}

// LowerASCII returns c in lower case when it is an ASCII letter.
func LowerASCII(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// UpperASCII returns c in upper case when it is an ASCII letter.
func UpperASCII(c byte) byte {
	if c >= 'a' && c <= 'z' {
		return c - ('a' - 'A')
	}
	return c
}

// EqualFoldASCII compares names and keywords.
func EqualFoldASCII(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if LowerASCII(a[i]) != LowerASCII(b[i]) {
			return false
		}
	}
	return true
}
