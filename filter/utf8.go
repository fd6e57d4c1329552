package filter

// SQLite reads UTF-8 its own way: a byte from 0xC0 on begins a character and
// takes every continuation byte that follows; a continuation byte elsewhere is a
// character of its own. For valid UTF-8 this is the usual reading, and imported
// texts need not be valid (docs/spec/filter.md, section 14).

// readChar decodes the character at s[i], which must exist, and gives the offset
// after it: sqlite3Utf8Read in utf.c.
func readChar(s string, i int) (uint32, int) {
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

// skipChar gives the offset after the character at s[i]: SQLITE_SKIP_UTF8.
func skipChar(s string, i int) int {
	lead := s[i]
	i++
	if lead >= 0xC0 {
		for i < len(s) && s[i]&0xC0 == 0x80 {
			i++
		}
	}
	return i
}

// countChars is the length of s in characters.
func countChars(s string) int {
	n := 0
	for i := 0; i < len(s); n++ {
		if s[i] < 0x80 {
			i++
			continue
		}
		i = skipChar(s, i)
	}
	return n
}

// appendChar encodes c as SQLite's char() does. c is at most 0x10FFFF.
func appendChar(b []byte, c uint32) []byte {
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

// charBefore gives the offset of the character that ends before s[end]; end must
// be the end of a character and not 0.
func charBefore(s string, end int) int {
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
