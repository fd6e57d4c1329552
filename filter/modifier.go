package filter

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// modifier is a date modifier that means the same in all versions of SQLite.
type modifier struct {
	kind modifierKind
	unit int     // modAdd: index into units
	n    float64 // modAdd: how many units
}

type modifierKind uint8

const (
	modUnixEpoch modifierKind = iota
	modStartOfDay
	modStartOfMonth
	modStartOfYear
	modAdd
)

// units are what can be added, with the number from which SQLite gives NULL and
// the length in seconds.
var units = [...]struct {
	name    string
	limit   float64
	seconds float64
}{
	{"second", 4.6427e+14, 1},
	{"minute", 7.7379e+12, 60},
	{"hour", 1.2897e+11, 3600},
	{"day", 5373485, 86400},
	{"month", 176546, 30 * 86400},
	{"year", 14713, 365 * 86400},
}

const (
	unitMonth = 4
	unitYear  = 5
)

func parseModifier(s string) (modifier, bool) {
	switch {
	case equalFoldASCII(s, "unixepoch"):
		return modifier{kind: modUnixEpoch}, true
	case equalFoldASCII(s, "start of day"):
		return modifier{kind: modStartOfDay}, true
	case equalFoldASCII(s, "start of month"):
		return modifier{kind: modStartOfMonth}, true
	case equalFoldASCII(s, "start of year"):
		return modifier{kind: modStartOfYear}, true
	}
	number, unit, ok := strings.Cut(s, " ")
	if !ok || number == "" || isSpace(number[0]) {
		return modifier{}, false
	}
	n := scanNumber(number)
	if !n.whole || strings.ContainsAny(number, "eE") {
		return modifier{}, false
	}
	if unit != "" && lowerASCII(unit[len(unit)-1]) == 's' {
		unit = unit[:len(unit)-1]
	}
	for i, u := range units {
		if equalFoldASCII(unit, u.name) {
			return modifier{kind: modAdd, unit: i, n: n.asReal()}, true
		}
	}
	return modifier{}, false
}

// apply changes t; false makes the result NULL.
func (m modifier) apply(t *dateTime, first bool) bool {
	switch m.kind {
	case modUnixEpoch:
		r := float64(t.s*1000) + unixZeroJD
		if !t.raw || !first || r < 0 || r >= lastJD+1 {
			return false
		}
		t.clearParts()
		t.jd, t.jdOK, t.raw = int64(r+0.5), true, false
		return true
	case modAdd:
		return m.add(t)
	}
	if !t.jdOK && !t.ymdOK && !t.hmsOK {
		return false
	}
	t.computeYMD()
	t.h, t.min, t.s, t.tz = 0, 0, 0, 0
	t.hmsOK, t.raw, t.jdOK = true, false, false
	switch m.kind {
	case modStartOfMonth:
		t.d = 1
	case modStartOfYear:
		t.m, t.d = 1, 1
	}
	return true
}

// add moves by m.n units. Whole months and years move in the calendar, and a day
// that the month does not have runs over into the next.
func (m modifier) add(t *dateTime) bool {
	t.computeJD()
	u := units[m.unit]
	if math.Abs(m.n) >= u.limit {
		return false
	}
	round := 0.5
	if m.n < 0 {
		round = -0.5
	}
	n := m.n
	if m.unit == unitMonth || m.unit == unitYear {
		t.computeYMD()
		t.computeHMS()
		whole := int(n)
		if m.unit == unitYear {
			t.y += whole
		} else {
			t.m += whole
			x := (t.m - 12) / 12
			if t.m > 0 {
				x = (t.m - 1) / 12
			}
			t.y += x
			t.m -= x * 12
		}
		t.jdOK = false
		n -= float64(whole)
	}
	t.computeJD()
	t.jd += int64(float64(n*1000*u.seconds) + round)
	t.clearParts()
	return true
}

// date checks a date function: literal modifiers, and for strftime a literal
// format.
func (c *checker) date(n *node) {
	args := n.args
	if n.fn == fnStrftime {
		if args[0].op != opLiteral || args[0].lit.k != text {
			c.fail(args[0].pos, "a strftime format that is not a text literal", "write the format in single quotes")
			return
		}
		n.aux.format = args[0].lit.s
		if bad := badConversion(n.aux.format); bad != "" {
			c.fail(args[0].pos, "the strftime conversion "+bad+" means different things in different versions of SQLite",
				"use %Y %m %d %H %M %S %f %s %j %w %J %%")
			return
		}
		args = args[1:]
	}
	if len(args) == 0 {
		n.now = true
		return
	}
	first := args[0]
	if first.op != opLiteral || first.lit.k == text && isNow(first.lit.s) {
		n.now = true
	}
	for i, a := range args[1:] {
		m, ok := modifier{}, false
		if a.op == opLiteral && a.lit.k == text {
			m, ok = parseModifier(a.lit.s)
		}
		if !ok || m.kind == modUnixEpoch && i > 0 {
			c.fail(a.pos, "a date modifier that filters do not have",
				"use literals like '-1 day', '+2 hours', 'start of month', or 'unixepoch' first")
			return
		}
		n.aux.mods = append(n.aux.mods, m)
	}
}

// badConversion gives the first conversion of a strftime format that is not
// stable over versions.
func badConversion(format string) string {
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			continue
		}
		i++
		if i == len(format) {
			return "% at the end"
		}
		if strings.IndexByte("YmdHMSfsjwJ%", format[i]) < 0 {
			return "%" + clip(format[i:])
		}
	}
	return ""
}

// moment computes the time a date function is asked for.
func (f *frame) moment(n *node, args []*node) (dateTime, bool) {
	var t dateTime
	if len(args) == 0 {
		t.setNow(f.now)
	} else {
		switch v := f.value(args[0]); v.k {
		case null:
			return t, false
		case text:
			if !t.parse(v.s, f.now) {
				return t, false
			}
		default:
			t.setRaw(v.asReal())
		}
	}
	for i, m := range n.aux.mods {
		if !m.apply(&t, i == 0) {
			return t, false
		}
	}
	t.computeJD()
	if t.failed || t.jd < 0 || t.jd > lastJD {
		return t, false
	}
	if len(args) == 1 && t.ymdOK && t.d > 28 {
		t.ymdOK = false // 2026-02-30 becomes 2026-03-02
	}
	return t, true
}

// date evaluates a date function.
func (f *frame) date(n *node) value {
	args := n.args
	if n.fn == fnStrftime {
		args = args[1:]
	}
	t, ok := f.moment(n, args)
	if !ok {
		return value{}
	}
	unix := t.jd/1000 - unixZeroJD/1000
	switch n.fn {
	case fnJulianDay:
		return realValue(float64(t.jd) / dayMillis)
	case fnUnixEpoch:
		if t.subsec {
			return realValue(float64(t.jd-unixZeroJD) / 1000)
		}
		return intValue(unix)
	}
	t.computeYMD()
	t.computeHMS()
	var b []byte
	switch n.fn {
	case fnStrftime:
		for i := 0; i < len(n.aux.format); i++ {
			if c := n.aux.format[i]; c != '%' {
				b = append(b, c)
				continue
			}
			i++
			b = t.appendConversion(b, n.aux.format[i], unix)
		}
	case fnDate:
		b = t.appendDate(b)
	case fnTime:
		b = t.appendTime(b)
	case fnDateTime:
		b = t.appendTime(append(t.appendDate(b), ' '))
	}
	return textValue(string(b))
}

func (t *dateTime) appendDate(b []byte) []byte {
	y := t.y
	if y < 0 {
		b, y = append(b, '-'), -y
	}
	return fmt.Appendf(b, "%04d-%02d-%02d", y, t.m, t.d)
}

func (t *dateTime) appendTime(b []byte) []byte {
	b = fmt.Appendf(b, "%02d:%02d:", t.h, t.min)
	if t.subsec {
		ms := int(float64(1000*t.s) + 0.5)
		return fmt.Appendf(b, "%02d.%03d", ms/1000, ms%1000)
	}
	return fmt.Appendf(b, "%02d", int(t.s))
}

func (t *dateTime) appendConversion(b []byte, c byte, unix int64) []byte {
	switch c {
	case 'Y':
		return fmt.Appendf(b, "%04d", t.y)
	case 'm':
		return fmt.Appendf(b, "%02d", t.m)
	case 'd':
		return fmt.Appendf(b, "%02d", t.d)
	case 'H':
		return fmt.Appendf(b, "%02d", t.h)
	case 'M':
		return fmt.Appendf(b, "%02d", t.min)
	case 'S':
		return fmt.Appendf(b, "%02d", int(t.s))
	case 'f':
		return appendSeconds(b, min(t.s, 59.999))
	case 's':
		if t.subsec {
			return fmt.Appendf(b, "%.3f", float64(t.jd-unixZeroJD)/1000)
		}
		return strconv.AppendInt(b, unix, 10)
	case 'j':
		jan := *t
		jan.jdOK, jan.m, jan.d = false, 1, 1
		jan.computeJD()
		return fmt.Appendf(b, "%03d", (t.jd-jan.jd+dayMillis/2)/dayMillis+1)
	case 'w':
		return strconv.AppendInt(b, (t.jd+129_600_000)/dayMillis%7, 10)
	case 'J':
		if t.jd == 0 {
			return append(b, '0')
		}
		return appendReal(b, float64(t.jd)/dayMillis, 16, false)
	}
	return append(b, '%')
}

// appendSeconds is %06.3f for 0 <= s < 60, a tie rounded up as SQLite does.
func appendSeconds(b []byte, s float64) []byte {
	var buffer [48]byte
	f := strconv.AppendFloat(buffer[:0], s, 'f', 40, 64)
	point := 1
	for f[point] != '.' {
		point++
	}
	ms, _ := strconv.Atoi(string(f[point+1 : point+4]))
	ms += int(s) * 1000
	if f[point+4] >= '5' {
		ms++
	}
	return fmt.Appendf(b, "%02d.%03d", ms/1000, ms%1000)
}
