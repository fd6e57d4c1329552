// Package sqldate computes SQLite's dates and times.
package sqldate

import (
	"thread/filter/internal/sqltext"
)

// Date functions after SQLite's date.c: all arithmetic is in milliseconds since
// Julian day 0, and a date remembers whether it was given as year, month and day
// or as a number until something needs the other form (docs/spec/filter.md, section 11).

const (
	dayMillis = 86_400_000
	// UnixZero is 1970-01-01 in milliseconds since Julian day 0.
	UnixZero      = 210_866_760_000_000
	lastJD        = 464_269_060_799_999 // 9999-12-31 23:59:59.999
	julianDaysEnd = 5373484.5
)

// Time is a moment in up to three forms, each with its valid mark.
type Time struct {
	jd      int64 // milliseconds since Julian day 0
	y, m, d int
	h, min  int
	s       float64
	tz      int // minutes east of UTC
	jdOK    bool
	ymdOK   bool
	hmsOK   bool
	raw     bool // s holds a bare number that may yet be unixepoch
	subsec  bool // print milliseconds: the text was 'subsec'
	failed  bool
}

func (t *Time) fail() { *t = Time{failed: true} }

// SetRaw makes t a Julian day, or seconds since 1970 when the modifier unixepoch follows.
func (t *Time) SetRaw(r float64) {
	t.s, t.raw = r, true
	if r >= 0 && r < julianDaysEnd {
		t.jd, t.jdOK = int64(float64(r*dayMillis)+0.5), true
	}
}

// SetNow makes t the moment now, in milliseconds since Julian day 0.
func (t *Time) SetNow(now int64) {
	t.jd, t.jdOK = now, true
	t.clearParts()
}

func (t *Time) clearParts() { t.ymdOK, t.hmsOK, t.tz = false, false, 0 }

func (t *Time) computeJD() {
	if t.jdOK {
		return
	}
	y, m, d := 2000, 1, 1
	if t.ymdOK {
		y, m, d = t.y, t.m, t.d
	}
	if y < -4713 || y > 9999 || t.raw {
		t.fail()
		return
	}
	if m <= 2 {
		y--
		m += 12
	}
	a := (y + 4800) / 100
	b := 38 - a + a/4
	x1 := 36525 * (y + 4716) / 100
	x2 := 306001 * (m + 1) / 10000
	t.jd = int64((float64(x1+x2+d+b) - 1524.5) * dayMillis)
	t.jdOK = true
	if !t.hmsOK {
		return
	}
	t.jd += int64(t.h)*3_600_000 + int64(t.min)*60_000 + int64(float64(t.s*1000)+0.5)
	if t.tz != 0 {
		t.jd -= int64(t.tz) * 60_000
		t.clearParts()
	}
}

func (t *Time) computeYMD() {
	if t.ymdOK {
		return
	}
	switch {
	case !t.jdOK:
		t.y, t.m, t.d = 2000, 1, 1
	case t.jd < 0 || t.jd > lastJD:
		t.fail()
		return
	default:
		z := int((t.jd + dayMillis/2) / dayMillis)
		alpha := int((float64(z)+32044.75)/36524.25) - 52
		a := z + 1 + alpha - (alpha+100)/4 + 25
		b := a + 1524
		c := int((float64(b) - 122.1) / 365.25)
		d := 36525 * (c & 32767) / 100
		e := int(float64(b-d) / 30.6001)
		x1 := int(30.6001 * float64(e))
		t.d = b - d - x1
		if t.m = e - 1; e >= 14 {
			t.m = e - 13
		}
		if t.y = c - 4716; t.m <= 2 {
			t.y = c - 4715
		}
	}
	t.ymdOK = true
}

func (t *Time) computeHMS() {
	if t.hmsOK {
		return
	}
	t.computeJD()
	ms := int((t.jd + dayMillis/2) % dayMillis)
	t.s = float64(ms%60_000) / 1000
	t.min = ms / 60_000 % 60
	t.h = ms / 3_600_000
	t.raw, t.hmsOK = false, true
}

// dateReader reads the parts of a date text from the front.
type dateReader struct{ s string }

// digits reads exactly n digits whose number lies in [low, high].
func (r *dateReader) digits(n, low, high int) (int, bool) {
	if len(r.s) < n {
		return 0, false
	}
	v := 0
	for i := range n {
		if !sqltext.IsDigit(r.s[i]) {
			return 0, false
		}
		v = v*10 + int(r.s[i]-'0')
	}
	r.s = r.s[n:]
	return v, v >= low && v <= high
}

func (r *dateReader) char(c byte) bool {
	if r.s == "" || r.s[0] != c {
		return false
	}
	r.s = r.s[1:]
	return true
}

func (r *dateReader) spaces() {
	for r.s != "" && sqltext.IsSpace(r.s[0]) {
		r.s = r.s[1:]
	}
}

// Parse reads a time value from a text; now is what 'now' stands for, in milliseconds since Julian day 0.
func (t *Time) Parse(s string, now int64) bool {
	s = sqltext.UntilNUL(s)
	if r := (dateReader{s}); t.parseDate(&r) {
		return true
	}
	if r := (dateReader{s}); t.parseTime(&r) {
		return true
	}
	switch n := sqltext.ScanNumber(s); {
	case n.Whole:
		t.SetRaw(n.AsReal())
	case IsNow(s):
		t.subsec = !sqltext.EqualFoldASCII(s, "now") // 'subsec' is now with milliseconds
		t.SetNow(now)
	default:
		return false
	}
	return true
}

// parseDate reads YYYY-MM-DD, perhaps with a time after spaces and Ts.
func (t *Time) parseDate(r *dateReader) bool {
	neg := r.char('-')
	y, ok := r.digits(4, 0, 14712)
	if !ok || !r.char('-') {
		return false
	}
	m, ok := r.digits(2, 1, 12)
	if !ok || !r.char('-') {
		return false
	}
	d, ok := r.digits(2, 1, 31)
	if !ok {
		return false
	}
	for r.s != "" && (sqltext.IsSpace(r.s[0]) || r.s[0] == 'T') {
		r.s = r.s[1:]
	}
	if rest := *r; !t.parseTime(&rest) {
		if r.s != "" {
			return false
		}
		t.hmsOK = false
	}
	if neg {
		y = -y
	}
	t.jdOK, t.ymdOK = false, true
	t.y, t.m, t.d = y, m, d
	if t.tz != 0 {
		t.computeJD()
	}
	return true
}

// parseTime reads HH:MM[:SS[.f+]] and a time zone.
func (t *Time) parseTime(r *dateReader) bool {
	h, ok := r.digits(2, 0, 24)
	if !ok || !r.char(':') {
		return false
	}
	m, ok := r.digits(2, 0, 59)
	if !ok {
		return false
	}
	s, fraction := 0, 0.0
	if r.char(':') {
		if s, ok = r.digits(2, 0, 59); !ok {
			return false
		}
		if len(r.s) > 1 && r.s[0] == '.' && sqltext.IsDigit(r.s[1]) {
			scale := 1.0
			for r.s = r.s[1:]; r.s != "" && sqltext.IsDigit(r.s[0]); r.s = r.s[1:] {
				fraction = float64(fraction*10) + float64(r.s[0]-'0')
				scale *= 10
			}
			fraction = min(fraction/scale, 0.999)
		}
	}
	t.jdOK, t.raw, t.hmsOK = false, false, true
	t.h, t.min, t.s = h, m, float64(s)+fraction
	return t.parseZone(r)
}

// parseZone reads nothing, Z or ±HH:MM, with white space around, to the end.
func (t *Time) parseZone(r *dateReader) bool {
	r.spaces()
	t.tz = 0
	sign := 1
	switch {
	case r.s == "":
		return true
	case r.char('Z'), r.char('z'):
		r.spaces()
		return r.s == ""
	case r.char('-'):
		sign = -1
	case !r.char('+'):
		return false
	}
	h, ok := r.digits(2, 0, 14)
	if !ok || !r.char(':') {
		return false
	}
	m, ok := r.digits(2, 0, 59)
	if !ok {
		return false
	}
	t.tz = sign * (h*60 + m)
	r.spaces()
	return r.s == ""
}

// The explicit conversions to float64 above keep a processor from fusing a
// multiplication with an addition, which would round otherwise than SQLite.

// IsNow reports whether a text is one of those that mean the current time.
func IsNow(s string) bool {
	s = sqltext.UntilNUL(s)
	return sqltext.EqualFoldASCII(s, "now") || sqltext.EqualFoldASCII(s, "subsec") || sqltext.EqualFoldASCII(s, "subsecond")
}
