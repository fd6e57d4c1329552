package sqldate

import (
	"math"
	"strings"

	"thread/filter/internal/sqltext"
)

// Modifier is a date modifier that means the same in all versions of SQLite.
type Modifier struct {
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

// ParseModifier reads a modifier, and returns false for one that filters do not have.
func ParseModifier(s string) (Modifier, bool) {
	switch {
	case sqltext.EqualFoldASCII(s, "unixepoch"):
		return Modifier{kind: modUnixEpoch}, true
	case sqltext.EqualFoldASCII(s, "start of day"):
		return Modifier{kind: modStartOfDay}, true
	case sqltext.EqualFoldASCII(s, "start of month"):
		return Modifier{kind: modStartOfMonth}, true
	case sqltext.EqualFoldASCII(s, "start of year"):
		return Modifier{kind: modStartOfYear}, true
	}
	number, unit, ok := strings.Cut(s, " ")
	if !ok || number == "" || sqltext.IsSpace(number[0]) {
		return Modifier{}, false
	}
	n := sqltext.ScanNumber(number)
	if !n.Whole || strings.ContainsAny(number, "eE") {
		return Modifier{}, false
	}
	if unit != "" && sqltext.LowerASCII(unit[len(unit)-1]) == 's' {
		unit = unit[:len(unit)-1]
	}
	for i, u := range units {
		if sqltext.EqualFoldASCII(unit, u.name) {
			return Modifier{kind: modAdd, unit: i, n: n.AsReal()}, true
		}
	}
	return Modifier{}, false
}

// OnlyFirst reports whether m may stand only directly behind the time value.
func (m Modifier) OnlyFirst() bool { return m.kind == modUnixEpoch }

// apply changes t; false makes the result NULL.
func (m Modifier) apply(t *Time, first bool) bool {
	switch m.kind {
	case modUnixEpoch:
		r := float64(t.s*1000) + UnixZero
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
func (m Modifier) add(t *Time) bool {
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
