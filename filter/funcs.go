package filter

import (
	"encoding/hex"
	"math"
	"strings"
)

// call evaluates a function (docs/spec/filter.md, section 10).
func (f *frame) call(n *node) value {
	switch n.fn {
	case fnCoalesce:
		for _, a := range n.args {
			if v := f.value(a); v.k != null {
				return v
			}
		}
		return value{}
	case fnIif:
		if f.holds(n.args[0], true) {
			return f.value(n.args[1])
		}
		return f.value(n.args[2])
	case fnMin, fnMax:
		return f.extreme(n)
	case fnChar:
		var b []byte
		for _, a := range n.args {
			c := int64(0)
			if v := f.value(a); v.k != null {
				c = v.int64()
			}
			if c < 0 || c > 0x10FFFF {
				c = 0xFFFD
			}
			b = appendChar(b, uint32(c))
		}
		return textValue(string(b))
	case fnDate, fnDateTime, fnJulianDay, fnTime, fnUnixEpoch, fnStrftime:
		return f.date(n)
	}
	var args [3]value
	for i, a := range n.args {
		if i == 1 && n.aux.path != nil {
			break // a JSON path, read by the checker
		}
		args[i] = f.value(a)
	}
	x := args[0]
	switch n.fn {
	case fnTypeof:
		return textValue([...]string{"null", "integer", "real", "text"}[x.k])
	case fnHex:
		if x.k == null {
			return textValue("")
		}
		return f.bounded(2*len(x.text()), func() string { return strings.ToUpper(hex.EncodeToString([]byte(x.text()))) })
	case fnNullIf:
		if compareAs(opEq, x, args[1], affNone, byBytes) == isTrue {
			return value{}
		}
		return x
	}
	for i, v := range args[:len(n.args)] {
		if v.k == null && (n.aux.path == nil || x.k == null) {
			if n.fn == fnReplace && i == 2 && isEmptyC(args[1].text()) {
				break // SQLite does not look at what nothing is replaced by
			}
			return value{}
		}
	}
	switch n.fn {
	case fnAbs:
		return f.abs(x)
	case fnLength:
		return intValue(int64(countChars(untilNUL(x.text()))))
	case fnLower:
		return textValue(mapASCII(x.text(), lowerASCII))
	case fnUpper:
		return textValue(mapASCII(x.text(), upperASCII))
	case fnSubstr:
		return textValue(substr(untilNUL(x.text()), args[1], args[2], len(n.args) == 3))
	case fnInstr:
		return intValue(instr(x.text(), args[1].text()))
	case fnTrim, fnLTrim, fnRTrim:
		set := " "
		if len(n.args) == 2 {
			set = untilNUL(args[1].text())
		}
		return textValue(trim(x.text(), set, n.fn != fnRTrim, n.fn != fnLTrim))
	case fnReplace:
		return f.replace(x.text(), args[1].text(), args[2].text())
	case fnUnicode:
		s := untilNUL(x.text())
		if s == "" {
			return value{}
		}
		c, _ := readChar(s, 0)
		return intValue(int64(c))
	}
	return f.json(n, x)
}

// bounded makes a text of size bytes, if that is allowed.
func (f *frame) bounded(size int, make func() string) value {
	if size > maxTextBytes {
		return f.fail(errTooBig)
	}
	return textValue(make())
}

// extreme is min or max: NULL if an argument is, numbers before texts; of equals
// max keeps the first and min the last.
func (f *frame) extreme(n *node) value {
	var best value
	isNull := false
	for i, a := range n.args {
		v := f.value(a)
		if v.k == null {
			isNull = true
		}
		if isNull {
			continue
		}
		if i == 0 {
			best = v
			continue
		}
		c := compare(v, best, byBytes)
		if n.fn == fnMax && c > 0 || n.fn == fnMin && c <= 0 {
			best = v
		}
	}
	if isNull {
		return value{}
	}
	return best
}

// abs of a text is REAL, whatever it looks like.
func (f *frame) abs(v value) value {
	switch v.k {
	case integer:
		if v.i == math.MinInt64 {
			return f.fail(errOverflow)
		}
		if v.i < 0 {
			return intValue(-v.i)
		}
		return v
	case text:
		n := scanNumber(v.s)
		return realValue(math.Abs(n.asReal()))
	}
	return realValue(math.Abs(v.f))
}

// mapASCII maps the letters A–Z and a–z only; without any to map it copies
// nothing.
func mapASCII(s string, m func(byte) byte) string {
	for i := range len(s) {
		if m(s[i]) != s[i] {
			b := []byte(s)
			for ; i < len(b); i++ {
				b[i] = m(b[i])
			}
			return string(b)
		}
	}
	return s
}

// substr is SQLite's substr on characters, for any int64 (docs/spec/filter.md, section
// 10, after substrFunc in func.c). Without a count, SQLite takes the longest text
// that it can hold: from farther left than that before the text, nothing is left.
func substr(s string, from, count value, counted bool) string {
	p := from.int64()
	n := int64(maxTextBytes)
	neg := false
	if counted {
		n = count.int64()
		if n < 0 {
			if neg = true; n == math.MinInt64 {
				n++
			}
			n = -n
		}
	}
	if p < 0 {
		p += int64(countChars(s))
		if p < 0 {
			n += p
			n = max(n, 0)
			p = 0
		}
	} else if p > 0 {
		p--
	} else if n > 0 && counted {
		n--
	}
	if neg {
		p -= n
		if p < 0 {
			n += p
			p = 0
		}
	}
	i := 0
	for ; p > 0 && i < len(s); p-- {
		i = skipChar(s, i)
	}
	j := i
	for ; n > 0 && j < len(s); n-- {
		j = skipChar(s, j)
	}
	return s[i:j]
}

// instr is the position of the first b in a in characters from 1, 0 without one.
// SQLite steps over continuation bytes, so that a match never begins at one.
func instr(a, b string) int64 {
	if b == "" {
		return 1
	}
	for i := 0; ; i++ {
		j := strings.Index(a[i:], b)
		if j < 0 {
			return 0
		}
		if i += j; i == 0 || a[i]&0xC0 != 0x80 {
			return 1 + charStarts(a[:i])
		}
	}
}

// charStarts counts the positions in s at which instr looks: the first byte and
// every byte that is not a continuation byte.
func charStarts(s string) int64 {
	n := int64(0)
	for i := range len(s) {
		if i == 0 || s[i]&0xC0 != 0x80 {
			n++
		}
	}
	return n
}

// trim strips the characters of set from the asked sides of s. The characters of
// set are read with SQLITE_SKIP_UTF8 and compared as bytes.
func trim(s, set string, left, right bool) string {
	strip := func(has func(s, c string) bool, cut func(s, c string) string) {
	again:
		for i := 0; i < len(set) && s != ""; {
			j := skipChar(set, i)
			if c := set[i:j]; has(s, c) {
				s = cut(s, c)
				goto again
			}
			i = j
		}
	}
	if left {
		strip(strings.HasPrefix, strings.TrimPrefix)
	}
	if right {
		strip(strings.HasSuffix, strings.TrimSuffix)
	}
	return s
}

// isEmptyC reports whether s is empty as a C string.
func isEmptyC(s string) bool { return s == "" || s[0] == 0 }

func (f *frame) replace(s, old, with string) value {
	if isEmptyC(old) {
		return textValue(s)
	}
	n := strings.Count(s, old)
	if len(s)+n*(len(with)-len(old)) > maxTextBytes {
		return f.fail(errTooBig)
	}
	return textValue(strings.ReplaceAll(s, old, with))
}
