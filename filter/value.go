package filter

import (
	"math"
	"thread/filter/internal/sqltext"
)

// kind is the storage class of a value. The order is SQLite's sort order of the
// classes (datatype3.html, section 4.1), except that INTEGER and REAL compare by
// number.
type kind uint8

const (
	null kind = iota
	integer
	real
	text
)

// value is one SQL value. It is small enough to pass by value, and making one
// allocates nothing.
type value struct {
	s string  // TEXT: the bytes, any bytes
	i int64   // INTEGER
	f float64 // REAL, never NaN
	k kind
}

func intValue(i int64) value   { return value{k: integer, i: i} }
func textValue(s string) value { return value{k: text, s: s} }

// realValue makes a REAL; NaN is NULL (docs/spec/filter.md, section 5).
func realValue(f float64) value {
	if math.IsNaN(f) {
		return value{}
	}
	return value{k: real, f: f}
}

func boolValue(b bool) value {
	if b {
		return intValue(1)
	}
	return intValue(0)
}

// tri is a truth value of three-valued logic.
type tri uint8

const (
	unknown tri = iota // NULL
	isFalse
	isTrue
)

func triOf(b bool) tri {
	if b {
		return isTrue
	}
	return isFalse
}

func (t tri) not() tri {
	switch t {
	case isTrue:
		return isFalse
	case isFalse:
		return isTrue
	}
	return unknown
}

func (t tri) and(u tri) tri {
	if t == isFalse || u == isFalse {
		return isFalse
	}
	return min(t, u) // NULL is less than true
}

func (t tri) or(u tri) tri { return t.not().and(u.not()).not() }

func (t tri) value() value {
	if t == unknown {
		return value{}
	}
	return boolValue(t == isTrue)
}

// truth is the value read as a condition (docs/spec/filter.md, section 5): a number is
// true when it is not zero, a text when its numeric prefix is not zero.
func (v value) truth() tri {
	switch v.k {
	case null:
		return unknown
	case integer:
		return triOf(v.i != 0)
	case real:
		return triOf(v.f != 0)
	}
	n := sqltext.ScanNumber(v.s)
	return triOf(n.AsReal() != 0)
}

// text gives the value as TEXT; the value must not be NULL.
func (v value) text() string {
	switch v.k {
	case integer:
		return sqltext.FormatInt(v.i)
	case real:
		return sqltext.FormatReal(v.f)
	}
	return v.s
}

// number gives the value as INTEGER or REAL for arithmetic: a text becomes its
// numeric prefix, and INTEGER 0 without one. NULL stays NULL.
func (v value) number() value {
	if v.k != text {
		return v
	}
	n := sqltext.ScanNumber(v.s)
	if n.Real {
		return realValue(n.F)
	}
	return intValue(n.I)
}

// int64 gives the value as an integer for the bit operators, CAST and integer
// arguments: only the leading integer digits of a text count, a REAL is cut
// towards zero, and both are held within int64. The value must not be NULL.
func (v value) int64() int64 {
	switch v.k {
	case integer:
		return v.i
	case real:
		return realToInt(v.f)
	}
	return sqltext.ScanInteger(v.s)
}

// realToInt cuts towards zero and clamps, as sqlite3VdbeIntValue does.
func realToInt(f float64) int64 {
	switch {
	case f <= math.MinInt64:
		return math.MinInt64
	case f >= math.MaxInt64:
		return math.MaxInt64
	}
	return int64(f)
}

// affinity is the type affinity of an operand (datatype3.html, section 3).
// The three numeric affinities differ in CAST only.
type affinity uint8

const (
	affNone affinity = iota
	affText
	affInteger
	affReal
	affNumeric
)

func (a affinity) numeric() bool { return a >= affInteger }

// withNumericAffinity turns a text that is a number as a whole into that
// number and leaves everything else alone.
func (v value) withNumericAffinity() value {
	if v.k != text {
		return v
	}
	n := sqltext.ScanNumber(v.s)
	if !n.Whole {
		return v
	}
	if n.Real {
		return realValue(n.F)
	}
	return intValue(n.I)
}

// withTextAffinity turns a number into its text.
func (v value) withTextAffinity() value {
	if v.k == integer || v.k == real {
		return textValue(v.text())
	}
	return v
}

// cast is CAST(v AS a) (docs/spec/filter.md, section 9).
func (v value) cast(a affinity) value {
	if v.k == null {
		return v
	}
	switch a {
	case affText:
		return textValue(v.text())
	case affInteger:
		return intValue(v.int64())
	case affReal:
		switch v.k {
		case integer:
			return realValue(float64(v.i))
		case text:
			n := sqltext.ScanNumber(v.s)
			return realValue(n.AsReal())
		}
		return v
	}
	if v.k != text {
		return v
	}
	n := v.number()
	if n.k == real && math.Trunc(n.f) == n.f && math.Abs(n.f) < 1<<51 {
		return intValue(int64(n.f))
	}
	return n
}
