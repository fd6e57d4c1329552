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

// betweenLazy does not look at the upper bound when the lower one decides.
func (f *frame) betweenLazy(n *node) tri {
	x := f.value(n.left)
	low := f.value(n.right)
	if compareAs(opGe, x, low, n.cmp, n.coll) == isFalse {
		return triOf(n.neg)
	}
	return f.between(n, x, low, f.value(n.aux.high))
}

// value computes n as SQLite computes an expression into a register: AND and OR
// evaluate both sides, only CASE, iif and coalesce are lazy.
func (f *frame) value(n *node) value {
	switch n.op {
	case opLiteral:
		return n.lit
	case opColumn:
		return f.column(n.col)
	}
	return f.compute(n)
}

// compute is value for what has operands. It is apart because its many
// temporaries would make value slow for columns and literals.
func (f *frame) compute(n *node) value {
	switch n.op {
	case opCollate:
		return f.value(n.left)
	case opNot:
		return f.value(n.left).truth().not().value()
	case opAnd:
		return f.value(n.left).truth().and(f.value(n.right).truth()).value()
	case opOr:
		return f.value(n.left).truth().or(f.value(n.right).truth()).value()
	case opIsTrue:
		return boolValue(f.isTruth(n, f.value(n.left).truth()))
	case opIsNull:
		return boolValue((f.value(n.left).k == null) != n.neg)
	case opEq, opNe, opLt, opGe, opLe, opGt, opIs, opIsNot:
		return f.comparison(n, f.value(n.left), f.value(n.right)).value()
	case opBetween:
		x := f.value(n.left)
		return f.between(n, x, f.value(n.right), f.value(n.aux.high)).value()
	case opIn:
		return f.in(n).value()
	case opLike, opGlob:
		return f.like(n).value()
	case opCase:
		return f.caseValue(n)
	case opCast:
		return f.value(n.left).cast(n.aff)
	case opCall:
		return f.call(n)
	case opArrow, opArrowText:
		return f.keep(arrow(n.op, f.value(n.left), n.aux.path))
	case opNegate, opPlus, opBitNot:
		return unary(n.op, f.value(n.left))
	case opConcat:
		return f.keep(concat(f.value(n.left), f.value(n.right)))
	}
	return arithmetic(n.op, f.value(n.left), f.value(n.right))
}

// call evaluates a function (docs/spec/filter.md, section 10).
func (f *frame) call(n *node) value {
	switch n.fn {
	case fnCoalesce:
		for _, a := range n.args {
			if v := f.value(a); v.k != null {
				return v
			}
		}
		return value{}
	case fnIif:
		if f.holds(n.args[0], true) {
			return f.value(n.args[1])
		}
		return f.value(n.args[2])
	case fnMin, fnMax:
		var store [4]value
		args := store[:0]
		for _, a := range n.args {
			args = append(args, f.value(a))
		}
		return extreme(n.fn, args)
	case fnChar:
		var b []byte
		for _, a := range n.args {
			b = appendCharOf(b, f.value(a))
		}
		return textValue(string(b))
	}
	var args [3]value
	for i, a := range n.args {
		if i >= len(args) || n.fn != fnStrftime && i > 0 && n.aux.literal() {
			break // a path or modifiers, read by the checker
		}
		args[i] = f.value(a)
	}
	return f.keep(n.apply(args, f.now))
}

func (f *frame) caseValue(n *node) value {
	if n.left == nil {
		for i := 0; i < len(n.args); i += 2 {
			if f.holds(n.args[i], true) {
				return f.value(n.args[i+1])
			}
		}
	} else {
		base := f.value(n.left)
		for i := 0; i < len(n.args); i += 2 {
			w := n.args[i]
			if compareAs(opEq, base, f.value(w), comparisonAffinity(n.left.aff, w.aff), byBytes) == isTrue {
				return f.value(n.args[i+1])
			}
		}
	}
	if n.right == nil {
		return value{}
	}
	return f.value(n.right)
}

func (f *frame) like(n *node) tri {
	p := n.aux.pattern
	if p == nil {
		return f.likeDynamic(n)
	}
	if l := n.left; l.op == opColumn && l.col != colID {
		s, ok := f.textColumn(l.col)
		if !ok {
			return unknown
		}
		return triOf(p.Match(s) != n.neg)
	}
	x := f.value(n.left)
	if x.k == null {
		return unknown
	}
	return triOf(p.Match(x.text()) != n.neg)
}

// likeDynamic takes the pattern from the event.
func (f *frame) likeDynamic(n *node) tri {
	x := f.value(n.left)
	t, err := likeValues(x, f.value(n.right), n.aux.wild)
	if err != nil {
		f.fail(err)
	}
	if n.neg {
		return t.not()
	}
	return t
}

func (f *frame) in(n *node) tri {
	t := f.member(n)
	if n.neg {
		return t.not()
	}
	return t
}

// member is x IN (…); the list is not empty.
func (f *frame) member(n *node) tri {
	if n.aux.texts {
		return f.textMember(n)
	}
	x := f.value(n.left)
	if n.aux.lookUp {
		return n.aux.members(n).member(x)
	}
	t := isFalse
	for _, e := range n.args {
		switch compareAs(opEq, x, f.value(e), n.cmp, n.coll) {
		case isTrue:
			return isTrue
		case unknown:
			t = unknown
		}
	}
	return t
}
