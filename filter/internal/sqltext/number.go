// Package sqltext reads and writes numbers and characters in texts as SQLite does.
package sqltext

import (
	"fmt"
	"math"
	"strconv"
)

// Number is the numeric prefix of a text.
type Number struct {
	F     float64
	I     int64
	Real  bool // f holds the number, otherwise i does
	Found bool // there is a numeric prefix at all; if not, the number is INTEGER 0
	Whole bool // nothing but white space surrounds the number
}

// AsReal returns the number as a REAL.
func (n Number) AsReal() float64 {
	if n.Real {
		return n.F
	}
	return float64(n.I)
}

// IsSpace is white space inside texts: SQLite's sqlite3Isspace.
func IsSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

// IsDigit reports whether c is an ASCII digit.
func IsDigit(c byte) bool { return c >= '0' && c <= '9' }

// IsHexDigit reports whether c is an ASCII digit or a letter from a to f.
func IsHexDigit(c byte) bool {
	return IsDigit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// ScanNumber reads the numeric prefix of s: white space, a sign, digits with an
// optional fraction, and an exponent when a digit follows it (docs/spec/filter.md,
// section 5). It is INTEGER without fraction and exponent, if it fits.
func ScanNumber(s string) Number {
	i := 0
	for i < len(s) && IsSpace(s[i]) {
		i++
	}
	start := i
	if i < len(s) && (s[i] == '-' || s[i] == '+') {
		i++
	}
	digits := i
	for i < len(s) && IsDigit(s[i]) {
		i++
	}
	count := i - digits
	isReal := false
	if i < len(s) && s[i] == '.' {
		j := i + 1
		for j < len(s) && IsDigit(s[j]) {
			j++
		}
		if count += j - i - 1; count > 0 {
			i, isReal = j, true
		}
	}
	if count == 0 {
		return Number{}
	}
	if i < len(s) && (s[i] == 'e' || s[i] == 'E') {
		j := i + 1
		if j < len(s) && (s[j] == '-' || s[j] == '+') {
			j++
		}
		if j < len(s) && IsDigit(s[j]) {
			for j < len(s) && IsDigit(s[j]) {
				j++
			}
			i, isReal = j, true
		}
	}
	n := Number{Found: true, Real: isReal}
	end := i
	for i < len(s) && IsSpace(s[i]) {
		i++
	}
	n.Whole = i == len(s)
	if !isReal {
		var fits bool
		if n.I, fits = ParseInteger(s[start:end]); fits {
			return n
		}
		n.I, n.Real = 0, true
	}
	n.F = ParseReal(s[start:end])
	return n
}

// ParseReal reads a decimal number that the caller has already delimited.
// Beyond the range of float64 it is an infinity.
func ParseReal(s string) float64 {
	if len(s) > safeDigits {
		s = cutDigits(s)
	}
	f, _ := strconv.ParseFloat(s, 64)
	return f
}

// safeDigits is how many digits a uint64 always holds.
const safeDigits = 19

// cutDigits drops the digits that SQLite's sqlite3AtoF does not look at: it
// gathers the significand in a uint64 and counts further digits as zeros. They
// would decide how a number just above a tie is rounded.
func cutDigits(s string) string {
	const full = (math.MaxUint64 - 9) / 10
	b := make([]byte, 0, 32)
	i := 0
	if s[0] == '-' || s[0] == '+' {
		b = append(b, s[0])
		i++
	}
	var u uint64
	exp, fraction := 0, false
	for ; i < len(s) && (IsDigit(s[i]) || s[i] == '.'); i++ {
		switch {
		case s[i] == '.':
			fraction = true
			continue
		case u < full:
			u = u*10 + uint64(s[i]-'0')
			if fraction {
				exp--
			}
		case !fraction:
			exp++
		}
	}
	if i < len(s) { // an exponent, clamped to the range of int
		e, _ := strconv.Atoi(s[i+1:])
		exp += max(-10_000, min(e, 10_000))
	}
	b = strconv.AppendUint(b, u, 10)
	b = append(b, 'e')
	return string(strconv.AppendInt(b, int64(exp), 10))
}

// ParseInteger reads an optional sign and digits. When they do not fit int64 it
// gives the nearest int64 and false.
func ParseInteger(s string) (int64, bool) {
	neg := false
	if s != "" && (s[0] == '-' || s[0] == '+') {
		neg, s = s[0] == '-', s[1:]
	}
	var u uint64
	limit := uint64(math.MaxInt64)
	if neg {
		limit++
	}
	for i := 0; i < len(s); i++ {
		d := uint64(s[i] - '0')
		if u > (limit-d)/10 {
			if neg {
				return math.MinInt64, false
			}
			return math.MaxInt64, false
		}
		u = u*10 + d
	}
	if neg {
		return int64(-u), true
	}
	return int64(u), true
}

// ScanInteger reads the leading integer digits of s, 0 without any, clamped to
// int64.
func ScanInteger(s string) int64 {
	i := 0
	for i < len(s) && IsSpace(s[i]) {
		i++
	}
	start := i
	if i < len(s) && (s[i] == '-' || s[i] == '+') {
		i++
	}
	for i < len(s) && IsDigit(s[i]) {
		i++
	}
	n, _ := ParseInteger(s[start:i])
	return n
}

// FormatInt returns i as SQLite prints it.
func FormatInt(i int64) string { return strconv.FormatInt(i, 10) }

// FormatReal is SQLite's %!.15g: 15 significant digits, always with a point,
// with an exponent below 1e-4 and from 1e15 on (docs/spec/filter.md, section 5).
func FormatReal(f float64) string {
	switch {
	case f == 0:
		return "0.0" // also for -0.0
	case math.IsInf(f, 1):
		return "Inf"
	case math.IsInf(f, -1):
		return "-Inf"
	}
	var b [40]byte
	return string(AppendReal(b[:0], f, 15, true))
}

// AppendReal is %.<n>g, with a point in any case if point is set. f is finite
// and not zero.
func AppendReal(b []byte, f float64, n int, point bool) []byte {
	if f < 0 {
		b, f = append(b, '-'), -f
	}
	var buffer [64]byte
	digits, exp := roundHalfUp(buffer[:0], f, n)
	whole := exp + 1 // digits before the point
	switch {
	case exp < -4 || exp >= n:
		whole = 1
	case exp < 0:
		b = append(b, "0."...)
		for range -exp - 1 {
			b = append(b, '0')
		}
		return append(b, digits...)
	}
	for i := 0; i < whole || i < len(digits); i++ {
		if i == whole {
			b = append(b, '.')
		}
		if i < len(digits) {
			b = append(b, digits[i])
		} else {
			b = append(b, '0')
		}
	}
	if len(digits) <= whole && point {
		b = append(b, ".0"...)
	}
	if exp < -4 || exp >= n {
		b = fmt.Appendf(b, "e%+03d", exp)
	}
	return b
}

// roundHalfUp gives n significant digits of f, which is positive, without zeros
// at the end, and the decimal exponent of the first. SQLite rounds on the decimal
// digits, 5 upwards, where strconv rounds a tie to even.
func roundHalfUp(buffer []byte, f float64, n int) ([]byte, int) {
	const enough = 40 // more digits than decide whether f lies below a tie
	e := strconv.AppendFloat(buffer, f, 'e', enough-1, 64)
	mark := len(e) - 1
	for e[mark] != 'e' {
		mark--
	}
	exp, _ := strconv.Atoi(string(e[mark+1:]))
	e[1] = e[0] // over the point
	digits := e[1:mark]
	up := digits[n] >= '5'
	digits = digits[:n]
	for i := n - 1; up && i >= 0; i-- {
		if digits[i]++; digits[i] > '9' {
			digits[i] = '0'
			continue
		}
		up = false
	}
	if up {
		return append(digits[:0], '1'), exp + 1
	}
	for len(digits) > 1 && digits[len(digits)-1] == '0' {
		digits = digits[:len(digits)-1]
	}
	return digits, exp
}
