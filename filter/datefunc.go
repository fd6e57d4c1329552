package filter

import (
	"strings"

	"thread/filter/internal/sqldate"
)

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

// moment computes the time a date function is asked for: v with its modifiers, or now
// when no time is given. alone says that v is the only argument.
func (n *node) moment(v value, given, alone bool, now int64) (t sqldate.Time, ok bool) {
	switch {
	case !given:
		t.SetNow(now)
	case v.k == null:
		return t, false
	case v.k == text:
		if !t.Parse(v.s, now) {
			return t, false
		}
	default:
		t.SetRaw(v.asReal())
	}
	return t, t.Finish(n.aux.mods, alone)
}

// date evaluates a date function.
func (n *node) date(v value, given, alone bool, now int64) value {
	t, ok := n.moment(v, given, alone, now)
	if !ok {
		return value{}
	}
	switch n.fn {
	case fnJulianDay:
		return realValue(t.JulianDay())
	case fnUnixEpoch:
		seconds, fraction, whole := t.Unix()
		if whole {
			return intValue(seconds)
		}
		return realValue(fraction)
	}
	t.Split()
	var b []byte
	switch n.fn {
	case fnStrftime:
		b = t.AppendFormat(b, n.aux.format)
	case fnDate:
		b = t.AppendDate(b)
	case fnTime:
		b = t.AppendTime(b)
	case fnDateTime:
		b = t.AppendTime(append(t.AppendDate(b), ' '))
	}
	return textValue(string(b))
}
