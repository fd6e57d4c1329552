package expression

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// reader turns tokens into code, by the precedence of the operators.
type reader struct {
	names  map[string]Kind
	tokens []token
	depth  int
}

// precedence of the binary operators, as expr has it.
var precedence = map[string]int{"or": 10, "||": 10, "and": 15, "&&": 15, "==": 20, "!=": 20, "<": 20, ">": 20, ">=": 20, "<=": 20,
	"in": 20, "matches": 20, "contains": 20, "startsWith": 20, "endsWith": 20, "+": 30, "-": 30, "*": 60, "/": 60, "%": 60,
	"**": 100, "^": 100, "??": 500}

func (r *reader) token() token { return r.tokens[0] }

func (r *reader) is(s string) bool { return r.token().kind == sign && r.token().s == s }

// next takes a token.
func (r *reader) next() token {
	t := r.tokens[0]
	if t.kind != end {
		r.tokens = r.tokens[1:]
	}
	return t
}

// accept takes a sign when it is there.
func (r *reader) accept(s string) bool {
	if !r.is(s) {
		return false
	}
	r.next()
	return true
}

func (r *reader) expect(s string) {
	if !r.accept(s) {
		r.unexpected(r.token())
	}
}

func (r *reader) unexpected(t token) {
	if t.kind == end {
		panic(fault("it ends too early"))
	}
	panic(fault(fmt.Sprintf("%q at byte %d is not expected there", t.s, t.at)))
}

// expression reads operators that bind at least as tightly as least, and with 0 a
// condition, too.
func (r *reader) expression(least int) code {
	if r.depth++; r.depth > maxDepth {
		panic(fault(fmt.Sprintf("it is more than %d deep", maxDepth)))
	}
	defer func() { r.depth-- }()
	left := r.operand()
	for before := ""; r.token().kind == sign; {
		op := r.token().s
		if op == "not" && len(r.tokens) > 1 && precedence[r.tokens[1].s] >= max(least, 1) {
			if op = r.tokens[1].s; !slices.Contains([]string{"in", "matches", "contains", "startsWith", "endsWith"}, op) {
				r.unexpected(r.tokens[1])
			}
			r.next()
			r.next()
			left = not(binary(op, left, r.expression(precedence[op]+1)))
			before = op
			continue
		}
		p, ok := precedence[op]
		if !ok || p < least {
			break
		}
		if before == "??" && op != "??" {
			panic(fault("?? and " + op + " stand side by side: put one of them in parentheses"))
		}
		r.next()
		switch op {
		case "<", "<=", ">", ">=":
			left = r.compare(op, left, p)
		case "**", "^":
			left = binary(op, left, r.expression(p))
		default:
			left = binary(op, left, r.expression(p+1))
		}
		before = op
	}
	if least == 0 && r.accept("?") {
		left = r.condition(left)
	}
	return left
}

// compare reads a < b <= c, which is a < b and b <= c.
func (r *reader) compare(op string, left code, p int) code {
	all := code{}
	for {
		right := r.expression(p + 1)
		one := binary(op, left, right)
		if all.run == nil {
			all = one
		} else {
			all = binary("and", all, one)
		}
		if op = r.token().s; r.token().kind != sign || op != "<" && op != "<=" && op != ">" && op != ">=" {
			return all
		}
		r.next()
		left = right
	}
}

func (r *reader) condition(when code) code {
	if when.kind != Any && when.kind != Bool {
		panic(fault("a condition is " + when.kind.String() + ", and not true or false"))
	}
	yes := r.expression(0)
	r.expect(":")
	no := r.expression(0)
	kind := yes.kind
	if no.kind != kind {
		kind = Any
	}
	return code{kind: kind, run: func(v Vars) any {
		if truth(when.run(v)) {
			return yes.run(v)
		}
		return no.run(v)
	}}
}

// operand reads a value with what is behind it.
func (r *reader) operand() code {
	switch t := r.next(); {
	case t.kind == sign && (t.s == "not" || t.s == "!"):
		return not(r.expression(50))
	case t.kind == sign && (t.s == "-" || t.s == "+"):
		return negative(t.s, r.expression(90))
	case t.kind == sign && t.s == "(":
		c := r.expression(0)
		r.expect(")")
		return r.elements(c)
	case t.kind == sign && t.s == "[":
		return r.elements(r.list())
	case t.kind == sign && t.s == "{":
		return r.elements(r.mapping())
	case t.kind == number:
		return numeral(t)
	case t.kind == text:
		return r.elements(constant(Text, t.s))
	case t.kind == name && r.is("("):
		return r.elements(r.call(t))
	case t.kind == name:
		return r.elements(r.named(t))
	default:
		r.unexpected(t)
		panic("not reached")
	}
}

func constant(kind Kind, v any) code {
	return code{kind: kind, fixed: true, run: func(Vars) any { return v }}
}

func numeral(t token) code {
	if n, err := strconv.ParseInt(t.s, 10, 64); err == nil {
		return constant(Int, n)
	}
	f, err := strconv.ParseFloat(t.s, 64)
	if err != nil || math.IsInf(f, 0) || !strings.ContainsAny(t.s, ".eE") {
		panic(fault(fmt.Sprintf("%q at byte %d is not a number", t.s, t.at)))
	}
	return constant(Float, f)
}

func (r *reader) named(t token) code {
	switch t.s {
	case "true", "false":
		return constant(Bool, t.s == "true")
	case "nil":
		return constant(Nil, nil)
	}
	kind, ok := r.names[t.s]
	if !ok {
		panic(fault(fmt.Sprintf("unknown name %s: there are %s", t.s, strings.Join(slices.Sorted(maps.Keys(r.names)), ", "))))
	}
	return code{kind: kind, run: func(v Vars) any { return v[t.s] }}
}

// list reads what is behind [.
func (r *reader) list() code {
	var all []code
	for !r.accept("]") {
		if all = append(all, r.expression(0)); !r.is("]") {
			r.expect(",")
		}
	}
	return code{kind: List, run: func(v Vars) any {
		list := make([]any, len(all))
		for i, c := range all {
			list[i] = c.run(v)
		}
		return list
	}}
}

// mapping reads what is behind {.
func (r *reader) mapping() code {
	type pair struct {
		key   string
		value code
	}
	var all []pair
	for !r.accept("}") {
		key := r.next()
		if key.kind != name && key.kind != text && key.kind != number {
			r.unexpected(key)
		}
		r.expect(":")
		if all = append(all, pair{key.s, r.expression(0)}); !r.is("}") {
			r.expect(",")
		}
	}
	return code{kind: Map, run: func(v Vars) any {
		m := make(map[string]any, len(all))
		for _, p := range all {
			m[p.key] = p.value.run(v)
		}
		return m
	}}
}

// elements reads .name, ?.name, [key] and ?.[key] behind a value. Behind ?. of nil
// the whole rest is nil.
func (r *reader) elements(c code) code {
	optional := false
	for {
		var key code
		maybe := false
		switch {
		case r.accept("."):
			key = r.member()
		case r.accept("?."):
			maybe = true
			if r.is("[") {
				key = r.bracket()
			} else {
				key = r.member()
			}
		case r.is("["):
			key = r.bracket()
		case optional:
			run := c.run
			return code{kind: Any, run: func(v Vars) any {
				if x := run(v); x != skipped {
					return x
				}
				return nil
			}}
		default:
			return c
		}
		optional = optional || maybe
		c = element(c, key, maybe)
	}
}

func (r *reader) bracket() code {
	r.expect("[")
	key := r.expression(0)
	r.expect("]")
	return key
}

func (r *reader) member() code {
	t := r.next()
	if t.kind != name && !words[t.s] {
		r.unexpected(t)
	}
	return constant(Text, t.s)
}
