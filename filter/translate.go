package filter

import (
	"fmt"
	"reflect"

	"github.com/expr-lang/expr/ast"
	exprchecker "github.com/expr-lang/expr/checker"
	"github.com/expr-lang/expr/compiler"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/file"
	exprparser "github.com/expr-lang/expr/parser"
	"github.com/expr-lang/expr/vm"
)

// translate turns a checked tree into an expr program over a *frame.
//
// expr has no NULL of SQL's kind, so a condition is translated by polarity
// (docs/spec/filter.md, section 16): "it is true" and "it is false" are two programs of
// two values, both false for NULL. AND, OR, NOT, IS TRUE, CASE and iif become
// &&, ||, ! and ?: of expr; every other condition is a leaf, a Go function of
// the frame called with $env. Each node is translated once, so the program is as
// long as the filter.
//
// A leaf is put into the tree as a constant of type func(any) bool, which expr
// calls directly: no reflection, and no argument slice to allocate. The tree is
// built rather than written as text, because a quoted literal would not keep
// arbitrary bytes.
func translate(root *node) (*vm.Program, error) {
	config := &conf.Config{Optimize: true, ShortCircuit: true, Disabled: map[string]bool{}}
	config.WithEnv(&frame{})
	config.Expect = reflect.Bool
	tree := &exprparser.Tree{Node: condition(root, true), Source: file.NewSource("")}
	if _, err := exprchecker.Check(tree, config); err != nil {
		return nil, fmt.Errorf("filter: translation: %w", err)
	}
	program, err := compiler.Compile(tree, config)
	if err != nil {
		return nil, fmt.Errorf("filter: translation: %w", err)
	}
	return program, nil
}

// condition is the expr tree for "n is true" (want) or "n is false".
func condition(n *node, want bool) ast.Node {
	switch n.op {
	case opNot:
		return condition(n.left, !want)
	case opAnd, opOr:
		operator := "||"
		if (n.op == opAnd) == want {
			operator = "&&"
		}
		return &ast.BinaryNode{Operator: operator, Left: condition(n.left, want), Right: condition(n.right, want)}
	case opIsTrue:
		is := condition(n.left, n.lit.i != 0)
		if n.neg == want {
			return &ast.UnaryNode{Operator: "!", Node: is}
		}
		return is
	case opCase:
		if n.left == nil {
			return caseCondition(n, want)
		}
	case opCall:
		if n.fn == fnIif {
			return &ast.ConditionalNode{Cond: condition(n.args[0], true),
				Exp1: condition(n.args[1], want), Exp2: condition(n.args[2], want)}
		}
	}
	return leaf(n, want)
}

// caseCondition builds the chain of ?: from its end.
func caseCondition(n *node, want bool) ast.Node {
	var chain ast.Node = &ast.BoolNode{} // without ELSE it is NULL, neither true nor false
	if n.right != nil {
		chain = condition(n.right, want)
	}
	for i := len(n.args) - 2; i >= 0; i -= 2 {
		chain = &ast.ConditionalNode{Cond: condition(n.args[i], true), Exp1: condition(n.args[i+1], want), Exp2: chain}
	}
	return chain
}

func leaf(n *node, want bool) ast.Node {
	call := func(env any) bool { return env.(*frame).leaf(n, want) }
	return &ast.CallNode{
		Callee:    &ast.ConstantNode{Value: call},
		Arguments: []ast.Node{&ast.IdentifierNode{Value: "$env"}},
	}
}
