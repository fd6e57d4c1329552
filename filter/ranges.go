package filter

import (
	"math"
	"strings"
	"thread/filter/internal/like"
	"thread/filter/internal/sqltext"
)

// A range says where a column must lie for the filter to match. It is read off
// the conditions that the filter joins with AND (and, as the hull of both sides,
// OR), and it is sound: outside of it the filter is not true, and no condition
// that can fail is reached on the way from left to right.

// span is a range of values of type T; it may be empty.
type span[T any] struct {
	all  T // no restriction
	and  func(a, b T) T
	or   func(a, b T) T
	leaf func(n *node, want bool) T
}

func (s *span[T]) of(n *node, want bool) T {
	switch n.op {
	case opNot:
		return s.of(n.left, !want)
	case opAnd, opOr:
		if (n.op == opAnd) == want {
			left := s.of(n.left, want)
			if n.left.fails {
				return left
			}
			return s.and(left, s.of(n.right, want))
		}
		if n.fails {
			return s.all
		}
		return s.or(s.of(n.left, want), s.of(n.right, want))
	case opIsTrue:
		if n.neg != want {
			return s.of(n.left, n.lit.i != 0)
		}
		return s.all
	}
	if n.fails {
		return s.all
	}
	return s.leaf(n, want)
}

// comparisonWith gives the operator and the literal of a comparison of column c
// with a literal, by bytes. The checker has put the column on the left.
func comparisonWith(n *node, c column, want bool) (op, value, bool) {
	o := n.op
	if o < opEq || o > opIsNot || n.coll != byBytes {
		return 0, value{}, false
	}
	l, r := n.left, n.right
	if l.op != opColumn || l.col != c || r.op != opLiteral {
		return 0, value{}, false
	}
	if r.lit.k == null {
		return 0, value{}, false
	}
	if !want {
		o = negated[o-opEq]
	}
	return o, r.lit, true
}

// negated is what a comparison with a literal that is not NULL is when it is
// false, for a column that is never NULL.
var negated = [...]op{
	0: opNe, opNe - opEq: opEq, opLt - opEq: opGe, opGe - opEq: opLt,
	opLe - opEq: opGt, opGt - opEq: opLe, opIs - opEq: opIsNot, opIsNot - opEq: opIs,
}

type intRange struct{ low, high int64 }

var (
	allInts = intRange{math.MinInt64, math.MaxInt64}
	noInts  = intRange{math.MaxInt64, math.MinInt64}
)

func (a intRange) and(b intRange) intRange {
	return intRange{max(a.low, b.low), min(a.high, b.high)}
}

func (a intRange) or(b intRange) intRange {
	switch {
	case a.low > a.high:
		return b
	case b.low > b.high:
		return a
	}
	return intRange{min(a.low, b.low), max(a.high, b.high)}
}

// IDRange returns the ids [low, high] outside of which nothing matches and
// nothing can fail. If no id matches, low is greater than high.
func (f *Filter) IDRange() (low, high int64) {
	if f.root == nil {
		return math.MinInt64, math.MaxInt64
	}
	s := span[intRange]{all: allInts, and: intRange.and, or: intRange.or, leaf: idRange}
	r := s.of(f.root, true)
	return r.low, r.high
}

func idRange(n *node, want bool) intRange {
	if o, v, ok := comparisonWith(n, colID, want); ok {
		return idBound(o, v)
	}
	if n.left == nil || n.left.op != opColumn || n.left.col != colID || n.neg == want {
		return allInts
	}
	switch n.op {
	case opBetween:
		r := allInts
		for _, b := range [...]struct {
			o     op
			bound *node
		}{{opGe, n.right}, {opLe, n.aux.high}} {
			if b.bound.op == opLiteral && b.bound.lit.k != null {
				r = r.and(idBound(b.o, b.bound.lit))
			}
		}
		return r
	case opIn:
		r := noInts
		for _, e := range n.args {
			if e.op != opLiteral {
				return allInts
			}
			if e.lit.k != null {
				r = r.or(idBound(opEq, e.lit))
			}
		}
		return r
	}
	return allInts
}

// idBound is the range of the integers x for which "x o v" is true.
func idBound(o op, v value) intRange {
	below, at := int64(math.MaxInt64), false // the greatest integer <= v, and whether it is v
	switch v.k {
	case integer:
		below, at = v.i, true
	case real:
		switch floor := math.Floor(v.f); {
		case floor < math.MinInt64:
			if o == opLt || o == opLe || o == opEq || o == opIs {
				return noInts
			}
			return allInts
		case floor < -math.MinInt64:
			below, at = int64(floor), floor == v.f
		}
	}
	switch o {
	case opEq, opIs:
		if at {
			return intRange{below, below}
		}
		return noInts
	case opLe:
		return intRange{math.MinInt64, below}
	case opLt:
		if at && below == math.MinInt64 {
			return noInts
		}
		if at {
			below--
		}
		return intRange{math.MinInt64, below}
	case opGe:
		if at {
			return intRange{below, math.MaxInt64}
		}
		fallthrough
	case opGt:
		if below == math.MaxInt64 {
			return noInts
		}
		return intRange{below + 1, math.MaxInt64}
	}
	return allInts
}

// textRange is low <= x, and x < high if it is bounded, and x begins with prefix
// when its ASCII letters are put in lower case.
type textRange struct {
	low, high string
	bounded   bool
	prefix    string
}

func (a textRange) empty() bool { return a.bounded && a.low >= a.high }

func (a textRange) and(b textRange) textRange {
	r := textRange{low: max(a.low, b.low), prefix: a.prefix}
	if len(b.prefix) > len(a.prefix) {
		r.prefix = b.prefix
	}
	switch {
	case a.bounded && b.bounded:
		r.high, r.bounded = min(a.high, b.high), true
	case a.bounded:
		r.high, r.bounded = a.high, true
	case b.bounded:
		r.high, r.bounded = b.high, true
	}
	return r
}

func (a textRange) or(b textRange) textRange {
	switch {
	case a.empty():
		return b
	case b.empty():
		return a
	}
	r := textRange{low: min(a.low, b.low), prefix: a.prefix}
	for !strings.HasPrefix(b.prefix, r.prefix) {
		r.prefix = r.prefix[:len(r.prefix)-1]
	}
	if a.bounded && b.bounded {
		r.high, r.bounded = max(a.high, b.high), true
	}
	return r
}

// SourceRange returns the bounds that source must lie in, by bytes, for the
// filter to match or to fail: low <= source, and source < high unless high is
// empty. exact is true when low is the only possible value. Without any knowledge
// it returns "", "", false. If no source matches, high is not empty and low >=
// high.
func (f *Filter) SourceRange() (low, high string, exact bool) {
	r := f.textRange(colSource)
	return r.low, r.high, r.bounded && r.high == r.low+"\x00"
}

// SourcePrefix returns what source must begin with, when its ASCII letters are put in
// lower case, for the filter to match or to fail. LIKE folds letters, so that the
// bounds of [Filter.SourceRange] are wide for it: from 'A:%' to 'a:%' lies nearly
// everything.
func (f *Filter) SourcePrefix() string { return f.textRange(colSource).prefix }

// TypeRange is [Filter.SourceRange] for type.
func (f *Filter) TypeRange() (low, high string) {
	r := f.textRange(colType)
	return r.low, r.high
}

// CreatedAtRange is [Filter.SourceRange] for the text of created_at.
func (f *Filter) CreatedAtRange() (low, high string) {
	r := f.textRange(colCreatedAt)
	return r.low, r.high
}

// nothing is empty and not written like "no knowledge".
var nothing = textRange{low: "\x00", high: "\x00", bounded: true}

func (f *Filter) textRange(c column) textRange {
	if f.root == nil {
		return textRange{}
	}
	return rangeOf(f.root, c)
}

// rangeOf is textRange for a part of the filter.
func rangeOf(n *node, c column) textRange {
	s := span[textRange]{and: textRange.and, or: textRange.or}
	s.leaf = func(n *node, want bool) textRange { return textLeaf(n, c, want) }
	r := s.of(n, true)
	if r.empty() {
		return nothing
	}
	return r
}

func textLeaf(n *node, c column, want bool) textRange {
	if o, v, ok := comparisonWith(n, c, want); ok {
		return textBound(o, v.s)
	}
	if n.left == nil || n.left.op != opColumn || n.left.col != c || n.neg == want {
		return textRange{}
	}
	switch n.op {
	case opBetween:
		r := textRange{}
		if n.coll != byBytes {
			return r
		}
		if n.right.op == opLiteral && n.right.lit.k == text {
			r = r.and(textBound(opGe, n.right.lit.s))
		}
		if h := n.aux.high; h.op == opLiteral && h.lit.k == text {
			r = r.and(textBound(opLe, h.lit.s))
		}
		return r
	case opIn:
		r := nothing
		for _, e := range n.args {
			if e.op != opLiteral || n.coll != byBytes {
				return textRange{}
			}
			if e.lit.k == text {
				r = r.or(textBound(opEq, e.lit.s))
			}
		}
		return r
	case opLike, opGlob:
		if n.aux.pattern != nil {
			return prefixRange(n.aux.pattern)
		}
	}
	return textRange{}
}

// textBound is the range of the texts x for which "x o s" is true.
func textBound(o op, s string) textRange {
	after := s + "\x00" // the least text after s
	switch o {
	case opEq, opIs:
		return textRange{low: s, high: after, bounded: true, prefix: lowerPrefix(s)}
	case opLt:
		return textRange{high: s, bounded: true}
	case opLe:
		return textRange{high: after, bounded: true}
	case opGe:
		return textRange{low: s}
	case opGt:
		return textRange{low: after}
	}
	return textRange{}
}

// prefixRange is where a text that matches p must lie.
func prefixRange(p *like.Pattern) textRange {
	low, high, ok := p.Prefix()
	if !ok {
		return nothing
	}
	return prefixed(low, high)
}

// prefixed is the range from low to the last text that begins with high, which
// is ASCII.
func prefixed(low, high string) textRange {
	if high == "" {
		return textRange{}
	}
	last := len(high) - 1
	return textRange{low: low, high: high[:last] + string(rune(high[last]+1)), bounded: true, prefix: lowerPrefix(high)}
}

// lowerPrefix is the ASCII characters that s begins with, in lower case.
func lowerPrefix(s string) string {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s) && s[i] < 0x80; i++ {
		b = append(b, sqltext.LowerASCII(s[i]))
	}
	return string(b)
}
