package sqldate

import (
	"fmt"
	"strconv"

	"thread/filter/internal/sqltext"
)

// Finish applies the modifiers and reports whether the result is a date at all. alone says that
// there was a time value and nothing else.
func (t *Time) Finish(mods []Modifier, alone bool) bool {
	for i, m := range mods {
		if !m.apply(t, i == 0) {
			return false
		}
	}
	t.computeJD()
	if t.failed || t.jd < 0 || t.jd > lastJD {
		return false
	}
	if alone && t.ymdOK && t.d > 28 {
		t.ymdOK = false // 2026-02-30 becomes 2026-03-02
	}
	return true
}

// JulianDay returns the days since Julian day 0.
func (t *Time) JulianDay() float64 { return float64(t.jd) / dayMillis }

// Unix returns the seconds since 1970. With the time value subsec, whole is false: fraction
// has them with their milliseconds.
func (t *Time) Unix() (seconds int64, fraction float64, whole bool) {
	return t.jd/1000 - UnixZero/1000, float64(t.jd-UnixZero) / 1000, !t.subsec
}

// Split computes year to second, which the functions that append need.
func (t *Time) Split() {
	t.computeYMD()
	t.computeHMS()
}

// AppendFormat appends what strftime gives for a format of known conversions.
func (t *Time) AppendFormat(b []byte, format string) []byte {
	for i := 0; i < len(format); i++ {
		if c := format[i]; c != '%' {
			b = append(b, c)
			continue
		}
		i++
		b = t.appendConversion(b, format[i])
	}
	return b
}

// AppendDate appends YYYY-MM-DD.
func (t *Time) AppendDate(b []byte) []byte {
	y := t.y
	if y < 0 {
		b, y = append(b, '-'), -y
	}
	return fmt.Appendf(b, "%04d-%02d-%02d", y, t.m, t.d)
}

// AppendTime appends HH:MM:SS, with milliseconds after subsec.
func (t *Time) AppendTime(b []byte) []byte {
	b = fmt.Appendf(b, "%02d:%02d:", t.h, t.min)
	if t.subsec {
		ms := int(float64(1000*t.s) + 0.5)
		return fmt.Appendf(b, "%02d.%03d", ms/1000, ms%1000)
	}
	return fmt.Appendf(b, "%02d", int(t.s))
}

func (t *Time) appendConversion(b []byte, c byte) []byte {
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
			return fmt.Appendf(b, "%.3f", float64(t.jd-UnixZero)/1000)
		}
		unix, _, _ := t.Unix()
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
		return sqltext.AppendReal(b, float64(t.jd)/dayMillis, 16, false)
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
