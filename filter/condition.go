package filter

import "strings"

// holds reports whether n, as a condition, is true (want) or is false (!want);
// for NULL both are false. It evaluates from left to right and stops as soon as
// the answer is known.
func (f *frame) holds(n *node, want bool) bool {
	switch n.op {
	case opNot:
		return f.holds(n.left, !want)
	case opAnd:
		if want {
			return f.holds(n.left, true) && f.holds(n.right, true)
		}
		return f.holds(n.left, false) || f.holds(n.right, false)
	case opOr:
		if want {
			return f.holds(n.left, true) || f.holds(n.right, true)
		}
		return f.holds(n.left, false) && f.holds(n.right, false)
	case opIsTrue:
		return (f.holds(n.left, n.lit.i != 0) != n.neg) == want
	case opCase:
		if n.left == nil {
			for i := 0; i < len(n.args); i += 2 {
				if f.holds(n.args[i], true) {
					return f.holds(n.args[i+1], want)
				}
			}
			return n.right != nil && f.holds(n.right, want)
		}
	case opCall:
		if n.fn == fnIif {
			if f.holds(n.args[0], true) {
				return f.holds(n.args[1], want)
			}
			return f.holds(n.args[2], want)
		}
	}
	return f.leaf(n, want)
}

// leaf is holds for a node that is none of AND, OR, NOT, IS TRUE and CASE WHEN.
func (f *frame) leaf(n *node, want bool) bool {
	var t tri
	switch n.op {
	case opEq, opNe, opLt, opGe, opLe, opGt, opIs, opIsNot:
		t = f.compareColumn(n)
	case opBetween:
		t = f.betweenLazy(n)
	case opIn:
		t = f.in(n)
	case opLike, opGlob:
		t = f.like(n)
	case opIsNull:
		return ((f.value(n.left).k == null) != n.neg) == want
	default:
		t = f.value(n).truth()
	}
	return t == triOf(want) && f.err == nil
}

// compareColumn is a comparison, short for a column next to a separate literal
// class, which the checker has put on the right.
func (f *frame) compareColumn(n *node) tri {
	l, r := n.left, n.right
	if l.op != opColumn || r.op != opLiteral || n.coll != byBytes {
		return f.comparison(n, f.value(l), f.value(r))
	}
	var c int
	switch {
	case r.lit.k == text && l.col != colID:
		s, ok := f.textColumn(l.col)
		switch {
		case !ok:
			switch n.op {
			case opIs:
				return isFalse
			case opIsNot:
				return isTrue
			}
			return unknown
		case n.op == opEq || n.op == opIs:
			return triOf(s == r.lit.s)
		case n.op == opNe || n.op == opIsNot:
			return triOf(s != r.lit.s)
		}
		c = strings.Compare(s, r.lit.s)
	case r.lit.k == integer && l.col == colID:
		c = order(f.row.ID, r.lit.i)
	default:
		return f.comparison(n, f.value(l), f.value(r))
	}
	return triOf(ordered(n.op, c))
}

// ordered reports whether an order of two values satisfies the comparison o.
func ordered(o op, c int) bool {
	switch o {
	case opEq, opIs:
		return c == 0
	case opNe, opIsNot:
		return c != 0
	case opLt:
		return c < 0
	case opGe:
		return c >= 0
	case opLe:
		return c <= 0
	}
	return c > 0
}

// betweenLazy does not look at the upper bound when the lower one decides.
func (f *frame) betweenLazy(n *node) tri {
	x := f.value(n.left)
	low := f.value(n.right)
	if compareAs(opGe, x, low, n.cmp, n.coll) == isFalse {
		return triOf(n.neg)
	}
	return f.between(n, x, low, f.value(n.aux.high))
}
