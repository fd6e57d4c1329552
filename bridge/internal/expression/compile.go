//go:build !edge

package expression

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/vm"
)

const (
	maxText  = 16 << 10
	maxNodes = 500
	// maxValue bounds, in bytes, what functions make whose result grows faster than their
	// arguments. Without those, declarations and loops, an expression takes time and
	// memory in proportion to its length and the length of its values.
	maxValue = 64 << 20
)

// Program is a compiled expression. Several goroutines may run it at once.
type Program struct{ p *vm.Program }

// functions are the functions of expr that an expression may call. The others loop, tell the
// time, or allocate without a bound.
var functions = []string{"len", "int", "float", "upper", "lower", "trim", "trimPrefix", "trimSuffix", "hasPrefix", "hasSuffix", "toBase64", "fromBase64"}

var options = []expr.Option{
	expr.DisableAllBuiltins(), expr.MaxNodes(maxNodes),
	expr.Function("string", func(a ...any) (any, error) { return String(a[0]), nil }, new(func(any) string)),
	expr.Function("toJSON", toJSON, new(func(any) string)),
	expr.Function("fromJSON", func(a ...any) (any, error) { return JSON([]byte(a[0].(string))) }, new(func(string) any)),
	expr.Function("split", split, new(func(string, string) []any)),
	expr.Function("join", join, new(func([]any, string) string), new(func([]any) string)),
	expr.Function("replace", replace, new(func(string, string, string) string)),
}

func init() {
	for _, name := range functions {
		options = append(options, expr.EnableBuiltin(name))
	}
}

// Compile reads an expression over the fields of env, a struct whose values do not
// matter. Its error is one line with the place.
func Compile(text string, env any) (*Program, error) {
	if len(text) > maxText {
		return nil, fmt.Errorf("it has %d bytes, more than %d", len(text), maxText)
	}
	v := &visitor{added: map[ast.Node]bool{}}
	p, err := expr.Compile(text, append(options[:len(options):len(options)], expr.Env(env), expr.Patch(v))...)
	if err != nil {
		return nil, oneLine(err)
	}
	if err = v.refused; err != nil {
		return nil, oneLine(err)
	}
	return &Program{p}, nil
}

// Run computes the value over env, of the type that Compile was given.
func (p *Program) Run(env any) (any, error) {
	v, err := expr.Run(p.p, env)
	if err != nil {
		return nil, oneLine(err)
	}
	return v, nil
}

// oneLine puts an error of expr into one line.
func oneLine(err error) error {
	var at *file.Error
	if !errors.As(err, &at) {
		return errors.New(strings.ReplaceAll(err.Error(), "\n", " "))
	}
	what := strings.ReplaceAll(at.Message, "\n", " ")
	if at.Line > 1 {
		return fmt.Errorf("%s (line %d, column %d)", what, at.Line, at.Column+1)
	}
	return fmt.Errorf("%s (column %d)", what, at.Column+1)
}

// visitor refuses loops, which expr knows although its builtins are disabled, and
// declarations, by which a text could double in each of them. A header
// that is missing is nil to ?? and to comparisons, and "" everywhere else.
type visitor struct {
	added   map[ast.Node]bool // made here
	refused error
}

// Visit implements ast.Visitor. The parts of a node are visited before it.
func (v *visitor) Visit(node *ast.Node) {
	switch n := (*node).(type) {
	case *ast.VariableDeclaratorNode:
		v.refuse(n, "let")
	case *ast.BuiltinNode:
		if !slices.Contains(functions, n.Name) {
			v.refuse(n, n.Name)
		}
	case *ast.MemberNode:
		if of, ok := n.Node.(*ast.IdentifierNode); ok && of.Value == "headers" {
			with := &ast.BinaryNode{Operator: "??", Left: n, Right: &ast.StringNode{Value: ""}}
			ast.Patch(node, with)
			v.added[with] = true
		}
	case *ast.BinaryNode:
		switch n.Operator {
		case "??":
			n.Left = v.bare(n.Left)
		case "==", "!=":
			n.Left, n.Right = v.bare(n.Left), v.bare(n.Right)
		}
	}
}

func (v *visitor) refuse(n ast.Node, name string) {
	if v.refused == nil {
		v.refused = fmt.Errorf("%s is not available here (character %d)", name, n.Location().From+1)
	}
}

// bare returns the node of a header without what was added.
func (v *visitor) bare(n ast.Node) ast.Node {
	if v.added[n] {
		return n.(*ast.BinaryNode).Left
	}
	return n
}

var errTooLarge = fmt.Errorf("a text of more than %d bytes", maxValue)

func toJSON(a ...any) (any, error) {
	b, err := json.Marshal(a[0])
	return string(b), err
}

func split(a ...any) (any, error) {
	s, by := a[0].(string), a[1].(string)
	if n := strings.Count(s, by); n > maxValue/64 {
		return nil, fmt.Errorf("a list of %d elements", n+1)
	}
	list := []any{}
	for part := range strings.SplitSeq(s, by) {
		list = append(list, part)
	}
	return list, nil
}

func join(a ...any) (any, error) {
	by := ""
	if len(a) == 2 {
		by = a[1].(string)
	}
	var parts []string
	size := 0
	for _, x := range a[0].([]any) {
		s, ok := x.(string)
		if !ok {
			return nil, fmt.Errorf("join of a list with %T", x)
		}
		if size += len(s) + len(by); size > maxValue {
			return nil, errTooLarge
		}
		parts = append(parts, s)
	}
	return strings.Join(parts, by), nil
}

func replace(a ...any) (any, error) {
	s, old, with := a[0].(string), a[1].(string), a[2].(string)
	if n := strings.Count(s, old); len(with) > 0 && n > 0 && n > (maxValue-min(len(s), maxValue))/len(with) {
		return nil, errTooLarge
	}
	return strings.ReplaceAll(s, old, with), nil
}
