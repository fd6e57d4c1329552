package filter

import (
	"math"

	"thread/event"
	"thread/filter/internal/like"
)

// Row is the event that a filter is evaluated on. The strings may alias memory that is only
// valid during the call. They may hold any bytes.
type Row struct {
	ID                                        int64
	CreatedAt, Source, Type, Subtype, Content string
	HasSubtype                                bool // false: subtype is NULL
}

// RowOf returns the event as a filter sees it, with the strings of the event itself.
func RowOf(e *event.Event) Row {
	row := Row{ID: e.ID, CreatedAt: e.CreatedAt, Source: e.Source, Type: e.Type, Content: e.Content}
	if e.Subtype != nil {
		row.Subtype, row.HasSubtype = *e.Subtype, true
	}
	return row
}

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
