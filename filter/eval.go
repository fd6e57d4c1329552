package filter

import (
	"math"

	"thread/filter/internal/like"
)

// frame is the state of one evaluation. Every method that finds an error keeps
// the first one in err and gives NULL or false; what is computed after that does
// not count.
type frame struct {
	row Row
	now int64 // milliseconds since Julian day 0
	err error

	known columns // that row holds, for outcome
}

func (f *frame) fail(err error) value {
	if f.err == nil {
		f.err = err
	}
	return value{}
}

// keep returns v, or fails with err.
func (f *frame) keep(v value, err error) value {
	if err != nil {
		return f.fail(err)
	}
	return v
}

// textColumn gives a column that is not id, and whether it is not NULL.
func (f *frame) textColumn(c column) (string, bool) {
	switch c {
	case colSource:
		return f.row.Source, true
	case colType:
		return f.row.Type, true
	case colContent:
		return f.row.Content, true
	case colCreatedAt:
		return f.row.CreatedAt, true
	}
	return f.row.Subtype, f.row.HasSubtype
}

// column gives the value of a column.
func (f *frame) column(c column) value {
	if c == colID {
		return intValue(f.row.ID)
	}
	s, ok := f.textColumn(c)
	if !ok {
		return value{}
	}
	return textValue(s)
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

// isTruth is x IS [NOT] TRUE or FALSE for the truth of x.
func (f *frame) isTruth(n *node, t tri) bool {
	want := triOf(n.lit.i != 0)
	return (t == want) != n.neg
}

func (f *frame) comparison(n *node, a, b value) tri {
	return compareAs(n.op, a, b, n.cmp, n.coll)
}

// compareAs is one comparison with the given affinity and collation.
func compareAs(o op, a, b value, aff affinity, coll collation) tri {
	if a.k == null || b.k == null {
		switch o {
		case opIs:
			return triOf(a.k == b.k)
		case opIsNot:
			return triOf(a.k != b.k)
		}
		return unknown
	}
	if aff != affNone {
		a, b = applyAffinity(a, b, aff)
	}
	if a.k == text && b.k == text && coll == byBytes {
		switch o { // equality needs no order
		case opEq, opIs:
			return triOf(a.s == b.s)
		case opNe, opIsNot:
			return triOf(a.s != b.s)
		}
	}
	return triOf(ordered(o, compare(a, b, coll)))
}

// between is x >= low AND x <= high, negated for NOT BETWEEN.
func (f *frame) between(n *node, x, low, high value) tri {
	a := compareAs(opGe, x, low, n.cmp, n.coll)
	b := compareAs(opLe, x, high, n.aux.cmp, n.coll)
	t := a.and(b)
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

// textMember is member for a short list of texts next to a TEXT column.
func (f *frame) textMember(n *node) tri {
	s, ok := f.textColumn(n.left.col)
	if !ok {
		return unknown
	}
	for _, e := range n.args {
		if e.lit.s == s {
			return isTrue
		}
	}
	return isFalse
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

// likeValues is x LIKE p, or GLOB, by the like.Wildcards w.
func likeValues(x, p value, w like.Wildcards) (tri, error) {
	if p.k == null {
		return unknown, nil
	}
	pt := p.text()
	if len(pt) > like.MaxBytes {
		return unknown, errPattern
	}
	if x.k == null {
		return unknown, nil
	}
	return triOf(like.Match(pt, x.text(), w)), nil
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

func unary(o op, v value) value {
	if v.k == null || o == opPlus {
		return v
	}
	if o == opBitNot {
		return intValue(^v.int64())
	}
	n := v.number()
	if n.k == integer && n.i != math.MinInt64 {
		return intValue(-n.i)
	}
	if n.k == integer {
		return realValue(-float64(n.i))
	}
	return realValue(0 - n.f)
}
