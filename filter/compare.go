package filter

import (
	"math"
	"strings"
	"thread/filter/internal/sqltext"
)

// collation orders two texts.
type collation uint8

const (
	byBytes collation = iota
	noCase            // ASCII letters fold, and a text ends at its first NUL if equal so far
	rTrim             // trailing spaces do not count
)

// compare orders two values that are not NULL, after affinity: numbers before
// texts, numbers by value, texts by collation (docs/spec/filter.md, section 6).
func compare(a, b value, c collation) int {
	switch {
	case a.k == text && b.k == text:
		return compareText(a.s, b.s, c)
	case a.k == text:
		return 1
	case b.k == text:
		return -1
	case a.k == integer && b.k == integer:
		return order(a.i, b.i)
	case a.k == integer:
		return compareIntReal(a.i, b.f)
	case b.k == integer:
		return -compareIntReal(b.i, a.f)
	}
	return order(a.f, b.f)
}

func order[T int64 | float64 | int](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// compareIntReal compares exactly, also where float64 cannot hold i.
func compareIntReal(i int64, r float64) int {
	switch {
	case r < math.MinInt64:
		return 1
	case r >= -math.MinInt64:
		return -1
	}
	whole := int64(r)
	if i != whole {
		return order(i, whole)
	}
	return order(float64(i), r)
}

func compareText(a, b string, c collation) int {
	switch c {
	case noCase:
		return compareNoCase(a, b)
	case rTrim:
		return strings.Compare(strings.TrimRight(a, " "), strings.TrimRight(b, " "))
	}
	return strings.Compare(a, b)
}

// compareNoCase is sqlite3StrNICmp over the shorter length, then the lengths:
// two texts that agree up to a common NUL are compared by length alone.
func compareNoCase(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		x, y := sqltext.LowerASCII(a[i]), sqltext.LowerASCII(b[i])
		if x != y {
			return order(int(x), int(y))
		}
		if a[i] == 0 {
			break
		}
	}
	return order(len(a), len(b))
}

// comparisonAffinity is the affinity two operands are compared with
// (datatype3.html, section 4.2).
func comparisonAffinity(a, b affinity) affinity {
	switch {
	case a != affNone && b != affNone:
		if a.numeric() || b.numeric() {
			return affNumeric
		}
		return affNone
	case a != affNone:
		return a
	}
	return b
}

// applyAffinity prepares two values for comparison.
func applyAffinity(a, b value, aff affinity) (value, value) {
	switch {
	case a.k == b.k && a.k != text:
	case aff.numeric():
		a, b = a.withNumericAffinity(), b.withNumericAffinity()
	case aff == affText && (a.k == text || b.k == text):
		a, b = a.withTextAffinity(), b.withTextAffinity()
	}
	return a, b
}
