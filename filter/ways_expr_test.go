//go:build !lite

package filter

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/builtin"
	"github.com/expr-lang/expr/conf"
	exprparser "github.com/expr-lang/expr/parser"
)

// readBack returns f decided by what the text of its translation is when parsed. The
// parser must make the same tree of it.
func readBack(f *Filter) *Filter {
	if f.root == nil {
		return nil
	}
	config := conf.Config{Disabled: map[string]bool{}}
	for _, name := range slices.Collect(maps.Keys(builtin.Index)) {
		config.Disabled[name] = true // lower and others are SQLite's
	}
	text := f.Expr()
	tree, err := exprparser.ParseWithConfig(text, &config)
	if err != nil {
		panic(fmt.Sprintf("filter %q: %s: %v", f.text, text, err))
	}
	if got, want := dump(tree.Node), dump(new(translator).cond(f.root, true)); got != want {
		panic(fmt.Sprintf("filter %q: %s reads back as\n%s\nnot\n%s", f.text, text, got, want))
	}
	again := &Filter{text: f.text, root: f.root}
	again.evaluator.once.Do(func() {
		again.evaluator.program, again.evaluator.native, again.evaluator.err = compile(tree.Node)
	})
	return again
}

// dump writes a tree with the type of every node, unlike String.
func dump(n ast.Node) string {
	var b strings.Builder
	dumpTo(&b, n)
	return b.String()
}

func dumpTo(b *strings.Builder, n ast.Node) {
	list := func(what string, nodes ...ast.Node) {
		b.WriteString("(" + what)
		for _, n := range nodes {
			b.WriteByte(' ')
			dumpTo(b, n)
		}
		b.WriteByte(')')
	}
	switch n := n.(type) {
	case *ast.NilNode:
		b.WriteString("nil")
	case *ast.BoolNode:
		fmt.Fprint(b, n.Value)
	case *ast.StringNode:
		fmt.Fprintf(b, "%+q", n.Value)
	case *ast.IntegerNode:
		fmt.Fprintf(b, "int %d", n.Value)
	case *ast.FloatNode:
		fmt.Fprintf(b, "float %x", n.Value)
	case *ast.IdentifierNode:
		b.WriteString("$" + n.Value)
	case *ast.UnaryNode:
		list(n.Operator, n.Node)
	case *ast.BinaryNode:
		list(n.Operator, n.Left, n.Right)
	case *ast.ConditionalNode:
		list("if", n.Cond, n.Exp1, n.Exp2)
	case *ast.VariableDeclaratorNode:
		list("let "+n.Name, n.Value, n.Expr)
	case *ast.ArrayNode:
		list("list", n.Nodes...)
	case *ast.CallNode:
		list("call", append([]ast.Node{n.Callee}, n.Arguments...)...)
	default:
		panic(fmt.Sprintf("a node of type %T", n))
	}
}

// valueByExpr computes the value of a filter by a program.
func valueByExpr(f *Filter, r Row, now int64) (value, error) {
	program, native, err := compile(new(translator).value(f.root))
	if err != nil {
		return value{}, err
	}
	fr := frame{row: r, now: now}
	m := machine{program: program, native: native, variables: map[string]any{eventName: &fr}, texts: map[string]any{}}
	m.load(&r)
	v, err := m.vm.Run(program, m.variables)
	return valueOf(v), err
}
