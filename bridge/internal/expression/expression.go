// Package expression computes values of messages and events: for map, headers and
// key in the files of thread-bridge. It is a part of the language of expr
// (https://expr-lang.org), and means the same there; see docs/BRIDGE.md.
//
// It is not that library, since the library looks up methods by their names: with it
// the linker keeps every exported method of every type, a quarter of the program.
package expression

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
)

// maxText and maxDepth bound an expression: bytes, and parentheses and operators
// within each other.
const (
	maxText  = 64 << 10
	maxDepth = 200
)

// Kind is what is known of a value before there is one.
type Kind uint8

// The kinds.
const (
	Any   Kind = iota // known when it runs
	Nil               // nil
	Bool              // bool
	Int               // int64
	Float             // float64
	Text              // string
	List              // []any
	Map               // map[string]any
	Texts             // map[string]string; what is not in it is "", and nil for ??
)

func (k Kind) String() string {
	return [...]string{"any", "nil", "bool", "int", "float", "text", "list", "map", "map"}[k]
}

// Vars are the values of the names, of their kinds.
type Vars map[string]any

// Program is a compiled expression. It may be run by several goroutines at once.
type Program struct{ root code }

// code is a part of an expression.
type code struct {
	kind Kind
	run  func(Vars) any // it panics with a fault
	// find is run that tells whether there is such a header.
	find  func(Vars) (any, bool)
	fixed bool // written down: the same each time
}

// fault is what is wrong with an expression, or with its values.
type fault string

// Compile reads an expression over the names. Its error is one line.
func Compile(text string, names map[string]Kind) (p *Program, err error) {
	defer func() {
		if f, ok := recover().(fault); ok {
			p, err = nil, errors.New(string(f))
		}
	}()
	if len(text) > maxText {
		return nil, fmt.Errorf("it has %d bytes, more than %d", len(text), maxText)
	}
	r := &reader{names: names, tokens: scan(text)}
	c := r.expression(0)
	if t := r.token(); t.kind != end {
		r.unexpected(t)
	}
	return &Program{c}, nil
}

// Run computes the value: nil, bool, int64, float64, string, []any, map[string]any
// or one of vars.
func (p *Program) Run(vars Vars) (v any, err error) {
	defer func() {
		switch f := recover().(type) {
		case nil:
		case fault:
			v, err = nil, errors.New(string(f))
		default:
			panic(f)
		}
	}()
	return p.root.run(vars), nil
}

// JSON reads a JSON value as expressions see it: whole numbers that fit are int64,
// so that no digit of a number of an order is lost.
func JSON(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more behind the value")
	}
	return numbers(v)
}

// numbers replaces json.Number.
func numbers(v any) (any, error) {
	var err error
	switch v := v.(type) {
	case json.Number:
		if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
			return n, nil
		}
		return v.Float64()
	case []any:
		for i := range v {
			if v[i], err = numbers(v[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for k := range v {
			if v[k], err = numbers(v[k]); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

// String returns a value as text: a text itself, numbers in their digits without an
// exponent where that is at most 21 long, lists and maps as JSON, nil as "nil".
func String(v any) string {
	switch v := v.(type) {
	case nil:
		return "nil"
	case string:
		return v
	case bool:
		return strconv.FormatBool(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		if math.Abs(v) < 1e21 && (math.Abs(v) >= 1e-6 || v == 0) {
			return strconv.FormatFloat(v, 'f', -1, 64)
		}
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v) // infinite numbers within
	}
	return string(b)
}
