//go:build !lite

package filter

import (
	"strconv"

	"github.com/expr-lang/expr/ast"
)

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

func (t *translator) elements(n *node) []ast.Node {
	args := []ast.Node{t.value(n.left)}
	for _, e := range n.args {
		args = append(args, t.converted(e, n.cmp))
	}
	return args
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
