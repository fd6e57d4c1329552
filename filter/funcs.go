package filter

import (
	"encoding/hex"
	"math"
	"strings"

	"thread/filter/internal/sqltext"
)

// literal reports whether the arguments of a function after its first are literals that
// the checker has read.
func (a *aux) literal() bool { return a.path != nil || a.mods != nil }

// appendCharOf is char(v) appended to b.
func appendCharOf(b []byte, v value) []byte {
	c := int64(0)
	if v.k != null {
		c = v.int64()
	}
	if c < 0 || c > 0x10FFFF {
		c = 0xFFFD
	}
	return sqltext.AppendChar(b, uint32(c))
}

// apply computes a function of a fixed number of arguments that are not lazy. Of n it
// reads only fn, the number of arguments and what the checker has read of literals.
func (n *node) apply(args [3]value, now int64) (value, error) {
	x := args[0]
	switch n.fn {
	case fnDate, fnDateTime, fnJulianDay, fnTime, fnUnixEpoch:
		return n.date(x, len(n.args) > 0, len(n.args) == 1, now), nil
	case fnStrftime:
		return n.date(args[1], len(n.args) > 1, len(n.args) == 2, now), nil
	case fnTypeof:
		return textValue([...]string{"null", "integer", "real", "text"}[x.k]), nil
	case fnHex:
		return hexOf(x)
	case fnNullIf:
		if compareAs(opEq, x, args[1], affNone, byBytes) == isTrue {
			return value{}, nil
		}
		return x, nil
	}
	for i, v := range args[:len(n.args)] {
		if v.k == null && (n.aux.path == nil || x.k == null) {
			if n.fn == fnReplace && i == 2 && isEmptyC(args[1].text()) {
				break // SQLite does not look at what nothing is replaced by
			}
			return value{}, nil
		}
	}
	switch n.fn {
	case fnAbs:
		return abs(x)
	case fnLength:
		return intValue(int64(sqltext.CountChars(sqltext.UntilNUL(x.text())))), nil
	case fnLower:
		return textValue(mapASCII(x.text(), sqltext.LowerASCII)), nil
	case fnUpper:
		return textValue(mapASCII(x.text(), sqltext.UpperASCII)), nil
	case fnSubstr:
		return textValue(substr(sqltext.UntilNUL(x.text()), args[1], args[2], len(n.args) == 3)), nil
	case fnInstr:
		return intValue(instr(x.text(), args[1].text())), nil
	case fnTrim, fnLTrim, fnRTrim:
		set := " "
		if len(n.args) == 2 {
			set = sqltext.UntilNUL(args[1].text())
		}
		return textValue(trim(x.text(), set, n.fn != fnRTrim, n.fn != fnLTrim)), nil
	case fnReplace:
		return replace(x.text(), args[1].text(), args[2].text())
	case fnUnicode:
		s := sqltext.UntilNUL(x.text())
		if s == "" {
			return value{}, nil
		}
		c, _ := sqltext.ReadChar(s, 0)
		return intValue(int64(c)), nil
	}
	return jsonOf(n.fn, x, n.aux.path)
}

func hexOf(x value) (value, error) {
	if x.k == null {
		return textValue(""), nil
	}
	s := x.text()
	if 2*len(s) > maxTextBytes {
		return value{}, errTooBig
	}
	return textValue(strings.ToUpper(hex.EncodeToString([]byte(s)))), nil
}

// extreme is min or max: NULL if an argument is, numbers before texts; of equals
// max keeps the first and min the last.
func extreme(fn function, args []value) value {
	var best value
	for i, v := range args {
		if v.k == null {
			return value{}
		}
		if i == 0 {
			best = v
			continue
		}
		c := compare(v, best, byBytes)
		if fn == fnMax && c > 0 || fn == fnMin && c <= 0 {
			best = v
		}
	}
	return best
}

// abs of a text is REAL, whatever it looks like.
func abs(v value) (value, error) {
	switch v.k {
	case integer:
		if v.i == math.MinInt64 {
			return value{}, errOverflow
		}
		if v.i < 0 {
			return intValue(-v.i), nil
		}
		return v, nil
	case text:
		n := sqltext.ScanNumber(v.s)
		return realValue(math.Abs(n.AsReal())), nil
	}
	return realValue(math.Abs(v.f)), nil
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
		p += int64(sqltext.CountChars(s))
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
		i = sqltext.SkipChar(s, i)
	}
	j := i
	for ; n > 0 && j < len(s); n-- {
		j = sqltext.SkipChar(s, j)
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
			j := sqltext.SkipChar(set, i)
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

func replace(s, old, with string) (value, error) {
	if isEmptyC(old) {
		return textValue(s), nil
	}
	n := strings.Count(s, old)
	if len(s)+n*(len(with)-len(old)) > maxTextBytes {
		return value{}, errTooBig
	}
	return textValue(strings.ReplaceAll(s, old, with)), nil
}
