//go:build !lite

package filter

import (
	"thread/filter/internal/like"
	"thread/filter/internal/sqldate"
	"thread/filter/internal/sqljson"
	"thread/filter/internal/sqltext"
)

// resolve returns the Go function for a name and its operands, or nil.
func resolve(name string, x []operand, parameters int) any {
	a := askedBy(name)
	if f, want := a.condition(x); f != nil {
		if a.value {
			return computed(func(p passed) (value, error) {
				t, err := f(p)
				return t.value(), err
			}, parameters)
		}
		if fast := a.fast(x, want); fast != nil {
			return fast
		}
		return condition(f, want, parameters)
	}
	if f := operatorOf(name, x); f != nil {
		return computed(f, parameters)
	}
	if f := functionOf(name, x); f != nil {
		return computed(f, parameters)
	}
	return nil
}

// condition returns a condition and the truth value that a call without 3 asks for.
func (a asked) condition(x []operand) (tested, tri) {
	switch a.name {
	case "truthy", "falsy", "not":
		if len(x) != 1 {
			return nil, unknown
		}
		f := func(p passed) (tri, error) { return x[0].load(p).truth(), nil }
		switch a.name {
		case "truthy":
			return f, isTrue
		case "falsy":
			return f, isFalse
		}
		return func(p passed) (tri, error) { return x[0].load(p).truth().not(), nil }, isTrue
	case "and", "or":
		if len(x) != 2 {
			return nil, unknown
		}
		both := a.name == "and"
		return func(p passed) (tri, error) {
			t, u := x[0].load(p).truth(), x[1].load(p).truth()
			if both {
				return t.and(u), nil
			}
			return t.or(u), nil
		}, isTrue
	case "isjson":
		if len(x) != 1 {
			return nil, unknown
		}
		return func(p passed) (tri, error) {
			_, ok := sqljson.Trim(x[0].load(p).text())
			return triOf(ok), nil
		}, isTrue
	case "like", "unlike":
		return likeOf(x, like.LIKE(0)), triOf(a.name == "like")
	case "glob", "unglob":
		return likeOf(x, like.GLOB), triOf(a.name == "glob")
	case "oneof", "noneof", "in":
		return a.member(x), triOf(a.name != "noneof")
	}
	for i, c := range comparisons {
		if c.function == a.name && len(x) == 2 {
			o := opEq + op(i)
			return func(p passed) (tri, error) {
				return compareAs(o, x[0].load(p), x[1].load(p), affNone, a.coll), nil
			}, isTrue
		}
	}
	return nil, unknown
}

// fast returns the common conditions as functions without a loop over their operands:
// a column LIKE a literal, and a comparison with a literal.
func (a asked) fast(x []operand, want tri) any {
	if len(x) < 2 || x[1].from != inLiteral {
		return nil
	}
	switch a.name {
	case "like", "unlike", "glob", "unglob":
		pattern := literalPattern(x, a.wildcards())
		if pattern == nil || x[0].from != inColumn || x[0].column == colID {
			return nil
		}
		column := x[0].column
		return func(event any) bool {
			s, ok := event.(*frame).textColumn(column)
			return ok && pattern.Match(s) == (want == isTrue)
		}
	}
	for i, c := range comparisons {
		if c.function == a.name && x[0].from == inParameter {
			o, lit := opEq+op(i), x[1].lit
			return func(v any) bool { return compareAs(o, valueOf(v), lit, affNone, a.coll) == want }
		}
	}
	return nil
}

func (a asked) wildcards() like.Wildcards {
	if a.name == "glob" || a.name == "unglob" {
		return like.GLOB
	}
	return like.LIKE(0)
}

// literalPattern is the second operand as a pattern, if it is a literal; an escape
// character is the third.
func literalPattern(x []operand, w like.Wildcards) *like.Pattern {
	if x[1].from != inLiteral || x[1].lit.k == null || len(x[1].lit.text()) > like.MaxBytes {
		return nil
	}
	if len(x) == 3 {
		r, _ := sqltext.ReadChar(x[2].lit.s, 0)
		w = like.LIKE(r)
	}
	return like.Compile(x[1].lit.text(), w)
}

// likeOf is like(text, pattern [, escape]).
func likeOf(x []operand, w like.Wildcards) tested {
	if len(x) < 2 || len(x) > 3 || len(x) == 3 && (x[2].from != inLiteral || x[2].lit.s == "") {
		return nil
	}
	if len(x) == 3 {
		r, _ := sqltext.ReadChar(x[2].lit.s, 0)
		w = like.LIKE(r)
	}
	pattern := literalPattern(x, w)
	return func(p passed) (tri, error) {
		s := x[0].load(p)
		if pattern == nil {
			return likeValues(s, x[1].load(p), w)
		}
		if s.k == null {
			return unknown, nil
		}
		return triOf(pattern.Match(s.text())), nil
	}
}

// member is oneof(x, element, …): a set where all elements are literals next to a
// column, and otherwise a walk over the elements.
func (a asked) member(x []operand) tested {
	if len(x) < 2 {
		return nil
	}
	set := &literalSet{}
	if x[0].column == colID {
		set.ints = map[int64]struct{}{}
	} else {
		set.texts = map[string]struct{}{}
	}
	looksUp := x[0].from == inColumn && a.coll == byBytes
	for _, e := range x[1:] {
		if e.from != inLiteral || set.texts != nil && e.lit.k != text && e.lit.k != null {
			looksUp = false
			break
		}
		set.add(e.lit)
	}
	if looksUp {
		return func(p passed) (tri, error) { return set.member(x[0].load(p)), nil }
	}
	return func(p passed) (tri, error) {
		v, t := x[0].load(p), isFalse
		for i := range x[1:] {
			switch compareAs(opEq, v, x[i+1].load(p), affNone, a.coll) {
			case isTrue:
				return isTrue, nil
			case unknown:
				t = unknown
			}
		}
		return t, nil
	}
}

// operatorOf returns an operator, a conversion or a CAST.
func operatorOf(name string, x []operand) linked {
	one := func(f func(value) value) linked {
		if len(x) != 1 {
			return nil
		}
		return func(p passed) (value, error) { return f(x[0].load(p)), nil }
	}
	switch name {
	case "number":
		return one(value.withNumericAffinity)
	case "text":
		return one(value.withTextAffinity)
	}
	for aff, cast := range castNames {
		if cast != "" && name == "cast_"+cast {
			return one(func(v value) value { return v.cast(affinity(aff)) })
		}
	}
	for o, known := range operatorNames {
		if known != name {
			continue
		}
		if o == opNegate || o == opBitNot {
			return one(func(v value) value { return unary(o, v) })
		}
		if len(x) != 2 {
			return nil
		}
		if o == opConcat {
			return func(p passed) (value, error) { return concat(x[0].load(p), x[1].load(p)) }
		}
		return func(p passed) (value, error) { return arithmetic(o, x[0].load(p), x[1].load(p)), nil }
	}
	return nil
}

// functionOf returns a function of SQL.
func functionOf(name string, x []operand) linked {
	if name == "json_node" && len(x) == 2 {
		path, ok := sqljson.ParsePath(x[1].lit.s)
		if !ok {
			return nil
		}
		return func(p passed) (value, error) { return arrow(opArrow, x[0].load(p), path) }
	}
	fn, least, most := lookupFunction(name)
	if fn == fnNone || len(x) < least || len(x) > most {
		return nil
	}
	switch fn {
	case fnMin, fnMax:
		return func(p passed) (value, error) {
			var store [4]value
			args := store[:0]
			for i := range x {
				args = append(args, x[i].load(p))
			}
			return extreme(fn, args), nil
		}
	case fnChar:
		return func(p passed) (value, error) {
			var b []byte
			for i := range x {
				b = appendCharOf(b, x[i].load(p))
			}
			return textValue(string(b)), nil
		}
	}
	if fn == fnJSONExtract || fn == fnJSONType || fn == fnJSONArrayLength || fn == fnJSONValid {
		return jsonFunctionOf(fn, x)
	}
	n := &node{op: opCall, fn: fn, args: make([]*node, len(x)), aux: &aux{}}
	if !n.readLiterals(x) {
		return nil
	}
	return func(p passed) (value, error) {
		var args [3]value
		for i := range min(len(x), len(args)) {
			args[i] = x[i].load(p)
		}
		now := int64(0)
		if f, ok := p.a.(*frame); ok {
			now = f.now
		}
		return n.apply(args, now)
	}
}

func jsonFunctionOf(fn function, x []operand) linked {
	var path []sqljson.Step
	if len(x) == 2 {
		var ok bool
		if path, ok = sqljson.ParsePath(x[1].lit.s); !ok {
			return nil
		}
	}
	return func(p passed) (value, error) {
		v := x[0].load(p)
		if v.k == null {
			return v, nil
		}
		return jsonOf(fn, v, path)
	}
}

// readLiterals reads the literals that a date function takes once: a format and modifiers.
func (n *node) readLiterals(x []operand) bool {
	ok := true
	switch n.fn {
	case fnStrftime:
		n.aux.format = x[0].lit.s
		x = x[1:]
		fallthrough
	case fnDate, fnDateTime, fnJulianDay, fnTime, fnUnixEpoch:
		for i := 1; i < len(x) && ok; i++ {
			var m sqldate.Modifier
			m, ok = sqldate.ParseModifier(x[i].lit.s)
			n.aux.mods = append(n.aux.mods, m)
		}
	}
	return ok
}
