//go:build !lite

package filter

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/expr-lang/expr/ast"
	exprchecker "github.com/expr-lang/expr/checker"
	"github.com/expr-lang/expr/compiler"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/file"
	exprparser "github.com/expr-lang/expr/parser"
	"github.com/expr-lang/expr/types"
	"github.com/expr-lang/expr/vm"
)

// evaluator decides events by a program of expr. The program is compiled when the
// first event has to be decided: a filter that series answer never needs one.
type evaluator struct {
	once    sync.Once
	program *vm.Program
	native  columns // that the program reads as variables
	err     error
}

// Expr returns the filter as an expression of expr, whose functions are the functions of SQLite
// and of docs/reference/filter.md. It is what decides events; the empty filter is true.
func (f *Filter) Expr() string {
	if f.root == nil {
		return "true"
	}
	return new(translator).cond(f.root, true).String()
}

func (e *evaluator) compile(root *node) {
	e.once.Do(func() {
		compiling()
		e.program, e.native, e.err = compile(new(translator).cond(root, true))
	})
}

// compiling is called before a filter is compiled to a program. Tests replace it.
var compiling = func() {}

// compile links and compiles a translation.
func compile(n ast.Node) (*vm.Program, columns, error) {
	var l linker
	tree := &exprparser.Tree{Node: l.link(n)}
	if l.err != nil {
		return nil, 0, l.err
	}
	config := &conf.Config{ShortCircuit: true, Strict: true, Env: environment().Nature()}
	if _, err := exprchecker.Check(tree, config); err != nil {
		return nil, 0, err
	}
	p, err := compiler.Compile(tree, config)
	return p, l.native, err
}

// environment describes the variables of a program.
func environment() types.Map {
	id := types.Int
	if strconv.IntSize == 32 {
		id = types.Int64 // its operators compare an int64 as an int
	}
	return types.Map{
		"id": id, "created_at": types.String, "source": types.String, "type": types.String,
		"subtype": types.Any, "content": types.String, eventName: types.Any,
	}
}

// machine is what a Matcher needs to run a program.
type machine struct {
	vm        vm.VM
	program   *vm.Program
	native    columns // that the program reads as variables
	variables map[string]any
	texts     map[string]any // boxed texts that repeat from event to event
	recent    [len(columnNames)]recent
}

// recent are the last texts of a column that a variable was set to, the latest first.
type recent [4]any

// maxTexts bounds the texts that a machine keeps. They are short and few in a thread: a
// source, a type, a subtype.
const maxTexts = 256

// match runs the program on the frame's row.
func (m *Matcher) match(root *node) (bool, error) {
	if m.machine.program == nil {
		if err := m.start(root); err != nil {
			return false, err
		}
	}
	m.machine.load(&m.frame.row)
	result, err := m.machine.vm.Run(m.machine.program, m.machine.variables)
	m.machine.forget()
	if err != nil {
		return false, cause(err)
	}
	return result.(bool), nil
}

// start prepares the machine for the first event, with a program that all matchers of
// the filter share.
func (m *Matcher) start(root *node) error {
	e := &m.filter.evaluator
	e.compile(root)
	if e.err != nil {
		return fmt.Errorf("%w: %w", ErrRuntime, e.err)
	}
	m.machine = machine{
		program: e.program, native: e.native,
		variables: map[string]any{eventName: &m.frame}, texts: map[string]any{},
	}
	return nil
}

// load sets the variables that the program reads.
func (m *machine) load(r *Row) {
	native := m.native
	if native == 0 {
		return
	}
	if native&colID.set() != 0 {
		m.variables["id"] = intValue(r.ID).native()
	}
	if native&colCreatedAt.set() != 0 {
		m.variables["created_at"] = r.CreatedAt
	}
	if native&colContent.set() != 0 {
		m.variables["content"] = r.Content
	}
	if native&colSource.set() != 0 {
		m.keep(colSource, r.Source)
	}
	if native&colType.set() != 0 {
		m.keep(colType, r.Type)
	}
	if native&colSubtype.set() == 0 {
		return
	}
	if r.HasSubtype {
		m.keep(colSubtype, r.Subtype)
		return
	}
	m.variables["subtype"] = nil
	m.recent[colSubtype][0] = nil
}

// keep sets a variable to a text of which a copy is kept.
func (m *machine) keep(c column, s string) {
	last := &m.recent[c]
	for i, boxed := range last {
		if text, ok := boxed.(string); !ok || text != s {
			continue
		}
		if i > 0 {
			last[0], last[i] = boxed, last[0]
			m.variables[columnNames[c]] = boxed
		}
		return
	}
	copy(last[1:], last[:])
	last[0] = m.boxed(s)
	m.variables[columnNames[c]] = last[0]
}

func (m *machine) boxed(s string) any {
	if boxed, ok := m.texts[s]; ok {
		return boxed
	}
	if len(m.texts) >= maxTexts {
		clear(m.texts)
	}
	s = strings.Clone(s)
	boxed := any(s)
	m.texts[s] = boxed
	return boxed
}

// forget drops the texts of the row, whose memory may be a file's.
func (m *machine) forget() {
	clear(m.vm.Stack[:cap(m.vm.Stack)])
	clear(m.vm.Variables)
	if m.native&colCreatedAt.set() != 0 {
		m.variables["created_at"] = nil
	}
	if m.native&colContent.set() != 0 {
		m.variables["content"] = nil
	}
}

// cause is what made a function fail, without the place in the program.
func cause(err error) error {
	var at *file.Error
	if errors.As(err, &at) && at.Prev != nil {
		err = at.Prev
	}
	if errors.Is(err, ErrRuntime) {
		return err
	}
	return asError(err)
}
