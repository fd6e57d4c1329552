package expression

import (
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strings"
)

// skipped stands for the rest of a chain behind ?. of nil.
var skipped any = new(byte)

func kindOf(v any) Kind {
	switch v.(type) {
	case nil:
		return Nil
	case bool:
		return Bool
	case int64:
		return Int
	case float64:
		return Float
	case string:
		return Text
	case []any:
		return List
	case map[string]any:
		return Map
	case map[string]string:
		return Texts
	}
	panic(fault(fmt.Sprintf("a value is %T, which is none of the language", v)))
}

func truth(v any) bool {
	b, ok := v.(bool)
	if !ok {
		panic(fault("a condition is " + kindOf(v).String() + ", and not true or false"))
	}
	return b
}

func not(c code) code {
	if c.kind != Any && c.kind != Bool {
		panic(fault("not of " + c.kind.String()))
	}
	return code{kind: Bool, run: func(v Vars) any { return !truth(c.run(v)) }}
}

// negative is a sign before a number.
func negative(op string, c code) code {
	if c.kind != Any && c.kind != Int && c.kind != Float {
		panic(fault(op + " of " + c.kind.String()))
	}
	return code{kind: c.kind, run: func(v Vars) any {
		x := c.run(v)
		switch n := x.(type) {
		case int64:
			if op == "-" {
				return -n
			}
		case float64:
			if op == "-" {
				return -n
			}
		default:
			panic(fault(op + " of " + kindOf(x).String()))
		}
		return x
	}}
}

// numeric says that a kind is a number, or may be one.
func numeric(k Kind) bool { return k == Any || k == Int || k == Float }
func textual(k Kind) bool { return k == Any || k == Text }

// fits says whether an operator takes values of these kinds, and of which kind is
// what it gives.
func fits(op string, a, b Kind) (Kind, bool) {
	numbers, texts := numeric(a) && numeric(b), textual(a) && textual(b)
	switch op {
	case "and", "&&", "or", "||":
		return Bool, (a == Any || a == Bool) && (b == Any || b == Bool)
	case "==", "!=":
		return Bool, a == b || numbers || a == Any || b == Any || a == Nil || b == Nil
	case "<", "<=", ">", ">=":
		return Bool, numbers || texts
	case "contains", "startsWith", "endsWith", "matches":
		return Bool, texts
	case "in":
		return Bool, b == Any || b == List || (b == Map || b == Texts) && textual(a)
	case "+":
		switch {
		case a == Text && texts || b == Text && texts:
			return Text, true
		case a == Any || b == Any:
			return Any, numbers || texts
		}
		fallthrough
	case "-", "*":
		switch {
		case a == Any || b == Any:
			return Any, numbers
		case a == Int && b == Int:
			return Int, true
		}
		return Float, numbers
	case "/", "**", "^":
		return Float, numbers
	case "%":
		return Int, numbers && a != Float && b != Float
	case "??":
		if a == b {
			return a, true
		}
		return Any, true
	}
	panic(fault("operator " + op))
}

func binary(op string, a, b code) code {
	kind, ok := fits(op, a.kind, b.kind)
	if !ok {
		panic(fault(fmt.Sprintf("%s of %s and %s", op, a.kind, b.kind)))
	}
	c := code{kind: kind}
	switch op {
	case "and", "&&":
		c.run = func(v Vars) any { return truth(a.run(v)) && truth(b.run(v)) }
	case "or", "||":
		c.run = func(v Vars) any { return truth(a.run(v)) || truth(b.run(v)) }
	case "??":
		c.run = func(v Vars) any {
			if a.find != nil {
				if x, ok := a.find(v); ok && x != nil {
					return x
				}
			} else if x := a.run(v); x != nil {
				return x
			}
			return b.run(v)
		}
	case "matches":
		c.run = matches(a, b)
	default:
		c.run = func(v Vars) any { return apply(op, a.run(v), b.run(v)) }
	}
	return c
}

// matches compiles a pattern that is written down only once.
func matches(a, b code) func(Vars) any {
	compile := func(v any) *regexp.Regexp {
		s, ok := v.(string)
		if !ok {
			panic(fault("matches " + kindOf(v).String()))
		}
		re, err := regexp.Compile(s)
		if err != nil {
			panic(fault(err.Error()))
		}
		return re
	}
	pattern := func(v Vars) *regexp.Regexp { return compile(b.run(v)) }
	if b.fixed {
		re := compile(b.run(nil))
		pattern = func(Vars) *regexp.Regexp { return re }
	}
	return func(v Vars) any {
		x := a.run(v)
		s, ok := x.(string)
		if !ok {
			panic(fault(kindOf(x).String() + " matches"))
		}
		return pattern(v).MatchString(s)
	}
}

// apply computes an operator for which both values are needed.
func apply(op string, a, b any) any {
	switch op {
	case "==":
		return equal(a, b)
	case "!=":
		return !equal(a, b)
	}
	ka, kb := kindOf(a), kindOf(b)
	if kind, ok := fits(op, ka, kb); !ok {
		panic(fault(fmt.Sprintf("%s of %s and %s", op, ka, kb)))
	} else if op == "+" && kind == Text {
		return a.(string) + b.(string)
	}
	switch op {
	case "contains":
		return strings.Contains(a.(string), b.(string))
	case "startsWith":
		return strings.HasPrefix(a.(string), b.(string))
	case "endsWith":
		return strings.HasSuffix(a.(string), b.(string))
	case "in":
		return in(a, b)
	case "<", "<=", ">", ">=":
		return ordered(op, compare(a, b))
	}
	x, isInt := a.(int64)
	y, both := b.(int64)
	if isInt && both {
		switch op {
		case "+":
			return x + y
		case "-":
			return x - y
		case "*":
			return x * y
		case "%":
			if y == 0 {
				panic(fault("% of zero"))
			}
			return x % y
		}
	}
	f, g := float(a), float(b)
	switch op {
	case "+":
		return f + g
	case "-":
		return f - g
	case "*":
		return f * g
	case "/":
		return f / g
	}
	return math.Pow(f, g) // ** and ^
}

func float(v any) float64 {
	if n, ok := v.(int64); ok {
		return float64(n)
	}
	return v.(float64)
}

// compare returns -1, 0 or 1, and 2 when one is not a number.
func compare(a, b any) int {
	if s, ok := a.(string); ok {
		return strings.Compare(s, b.(string))
	}
	x, isInt := a.(int64)
	y, both := b.(int64)
	if isInt && both {
		return sign3(x < y, x == y)
	}
	f, g := float(a), float(b)
	if math.IsNaN(f) || math.IsNaN(g) {
		return 2
	}
	return sign3(f < g, f == g)
}

func sign3(less, same bool) int {
	switch {
	case less:
		return -1
	case same:
		return 0
	}
	return 1
}

func ordered(op string, n int) bool {
	switch op {
	case "<":
		return n == -1
	case "<=":
		return n == -1 || n == 0
	case ">":
		return n == 1
	}
	return n == 0 || n == 1
}

func equal(a, b any) bool {
	ka, kb := kindOf(a), kindOf(b)
	if (ka == Int || ka == Float) && (kb == Int || kb == Float) {
		return compare(a, b) == 0
	}
	switch x := a.(type) {
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			if !equal(x[i], y[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for k := range x {
			other, ok := y[k]
			if !ok || !equal(x[k], other) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(a, b)
}

func in(a, b any) bool {
	switch list := b.(type) {
	case []any:
		for _, x := range list {
			if equal(a, x) {
				return true
			}
		}
		return false
	case map[string]any:
		_, ok := list[a.(string)]
		return ok
	}
	_, ok := b.(map[string]string)[a.(string)]
	return ok
}

// element is the element of a list or map. What a map does not hold is nil, and
// of headers "".
func element(c, key code, optional bool) code {
	switch {
	case c.kind == Texts && textual(key.kind):
		find := func(v Vars) (any, bool) {
			k, ok := key.run(v).(string)
			if !ok {
				panic(fault("the name of a header is a text"))
			}
			s, ok := c.run(v).(map[string]string)[k]
			return s, ok
		}
		return code{kind: Text, find: find, run: func(v Vars) any { x, _ := find(v); return x }}
	case c.kind == Map && textual(key.kind), c.kind == List && (key.kind == Any || key.kind == Int), c.kind == Any:
	case c.kind == Nil && optional:
	default:
		panic(fault(fmt.Sprintf("%s has no elements of %s", c.kind, key.kind)))
	}
	return code{kind: Any, run: func(v Vars) any {
		of := c.run(v)
		if of == skipped || of == nil && optional {
			return skipped
		}
		k := key.run(v)
		switch of := of.(type) {
		case map[string]any:
			if s, ok := k.(string); ok {
				return of[s]
			}
		case map[string]string:
			if s, ok := k.(string); ok {
				return of[s]
			}
		case []any:
			if n, ok := k.(int64); ok {
				if n < 0 {
					n += int64(len(of))
				}
				if n < 0 || n >= int64(len(of)) {
					panic(fault(fmt.Sprintf("a list of %d has no element %d", len(of), k)))
				}
				return of[n]
			}
		}
		panic(fault(fmt.Sprintf("%s has no element %.100q", kindOf(of), String(k))))
	}}
}
