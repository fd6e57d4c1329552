//go:build !lite

package filter

import (
	"math"
	"strconv"
	"strings"

	"github.com/expr-lang/expr/ast"

	"thread/filter/internal/sqljson"
	"thread/filter/internal/sqltext"
)

// value returns the expression of n as a value: nil, an integer, a float or a string.
func (t *translator) value(n *node) ast.Node {
	switch n.op {
	case opLiteral:
		return literal(n.lit)
	case opColumn:
		return &ast.IdentifierNode{Value: columnNames[n.col]}
	case opVariable:
		return &ast.IdentifierNode{Value: n.aux.name}
	case opCollate, opPlus:
		return t.value(n.left)
	case opNot:
		return call("not3", t.value(n.left))
	case opAnd:
		return call("and3", t.value(n.left), t.value(n.right))
	case opOr:
		return call("or3", t.value(n.left), t.value(n.right))
	case opIsTrue:
		name := "truthy"
		if n.lit.i == 0 {
			name = "falsy"
		}
		return number(not(call(name, t.value(n.left)), n.neg))
	case opIsNull:
		return number(t.isNull(n, !n.neg))
	case opEq, opNe, opLt, opGe, opLe, opGt, opIs, opIsNot:
		return t.compare3(n.op, n.left, n.right, n.cmp, n.coll)
	case opBetween:
		return t.negated(n, t.once(n.left, func(x *node) ast.Node { // both bounds are evaluated
			return call("and3", t.compare3(opGe, x, n.right, n.cmp, n.coll), t.compare3(opLe, x, n.aux.high, n.aux.cmp, n.coll))
		}))
	case opIn:
		return t.negated(n, t.in3(n))
	case opLike:
		return t.negated(n, call("like3", t.patternArguments(n)...))
	case opGlob:
		return t.negated(n, call("glob3", t.patternArguments(n)...))
	case opCase:
		return t.caseValue(n)
	case opCast:
		return call("cast_"+castNames[n.aff], t.value(n.left))
	case opArrow:
		return call("json_node", t.value(n.left), pathText(n.aux.path))
	case opArrowText:
		return call("json_extract", t.value(n.left), pathText(n.aux.path))
	case opCall:
		return t.call(n)
	case opNegate, opBitNot:
		return call(operatorNames[n.op], t.value(n.left))
	}
	return call(operatorNames[n.op], t.value(n.left), t.value(n.right))
}

var castNames = [...]string{affText: "text", affInteger: "integer", affReal: "real", affNumeric: "numeric"}

// operatorNames are the functions that compute operators.
var operatorNames = map[op]string{
	opConcat: "concat", opAdd: "add", opSub: "sub", opMul: "mul", opDiv: "div", opRem: "rem", opBitAnd: "bitand",
	opBitOr: "bitor", opShiftLeft: "shl", opShiftRight: "shr", opNegate: "neg", opBitNot: "bitnot",
}

func (t *translator) negated(n *node, v ast.Node) ast.Node {
	if n.neg {
		return call("not3", v)
	}
	return v
}

// compare3 is a comparison as a value: 1, 0 or nil.
func (t *translator) compare3(o op, l, r *node, aff affinity, coll collation) ast.Node {
	if o == opIs || o == opIsNot {
		return number(t.compare(o, l, r, aff, coll))
	}
	return call(comparisons[o-opEq].function+"3"+collations[coll], t.converted(l, aff), t.converted(r, aff))
}

// in3 is IN as a value. Elements after a match are not evaluated, which matters only
// where one can fail.
func (t *translator) in3(n *node) ast.Node {
	if !n.failingElement() {
		return call("in3"+collations[n.coll], t.elements(n)...)
	}
	return t.once(n.left, func(x *node) ast.Node { return t.inAny(n, x, n.args) })
}

func (t *translator) inAny(n, x *node, list []*node) ast.Node {
	if len(list) == 1 {
		return t.compare3(opEq, x, list[0], n.cmp, n.coll)
	}
	half := len(list) / 2
	t.variables++
	first := &ast.IdentifierNode{Value: "v" + strconv.Itoa(t.variables)}
	return let(first.Value, t.inAny(n, x, list[:half]),
		choice(call("truthy", first), &ast.IntegerNode{Value: 1}, call("or3", first, t.inAny(n, x, list[half:]))))
}

func (t *translator) caseValue(n *node) ast.Node {
	result := func(a *node) ast.Node {
		if a == nil {
			return &ast.NilNode{}
		}
		return t.value(a)
	}
	if n.left == nil {
		return t.caseOf(n, result)
	}
	return t.once(n.left, func(base *node) ast.Node {
		simple := *n
		simple.left = base
		return t.caseOf(&simple, result)
	})
}

func (t *translator) call(n *node) ast.Node {
	switch n.fn {
	case fnIif:
		return choice(t.cond(n.args[0], true), t.value(n.args[1]), t.value(n.args[2]))
	case fnCoalesce:
		return t.coalesce(n.args)
	}
	args := make([]ast.Node, len(n.args))
	for i, a := range n.args {
		args[i] = t.value(a)
	}
	return call(strings.ToLower(n.aux.name), args...)
}

func (t *translator) coalesce(args []*node) ast.Node {
	if len(args) == 1 {
		return t.value(args[0])
	}
	half := len(args) / 2
	return operation("??", t.coalesce(args[:half]), t.coalesce(args[half:]))
}

// between is lower and upper bound in this order: the upper bound is not evaluated where
// the lower is FALSE.
func (t *translator) between(n *node, want bool) ast.Node {
	return t.once(n.left, func(x *node) ast.Node {
		high := n.aux.high
		if !want {
			return operation("||", t.compare(opLt, x, n.right, n.cmp, n.coll), t.compare(opGt, x, high, n.aux.cmp, n.coll))
		}
		atMost := t.compare(opLe, x, high, n.aux.cmp, n.coll)
		if !high.fails {
			return operation("&&", t.compare(opGe, x, n.right, n.cmp, n.coll), atMost)
		}
		// Where the lower bound is NULL, the upper one is evaluated, and may fail.
		t.variables++
		low := &ast.IdentifierNode{Value: "v" + strconv.Itoa(t.variables)}
		return let(low.Value, t.compare3(opGe, x, n.right, n.cmp, n.coll),
			operation("&&", operation("&&", not(call("falsy", low), true), atMost), call("truthy", low)))
	})
}

// in is T of IN, or F. Only expr's own operator or a call takes the list where no element
// can fail: elements after a match are not evaluated.
func (t *translator) in(n *node, want bool) ast.Node {
	if list, hasNull, ok := n.operands(); ok {
		return t.inList(n.left, list, hasNull, want)
	}
	if n.failingElement() && !want {
		return call("falsy", t.in3(n)) // also NULL does not end the search
	}
	if n.failingElement() {
		return t.once(n.left, func(x *node) ast.Node {
			parts := make([]ast.Node, len(n.args))
			for i, e := range n.args {
				parts[i] = t.compare(opEq, x, e, n.cmp, n.coll)
			}
			return joined("||", parts)
		})
	}
	name := "oneof"
	if !want {
		name = "noneof"
	}
	return call(name+collations[n.coll], t.elements(n)...)
}

func (t *translator) inList(column *node, list []ast.Node, hasNull, want bool) ast.Node {
	if !want && hasNull {
		return &ast.BoolNode{}
	}
	var c ast.Node
	switch len(list) {
	case 0:
		return &ast.BoolNode{}
	case 1:
		c = operation("==", t.value(column), list[0])
	default:
		c = operation("in", t.value(column), &ast.ArrayNode{Nodes: list})
	}
	if want && !hasEmpty(list) {
		return c
	}
	return t.guarded(column, not(c, !want))
}

// hasEmpty reports whether an empty text is in a list: for a linked list, which is a map,
// it would be equal to nil.
func hasEmpty(list []ast.Node) bool {
	for _, e := range list {
		if s, ok := e.(*ast.StringNode); ok && s.Value == "" {
			return true
		}
	}
	return false
}

// operands returns the elements of an IN list, if expr's own operator takes them.
func (n *node) operands() (list []ast.Node, hasNull, ok bool) {
	if n.coll != byBytes || n.left.op != opColumn {
		return nil, false, false
	}
	for _, e := range n.args {
		switch e = e.literalOf(n.cmp); {
		case e.op == opLiteral && e.lit.k == null:
			hasNull = true
		case !operatorTakes(n.left, e) || e.op != opLiteral:
			return nil, false, false
		default:
			list = append(list, literal(e.lit))
		}
	}
	return list, hasNull, true
}

// failingElement reports whether evaluating an element of IN can fail. Then the elements
// after a match must not be evaluated.
func (n *node) failingElement() bool {
	for _, e := range n.args {
		if e.fails {
			return true
		}
	}
	return false
}

func (t *translator) elements(n *node) []ast.Node {
	args := []ast.Node{t.value(n.left)}
	for _, e := range n.args {
		args = append(args, t.converted(e, n.cmp))
	}
	return args
}

// number is a condition that is never NULL as a value.
func number(c ast.Node) ast.Node {
	return choice(c, &ast.IntegerNode{Value: 1}, &ast.IntegerNode{Value: 0})
}

// literal is v as the text of expr can hold it: what would read back as another value
// is a call.
func literal(v value) ast.Node {
	switch v.k {
	case text:
		return &ast.StringNode{Value: v.s}
	case integer:
		if v.i > math.MaxInt32 && strconv.IntSize == 32 || v.i < -math.MaxInt32 && strconv.IntSize == 32 || v.i == math.MinInt64 {
			return call("integer", &ast.StringNode{Value: sqltext.FormatInt(v.i)})
		}
		if v.i < 0 {
			return minus(&ast.IntegerNode{Value: int(-v.i)})
		}
		return &ast.IntegerNode{Value: int(v.i)}
	case real:
		s := strconv.FormatFloat(math.Abs(v.f), 'g', -1, 64)
		if math.IsInf(v.f, 0) || v.f == 0 || !strings.ContainsAny(s, ".e") {
			return call("real", &ast.StringNode{Value: strconv.FormatFloat(v.f, 'g', -1, 64)})
		}
		if v.f < 0 {
			return minus(&ast.FloatNode{Value: -v.f})
		}
		return &ast.FloatNode{Value: v.f}
	}
	return &ast.NilNode{}
}

func minus(n ast.Node) ast.Node { return &ast.UnaryNode{Operator: "-", Node: n} }

// pathText is a JSON path as sqljson.ParsePath reads it.
func pathText(path []sqljson.Step) ast.Node {
	var b strings.Builder
	b.WriteByte('$')
	for _, s := range path {
		switch {
		case s.Label == nil && s.FromEnd:
			b.WriteString("[#-" + strconv.Itoa(s.Index) + "]")
		case s.Label == nil:
			b.WriteString("[" + strconv.Itoa(s.Index) + "]")
		case *s.Label == "" || strings.ContainsAny(*s.Label, ".[") || (*s.Label)[0] == '"':
			b.WriteString(`."` + *s.Label + `"`)
		default:
			b.WriteString("." + *s.Label)
		}
	}
	return &ast.StringNode{Value: b.String()}
}
