package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// mutant is one change to one file.
type mutant struct {
	path     string // relative to the root of the module
	function string // the enclosing function, or ""
	line     int    // from 1
	first    int    // the lines of the function, or of any file
	last     int
	ofCase   bool // an expression of a case, which no block has
	operator string
	from, to int // the bytes that text replaces
	text     string
	result   string // the changed line, without the spaces around it; from the second equal one of a function on, with its number
}

// key identifies the mutant while lines move.
func (m *mutant) key() string {
	return fmt.Sprintf("%s %s: %s: %s", m.path, m.function, m.operator, m.result)
}

func (m *mutant) String() string {
	return fmt.Sprintf("%s:%d %s: %s: %s", m.path, m.line, m.function, m.operator, m.result)
}

// apply returns source with the change.
func (m *mutant) apply(source []byte) []byte {
	return slices.Concat(source[:m.from], []byte(m.text), source[m.to:])
}

var (
	opposite = map[token.Token]token.Token{
		token.EQL: token.NEQ, token.NEQ: token.EQL, token.LSS: token.GEQ, token.GEQ: token.LSS, token.GTR: token.LEQ, token.LEQ: token.GTR,
	}
	boundary = map[token.Token]token.Token{
		token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	}
	swapped = map[token.Token]token.Token{token.LAND: token.LOR, token.LOR: token.LAND}
	shifted = map[token.Token]token.Token{
		token.ADD: token.SUB, token.SUB: token.ADD, token.INC: token.DEC, token.DEC: token.INC,
		token.ADD_ASSIGN: token.SUB_ASSIGN, token.SUB_ASSIGN: token.ADD_ASSIGN,
	}
)

// dropped are the calls without which a program looks right until it is killed, or
// until another one waits.
var dropped = []string{
	"Sync", "SyncDir", "Named", "NamedDir", "Fsync", "Fdatasync", "Unlock", "RUnlock", "unlock", "Close", "close", "Release", "release", "Rollback",
}

// mutants returns the mutants of the files, in the order of their places.
func mutants(root string, paths []string) ([]*mutant, error) {
	var all []*mutant
	for _, path := range paths {
		source, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			return nil, err
		}
		found, err := inFile(path, source)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// finder collects the mutants of one file.
type finder struct {
	path   string
	source []byte
	set    *token.FileSet
	above  []ast.Node // of the node that is being looked at, the file first
	found  []*mutant
}

func inFile(path string, source []byte) ([]*mutant, error) {
	f := &finder{path: path, source: source, set: token.NewFileSet()}
	file, err := parser.ParseFile(f.set, path, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if n == nil {
			f.above = f.above[:len(f.above)-1]
			return true
		}
		f.node(n)
		f.above = append(f.above, n)
		return true
	})
	slices.SortStableFunc(f.found, func(a, b *mutant) int { return a.from - b.from })
	times := map[string]int{}
	for _, m := range f.found {
		same := m.key()
		if times[same]++; times[same] > 1 {
			m.result += fmt.Sprintf(" (%d)", times[same])
		}
	}
	return f.found, nil
}

func (f *finder) node(n ast.Node) {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		f.binary(n)
	case *ast.IncDecStmt:
		f.token("±1", n.TokPos, n.Tok, shifted)
	case *ast.AssignStmt:
		f.token("±1", n.TokPos, n.Tok, shifted)
	case *ast.IfStmt:
		f.condition(n.Cond)
	case *ast.ForStmt:
		f.condition(n.Cond)
	case *ast.ReturnStmt:
		f.returned(n)
	case *ast.CallExpr:
		f.call(n)
	}
}

func (f *finder) binary(n *ast.BinaryExpr) {
	f.token("comparison", n.OpPos, n.Op, opposite)
	f.token("boundary", n.OpPos, n.Op, boundary)
	f.token("and/or", n.OpPos, n.Op, swapped)
	_, left := number(n.X)
	value, right := number(n.Y)
	if left || right {
		f.token("±1", n.OpPos, n.Op, shifted)
	}
	if _, compares := opposite[n.Op]; compares && right {
		f.add("±1", n.Y.Pos(), n.Y.End(), strconv.FormatInt(value+1, 10))
	}
}

// number returns the value of a decimal literal. Characters and hexadecimal numbers
// name things and do not count them.
func number(e ast.Expr) (int64, bool) {
	literal, ok := e.(*ast.BasicLit)
	if !ok || literal.Kind != token.INT {
		return 0, false
	}
	value, err := strconv.ParseInt(literal.Value, 10, 32)
	return value, err == nil
}

// condition negates what is not a single comparison: those have an opposite.
func (f *finder) condition(cond ast.Expr) {
	if cond == nil {
		return
	}
	if not, ok := cond.(*ast.UnaryExpr); ok && not.Op == token.NOT {
		f.add("negation", not.OpPos, not.X.Pos(), "")
		return
	}
	if b, ok := cond.(*ast.BinaryExpr); ok && opposite[b.Op] != 0 {
		return
	}
	f.add("negation", cond.Pos(), cond.End(), "!("+f.text(cond.Pos(), cond.End())+")")
}

// returned swallows the error of a function whose last result is one.
func (f *finder) returned(n *ast.ReturnStmt) {
	results := f.results()
	if results == nil || len(n.Results) != results.NumFields() {
		return
	}
	last := n.Results[len(n.Results)-1]
	if kind, ok := results.List[len(results.List)-1].Type.(*ast.Ident); !ok || kind.Name != "error" {
		return
	}
	if name, ok := last.(*ast.Ident); ok && name.Name == "nil" {
		return
	}
	f.add("error swallowed", last.Pos(), last.End(), "nil")
}

// results returns the results of the innermost function, nil when it has none.
func (f *finder) results() *ast.FieldList {
	for _, n := range slices.Backward(f.above) {
		switch n := n.(type) {
		case *ast.FuncLit:
			return n.Type.Results
		case *ast.FuncDecl:
			return n.Type.Results
		}
	}
	return nil
}

// call drops a call and still uses what it names, so that the file compiles.
func (f *finder) call(n *ast.CallExpr) {
	name := f.text(n.Fun.Pos(), n.Fun.End())
	if short := name[strings.LastIndexByte(name, '.')+1:]; !slices.Contains(dropped, short) {
		return
	}
	if name == "close" {
		name = f.text(n.Args[0].Pos(), n.Args[0].End())
	}
	const operator = "call dropped"
	switch parent := f.above[len(f.above)-1].(type) {
	case *ast.ExprStmt:
		f.add(operator, parent.Pos(), parent.End(), "_ = "+name)
	case *ast.DeferStmt:
		f.add(operator, parent.Pos(), parent.End(), "_ = "+name)
	default:
		f.add(operator, n.Pos(), n.End(), "func() error { _ = "+name+"; return nil }()")
	}
}

func (f *finder) token(operator string, at token.Pos, from token.Token, table map[token.Token]token.Token) {
	to, ok := table[from]
	if !ok {
		return
	}
	f.add(operator, at, at+token.Pos(len(from.String())), to.String())
}

func (f *finder) text(from, to token.Pos) string {
	return string(f.source[f.set.Position(from).Offset:f.set.Position(to).Offset])
}

func (f *finder) add(operator string, from, to token.Pos, text string) {
	m := &mutant{path: f.path, operator: operator, text: text, line: f.set.Position(from).Line, first: 1, last: math.MaxInt}
	m.from, m.to = f.set.Position(from).Offset, f.set.Position(to).Offset
	for _, n := range f.above {
		if d, ok := n.(*ast.FuncDecl); ok {
			m.function, m.first, m.last = d.Name.Name, f.set.Position(d.Pos()).Line, f.set.Position(d.End()).Line
		}
		if c, ok := n.(*ast.CaseClause); ok {
			m.ofCase = from < c.Colon
		}
	}
	changed := string(m.apply(f.source))
	start := strings.LastIndexByte(changed[:m.from], '\n') + 1
	m.result, _, _ = strings.Cut(changed[start:], "\n")
	m.result = strings.TrimSpace(m.result)
	f.found = append(f.found, m)
}
