//go:build !lite

package filter

import (
	"fmt"
	"strconv"
	"strings"
	"thread/filter/internal/sqltext"

	"github.com/expr-lang/expr/ast"
)

// linker puts Go functions in the place of the names that a translation calls. What is
// known of a call is worked out once: a function closes over its literals, and reads a
// column from the frame, without expr making an interface value of it. The functions have
// the types that the virtual machine calls without reflection (vm.FuncTypes).
type linker struct {
	native columns // that operators of expr read
	err    error
}

// eventName is the variable that holds the frame.
const eventName = "event"

func (l *linker) fail(format string, args ...any) ast.Node {
	if l.err == nil {
		l.err = fmt.Errorf(format, args...)
	}
	return &ast.BoolNode{}
}

func (l *linker) link(n ast.Node) ast.Node {
	switch n := n.(type) {
	case *ast.NilNode, *ast.BoolNode, *ast.StringNode, *ast.IntegerNode, *ast.FloatNode:
	case *ast.IdentifierNode:
		if c, ok := columnOf(n.Value); ok {
			l.native |= c.set()
		}
	case *ast.UnaryNode:
		n.Node = l.link(n.Node)
		if v, ok := constant(n.Node); ok && n.Operator == "-" {
			return &ast.ConstantNode{Value: unary(opNegate, v).native()}
		}
	case *ast.BinaryNode:
		n.Left = l.link(n.Left)
		if list, ok := n.Right.(*ast.ArrayNode); ok {
			n.Right = l.set(list)
			return n
		}
		n.Right = l.link(n.Right)
	case *ast.ConditionalNode:
		n.Cond, n.Exp1, n.Exp2 = l.link(n.Cond), l.link(n.Exp1), l.link(n.Exp2)
	case *ast.VariableDeclaratorNode:
		n.Value, n.Expr = l.link(n.Value), l.link(n.Expr)
	case *ast.CallNode:
		return l.call(n)
	default:
		return l.fail("a node of type %T", n)
	}
	return n
}

// constant returns the value of a literal.
func constant(n ast.Node) (value, bool) {
	switch n := n.(type) {
	case *ast.NilNode:
		return value{}, true
	case *ast.StringNode:
		return textValue(n.Value), true
	case *ast.IntegerNode:
		return intValue(int64(n.Value)), true
	case *ast.FloatNode:
		return realValue(n.Value), true
	case *ast.ConstantNode:
		return valueOf(n.Value), true
	}
	return value{}, false
}

// set is the list of an operator in, as a map.
func (l *linker) set(list *ast.ArrayNode) ast.Node {
	texts, ints := map[string]struct{}{}, map[int]struct{}{}
	for _, e := range list.Nodes {
		switch v, _ := constant(l.link(e)); v.k {
		case text:
			texts[v.s] = struct{}{}
		case integer:
			ints[int(v.i)] = struct{}{}
		default:
			return l.fail("a list with an element that is not a text or an integer")
		}
	}
	switch {
	case len(ints) == 0:
		return &ast.ConstantNode{Value: texts}
	case len(texts) == 0:
		return &ast.ConstantNode{Value: ints}
	}
	return l.fail("a list of texts and integers")
}

// operand says where a linked function finds an argument.
type operand struct {
	from   place
	column column
	index  int // of the parameter
	lit    value
}

type place uint8

const (
	inLiteral place = iota
	inColumn        // of the frame, which is the first parameter
	inParameter
)

// passed are the parameters of a call: the first two, and the rest.
type passed struct {
	a, b any
	rest []any
}

func (o *operand) load(p passed) value {
	switch {
	case o.from == inColumn:
		return p.a.(*frame).column(o.column)
	case o.from == inLiteral:
		return o.lit
	case o.index == 0:
		return valueOf(p.a)
	case o.index == 1:
		return valueOf(p.b)
	}
	return valueOf(p.rest[o.index-2])
}

// call links a call: integer("…") and real("…") are literals, with(let …) is its
// argument, anything else a function.
func (l *linker) call(n *ast.CallNode) ast.Node {
	callee, ok := n.Callee.(*ast.IdentifierNode)
	if !ok || len(n.Arguments) == 0 && callee.Value == withFunction {
		return l.fail("a call of %s", n.Callee)
	}
	switch name := callee.Value; name {
	case withFunction:
		return l.link(n.Arguments[0])
	case "integer", "real":
		return l.number(n)
	}
	operands := make([]operand, len(n.Arguments))
	needsFrame := isDate(callee.Value)
	for i, a := range n.Arguments {
		if id, ok := a.(*ast.IdentifierNode); ok {
			if c, ok := columnOf(id.Value); ok {
				operands[i] = operand{from: inColumn, column: c}
				needsFrame = true
				continue
			}
		}
		a = l.link(a)
		n.Arguments[i] = a
		if v, ok := constant(a); ok {
			operands[i].lit = v
			continue
		}
		operands[i].from = inParameter
	}
	var parameters []ast.Node
	if needsFrame {
		parameters = append(parameters, &ast.IdentifierNode{Value: eventName})
	}
	for i := range operands {
		if operands[i].from == inParameter {
			operands[i].index = len(parameters)
			parameters = append(parameters, n.Arguments[i])
		}
	}
	fn := resolve(callee.Value, operands, len(parameters))
	if fn == nil {
		return l.fail("no function %s with %d arguments", callee.Value, len(operands))
	}
	return &ast.CallNode{Callee: &ast.ConstantNode{Value: fn}, Arguments: parameters}
}

// number is a literal that the text of expr cannot hold.
func (l *linker) number(n *ast.CallNode) ast.Node {
	if s, ok := n.Arguments[0].(*ast.StringNode); ok {
		if i, ok := sqltext.ParseInteger(s.Value); ok && n.Callee.String() == "integer" {
			return &ast.ConstantNode{Value: intValue(i).native()}
		}
		if f, err := strconv.ParseFloat(s.Value, 64); err == nil {
			return &ast.ConstantNode{Value: f}
		}
	}
	return l.fail("not a number: %s", n)
}

func isDate(name string) bool {
	switch fn, _, _ := lookupFunction(name); fn {
	case fnDate, fnDateTime, fnJulianDay, fnTime, fnUnixEpoch, fnStrftime:
		return true
	}
	return false
}

// valueOf is a value of expr as an SQL value.
func valueOf(v any) value {
	switch v := v.(type) {
	case string:
		return textValue(v)
	case int64:
		return intValue(v)
	case int:
		return intValue(int64(v))
	case float64:
		return realValue(v)
	}
	return value{}
}

// any is an SQL value as a value of expr.
func (v value) any() any {
	switch v.k {
	case text:
		return v.s
	case integer:
		return v.i
	case real:
		return v.f
	}
	return nil
}

// native is any with an integer as the operators of expr have it, where it fits.
func (v value) native() any {
	if v.k == integer && v.i == int64(int(v.i)) {
		return int(v.i)
	}
	return v.any()
}

// linked computes a call from the parameters that the virtual machine passes.
type linked func(passed) (value, error)

// tested is a linked condition.
type tested func(passed) (tri, error)

// condition returns the function for expr of a condition that is asked for want.
func condition(f tested, want tri, parameters int) any {
	test := func(p passed) bool {
		t, err := f(p)
		if err != nil {
			panic(err)
		}
		return t == want
	}
	switch parameters {
	case 0:
		return func() bool { return test(passed{}) }
	case 1:
		return func(a any) bool { return test(passed{a: a}) }
	case 2:
		return func(a, b any) bool { return test(passed{a: a, b: b}) }
	}
	return func(p ...any) any { return test(passed{p[0], p[1], p[2:]}) }
}

// computed returns the function for expr of a value.
func computed(f linked, parameters int) any {
	compute := func(p passed) any {
		v, err := f(p)
		if err != nil {
			panic(err)
		}
		return v.any()
	}
	switch parameters {
	case 0:
		return func() any { return compute(passed{}) }
	case 1:
		return func(a any) any { return compute(passed{a: a}) }
	case 2:
		return func(a, b any) any { return compute(passed{a: a, b: b}) }
	}
	return func(p ...any) any { return compute(passed{p[0], p[1], p[2:]}) }
}

// asked is how a call asks for a truth value: by the end of its name.
type asked struct {
	name  string
	coll  collation
	value bool // three-valued: the name ends with 3
}

func askedBy(name string) asked {
	a := asked{name: name}
	for c, suffix := range collations {
		if base, ok := strings.CutSuffix(a.name, suffix); ok && suffix != "" {
			a.name, a.coll = base, collation(c)
		}
	}
	a.name, a.value = strings.CutSuffix(a.name, "3")
	return a
}
