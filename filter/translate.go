//go:build !lite

package filter

import (
	"strconv"
	"strings"

	"github.com/expr-lang/expr/ast"
)

// The translation to expr needs no third truth value at run time. For each condition
// there are two translations: T is true exactly when the condition is TRUE in SQL, F
// exactly when it is FALSE; with NULL neither is true:
//
//	T(NOT a) = F(a)        T(a AND b) = T(a) && T(b)    T(a < b) = lt(a, b)
//	F(NOT a) = T(a)        F(a AND b) = F(a) || F(b)    F(a < b) = ge(a, b)
//
// A comparison of a column with a literal of the class of the column is an operator of expr.
// Everything else is a call: a comparison is false with nil on either side. An affinity
// is a call around the operand, a collation a suffix of the name. A boolean that is used
// as a value is a call of a three-valued function: eq3(a, b) is 1, 0 or nil.
//
// The text is the whole translation: parsing it and linking the functions (see link.go)
// makes the same program.

// translator translates one filter.
type translator struct{ variables int }

// comparisons are expr's operators and the names of the functions, by op.
var comparisons = [...]struct{ operator, function string }{
	{"==", "eq"}, {"!=", "ne"}, {"<", "lt"}, {">=", "ge"}, {"<=", "le"}, {">", "gt"}, {"==", "is"}, {"!=", "isnot"},
}

var collations = [...]string{byBytes: "", noCase: "_nocase", rTrim: "_rtrim"}

// cond returns T(n) if want, otherwise F(n).
func (t *translator) cond(n *node, want bool) ast.Node {
	switch n.op {
	case opNot:
		return t.cond(n.left, !want)
	case opAnd, opOr:
		operator := "||"
		if (n.op == opAnd) == want {
			operator = "&&"
		}
		return operation(operator, t.cond(n.left, want), t.cond(n.right, want))
	case opIsTrue:
		return not(t.cond(n.left, n.lit.i != 0), n.neg == want)
	case opEq, opNe, opLt, opGe, opLe, opGt, opIs, opIsNot:
		return t.comparison(n, want)
	case opIsNull:
		return t.isNull(n, want != n.neg)
	case opIn:
		return t.in(n, want != n.neg)
	case opBetween:
		return t.between(n, want != n.neg)
	case opLike, opGlob:
		return t.like(n, want != n.neg)
	case opLiteral:
		return &ast.BoolNode{Value: n.lit.truth() == triOf(want)}
	case opCase:
		if n.left == nil {
			return t.caseOf(n, func(a *node) ast.Node {
				if a == nil {
					return &ast.BoolNode{}
				}
				return t.cond(a, want)
			})
		}
	case opCall:
		if n.fn == fnIif {
			return choice(t.cond(n.args[0], true), t.cond(n.args[1], want), t.cond(n.args[2], want))
		}
		if n.fn == fnJSONValid && n.args[0].isText() && n.args[0].col != colSubtype {
			return not(call("isjson", t.value(n.args[0])), !want)
		}
		if column, substring, ok := n.position(); ok {
			return t.contains(column, substring, want)
		}
	}
	if want {
		return call("truthy", t.value(n))
	}
	return call("falsy", t.value(n))
}

// isText reports whether n is a column of texts.
func (n *node) isText() bool { return n.op == opColumn && n.col != colID }

// nullable reports whether n may be NULL and is read by operators of expr, of which
// some do not take nil.
func (n *node) nullable() bool { return n.op == opColumn && n.col == colSubtype }

// guarded is condition where n is not NULL.
func (t *translator) guarded(n *node, condition ast.Node) ast.Node {
	if !n.nullable() {
		return condition
	}
	return operation("&&", operation("!=", t.value(n), &ast.NilNode{}), condition)
}

func (t *translator) comparison(n *node, want bool) ast.Node {
	if column, substring, ok := n.left.position(); ok && n.right.op == opLiteral && n.right.lit.k == integer {
		switch [2]int64{int64(n.op), n.right.lit.i} {
		case [2]int64{int64(opGt), 0}, [2]int64{int64(opGe), 1}, [2]int64{int64(opNe), 0}:
			return t.contains(column, substring, want)
		case [2]int64{int64(opEq), 0}, [2]int64{int64(opLt), 1}, [2]int64{int64(opLe), 0}:
			return t.contains(column, substring, !want)
		}
	}
	o := n.op
	if !want {
		o = opposite(o)
	}
	return t.compare(o, n.left, n.right, n.cmp, n.coll)
}

// opposite is the comparison that is TRUE where o is FALSE.
func opposite(o op) op { return opEq + (o - opEq) ^ 1 }

// compare returns T(l o r), with the operands not yet converted to the affinity aff.
func (t *translator) compare(o op, l, r *node, aff affinity, coll collation) ast.Node {
	l, r = l.literalOf(aff), r.literalOf(aff)
	names := comparisons[o-opEq]
	if coll != byBytes || !operatorTakes(l, r) {
		return call(names.function+collations[coll], t.converted(l, aff), t.converted(r, aff))
	}
	c := operation(names.operator, t.value(l), t.value(r))
	if o == opEq || o == opIs || o == opIsNot {
		return c
	}
	return t.guarded(r, t.guarded(l, c))
}

// operatorTakes reports whether expr's own operators compare l and r as SQLite does. It
// compares integers as int, which is too short for an id on 32 bits.
func operatorTakes(l, r *node) bool {
	switch {
	case l.isText() && r.isText():
		return !l.nullable() || !r.nullable()
	case r.op != opLiteral || l.op != opColumn:
		return false
	case l.isText():
		return r.lit.k == text
	}
	return r.lit.k == integer && strconv.IntSize == 64
}

// literalOf returns a literal converted to the affinity of the other side, and any
// other node as it is.
func (n *node) literalOf(aff affinity) *node {
	if n.op != opLiteral || aff == affNone {
		return n
	}
	literal := *n
	if aff.numeric() {
		literal.lit = n.lit.withNumericAffinity()
	} else {
		literal.lit = n.lit.withTextAffinity()
	}
	return &literal
}

// converted is the value of n with the affinity aff applied. A node that has the
// affinity itself needs no conversion.
func (t *translator) converted(n *node, aff affinity) ast.Node {
	switch {
	case aff == affNone || n.op == opLiteral || n.aff == aff || n.aff.numeric() && aff.numeric():
		return t.value(n.literalOf(aff))
	case aff.numeric():
		return call("number", t.value(n))
	case n.isDateText():
		return t.value(n)
	}
	return call("text", t.value(n))
}

// isDateText reports whether n is a date as text, as it is mostly next to created_at.
func (n *node) isDateText() bool {
	return n.op == opCall && (n.fn == fnDate || n.fn == fnDateTime || n.fn == fnStrftime)
}

// position recognises instr(column, 'literal').
func (n *node) position() (column *node, substring string, ok bool) {
	if n.op != opCall || n.fn != fnInstr || !n.args[0].isText() || n.args[1].op != opLiteral || n.args[1].lit.k != text {
		return nil, "", false
	}
	return n.args[0], n.args[1].lit.s, true
}

// contains is whether the column contains a literal, or whether it does not.
func (t *translator) contains(column *node, substring string, want bool) ast.Node {
	c := operation("contains", t.value(column), &ast.StringNode{Value: substring})
	if want {
		return c // false for nil
	}
	return t.guarded(column, not(c, true))
}

func (t *translator) isNull(n *node, want bool) ast.Node {
	if n.left.op == opColumn && !n.left.nullable() {
		return &ast.BoolNode{Value: !want}
	}
	operator := "!="
	if want {
		operator = "=="
	}
	return operation(operator, t.value(n.left.strip()), &ast.NilNode{})
}

func (t *translator) like(n *node, want bool) ast.Node {
	if prefix, ok := n.prefix(); ok {
		c := operation("startsWith", t.value(n.left), &ast.StringNode{Value: prefix})
		if want {
			return c // false for nil
		}
		return t.guarded(n.left, not(c, true))
	}
	name := "like"
	if n.op == opGlob {
		name = "glob"
	}
	if !want && n.left.isText() && !n.left.nullable() && n.aux.pattern != nil {
		return not(call(name, t.patternArguments(n)...), true)
	}
	if !want {
		name = "un" + name
	}
	return call(name, t.patternArguments(n)...)
}

// prefix recognises column GLOB 'prefix*' with an ASCII prefix. The characters of other
// prefixes are not compared as bytes (see sqltext.ReadChar).
func (n *node) prefix() (string, bool) {
	if n.op != opGlob || !n.left.isText() || n.aux.pattern == nil {
		return "", false
	}
	prefix, ok := strings.CutSuffix(n.aux.pattern.Text, "*")
	for i := range len(prefix) {
		ok = ok && prefix[i] < 0x80 && strings.IndexByte("*?[", prefix[i]) < 0
	}
	return prefix, ok
}

func (t *translator) patternArguments(n *node) []ast.Node {
	args := []ast.Node{t.value(n.left), t.value(n.right)}
	if n.aux.escape != nil {
		args = append(args, t.value(n.aux.escape))
	}
	return args
}

// caseOf is CASE without a base, or with one that once has made simple.
func (t *translator) caseOf(n *node, result func(*node) ast.Node) ast.Node {
	whole := result(n.right)
	for i := len(n.args) - 2; i >= 0; i -= 2 {
		var when ast.Node
		if n.left == nil {
			when = t.cond(n.args[i], true)
		} else {
			when = t.compare(opEq, n.left, n.args[i], comparisonAffinity(n.left.aff, n.args[i].aff), byBytes)
		}
		whole = choice(when, result(n.args[i+1]), whole)
	}
	return whole
}

// once calls body with n or, where n is more than a column or a literal, with a
// variable that holds its value: n is evaluated once.
func (t *translator) once(n *node, body func(*node) ast.Node) ast.Node {
	if n.op == opColumn || n.op == opLiteral || n.op == opVariable {
		return body(n)
	}
	t.variables++
	v := &node{op: opVariable, aff: n.aff, aux: &aux{name: "v" + strconv.Itoa(t.variables)}}
	return let(v.aux.name, t.value(n), body(v))
}

func operation(operator string, l, r ast.Node) ast.Node {
	return &ast.BinaryNode{Operator: operator, Left: l, Right: r}
}

// joined joins parts in order, with as little nesting as possible.
func joined(operator string, parts []ast.Node) ast.Node {
	if len(parts) == 1 {
		return parts[0]
	}
	half := len(parts) / 2
	return operation(operator, joined(operator, parts[:half]), joined(operator, parts[half:]))
}

// not negates c, if that is asked for.
func not(c ast.Node, really bool) ast.Node {
	if !really {
		return c
	}
	switch n := c.(type) {
	case *ast.BoolNode:
		return &ast.BoolNode{Value: !n.Value}
	case *ast.UnaryNode:
		return n.Node
	case *ast.BinaryNode:
		switch n.Operator {
		case "==":
			return operation("!=", n.Left, n.Right)
		case "!=":
			return operation("==", n.Left, n.Right)
		}
	}
	return &ast.UnaryNode{Operator: "not", Node: c}
}

func choice(condition, yes, no ast.Node) ast.Node {
	return &ast.ConditionalNode{Ternary: true, Cond: condition, Exp1: yes, Exp2: no}
}

func call(name string, args ...ast.Node) ast.Node {
	return &ast.CallNode{Callee: &ast.IdentifierNode{Value: name}, Arguments: args}
}

// let is body with a variable. The call around it is for the text, in which expr does not
// put a declaration in parentheses; linking removes it.
func let(name string, v, body ast.Node) ast.Node {
	return call(withFunction, &ast.VariableDeclaratorNode{Name: name, Value: v, Expr: body})
}

const withFunction = "with"
