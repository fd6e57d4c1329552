package filter

import (
	"strconv"
	"unicode/utf8"

	"thread/filter/internal/like"
	"thread/filter/internal/sqldate"
	"thread/filter/internal/sqljson"
	"thread/filter/internal/sqltext"
)

// checker gives meaning to a tree: functions, affinities, collations, and what
// the evaluators want to know of each node. It refuses what is not exactly
// SQLite's.
type checker struct {
	src string
	err *Error
}

func (c *checker) fail(pos int, what, hint string) {
	if c.err == nil {
		c.err = newError(c.src, pos, what, hint)
	}
}

// condition checks a node whose truth is asked for and that is reached from the
// root through AND, OR, NOT, IS TRUE and IS NULL only. Under it, and nowhere
// else, an operand of a comparison may carry COLLATE: anywhere deeper SQLite lets
// the collation leak out of sub-expressions (docs/spec/filter.md, section 6).
func (c *checker) condition(n *node) {
	switch n.op {
	case opNot, opIsTrue, opIsNull:
		if n.op == opIsNull && n.left.op == opCollate {
			c.collated(n.left)
			n.inherit(n.left)
			return
		}
		c.condition(n.left)
		n.inherit(n.left)
	case opAnd, opOr:
		c.condition(n.left)
		c.condition(n.right)
		n.inherit(n.left)
		n.inherit(n.right)
		n.foldAnd()
	case opEq, opNe, opLt, opGe, opLe, opGt, opIs, opIsNot:
		c.comparison(n, true)
	case opIn:
		c.in(n, true)
	case opBetween:
		c.between(n, true)
	default:
		c.value(n)
	}
}

// inherit adds what child depends on to n.
func (n *node) inherit(child *node) {
	n.uses |= child.uses
	n.fails = n.fails || child.fails
	n.now = n.now || child.now
}

// value checks a node whose value is asked for.
func (c *checker) value(n *node) {
	switch n.op {
	case opLiteral, opColumn:
		return
	case opCollate:
		c.fail(n.pos, "COLLATE in a place where its effect would leak",
			"put it directly on an operand of a comparison: type COLLATE NOCASE = 'x'")
	case opEq, opNe, opLt, opGe, opLe, opGt, opIs, opIsNot:
		c.comparison(n, false)
	case opIn:
		c.in(n, false)
	case opBetween:
		c.between(n, false)
	case opLike, opGlob:
		c.value(n.left)
		c.value(n.right)
		n.inherit(n.left)
		n.inherit(n.right)
		c.like(n)
	case opArrow, opArrowText:
		c.arrow(n)
	case opCall:
		c.call(n)
	case opCase:
		c.caseExpr(n)
	default:
		for _, child := range [...]*node{n.left, n.right} {
			if child != nil {
				c.value(child)
				n.inherit(child)
			}
		}
		n.foldAnd()
		if n.op == opConcat && n.uses&colContent.set() != 0 {
			n.fails = true // the text may grow beyond maxTextBytes
		}
	}
}

// arrow checks -> and ->>. What is not the same in all versions of SQLite on the
// right side is refused.
func (c *checker) arrow(n *node) {
	c.value(n.left)
	n.inherit(n.left)
	n.fails = true
	n.aux = &aux{}
	r := n.right
	switch {
	case r.op != opLiteral || r.word:
	case r.lit.k == integer && r.lit.i >= 0 && r.lit.i < 1e9:
		n.aux.path = []sqljson.Step{{Index: int(r.lit.i)}}
		return
	case r.lit.k == text && isPlainLabel(r.lit.s):
		n.aux.path = []sqljson.Step{{Label: &r.lit.s}}
		return
	case r.lit.k == text:
		var ok bool
		if n.aux.path, ok = sqljson.ParsePath(r.lit.s); ok {
			return
		}
	}
	c.fail(r.pos, "the right side of an arrow that means different things in different versions of SQLite",
		`write a plain name, an index from 0, or a path: '$."a.b"', '$[#-1]'`)
}

// collated checks an operand that may carry COLLATE and gives its collation.
func (c *checker) collated(n *node) (collation, bool) {
	if n.op != opCollate {
		c.value(n)
		return byBytes, false
	}
	inner := n.strip()
	c.value(inner)
	n.inherit(inner)
	n.aff = inner.aff
	return n.coll, true
}

func (c *checker) operand(n *node, spine bool) (collation, bool) {
	if !spine {
		c.value(n)
		return byBytes, false
	}
	return c.collated(n)
}

func (c *checker) comparison(n *node, spine bool) {
	left, hasLeft := c.operand(n.left, spine)
	right, _ := c.operand(n.right, spine)
	n.coll = right
	if hasLeft {
		n.coll = left
	}
	n.inherit(n.left)
	n.inherit(n.right)
	n.left, n.right = n.left.strip(), n.right.strip()
	if n.left.op == opLiteral && n.right.op == opColumn {
		n.left, n.right = n.right, n.left
		n.op = mirrored[n.op-opEq]
	}
	n.cmp = comparisonAffinity(n.left.aff, n.right.aff)
	n.left.prepare(n.cmp, n.right)
	n.right.prepare(n.cmp, n.left)
}

// prepare applies an affinity to a literal once, instead of for every event.
func (n *node) prepare(aff affinity, other *node) {
	if n.op != opLiteral || other.op == opLiteral {
		return
	}
	switch {
	case aff.numeric():
		n.lit = n.lit.withNumericAffinity()
	case aff == affText && other.aff == affText:
		n.lit = n.lit.withTextAffinity()
	}
}

func (c *checker) in(n *node, spine bool) {
	n.coll, _ = c.operand(n.left, spine)
	n.inherit(n.left)
	n.left = n.left.strip()
	n.cmp = n.left.aff
	if len(n.args) == 0 { // SQLite does not evaluate the left side either
		*n = node{op: opLiteral, lit: boolValue(n.neg), mark: emptyIn, pos: n.pos, start: n.start, end: n.end, depth: n.depth}
		return
	}
	literals, texts := n.left.op == opColumn && n.coll == byBytes, true
	for _, e := range n.args {
		c.value(e)
		n.inherit(e)
		e.prepare(n.cmp, n.left)
		literals = literals && e.op == opLiteral
		texts = texts && e.lit.k == text
	}
	n.aux.lookUp = literals && len(n.args) > fewMembers
	n.aux.texts = literals && texts && !n.aux.lookUp && n.left.aff == affText
}

func (c *checker) between(n *node, spine bool) {
	n.coll, _ = c.operand(n.left, spine)
	n.inherit(n.left)
	n.left = n.left.strip()
	for _, bound := range [...]*node{n.right, n.aux.high} {
		c.value(bound)
		n.inherit(bound)
	}
	n.cmp = comparisonAffinity(n.left.aff, n.right.aff)
	n.aux.cmp = comparisonAffinity(n.left.aff, n.aux.high.aff)
	n.right.prepare(n.cmp, n.left)
	n.aux.high.prepare(n.aux.cmp, n.left)
}

// like checks what is special to LIKE and GLOB: the escape character and the
// pattern. left is the text, right the pattern, both checked.
func (c *checker) like(n *node) {
	n.aux.wild = like.GLOB
	if n.op == opLike {
		n.aux.wild = like.LIKE(0)
		if e := n.aux.escape; e != nil {
			if e.op != opLiteral || e.lit.k != text || sqltext.CountChars(e.lit.s) != 1 {
				c.fail(e.pos, "ESCAPE that is not one character", `write one character in single quotes: ESCAPE '\'`)
				return
			}
			r, _ := utf8.DecodeRuneInString(e.lit.s)
			n.aux.wild = like.LIKE(uint32(r))
		}
	}
	if n.right.op != opLiteral {
		n.fails = true // a pattern from the event may be too long
		return
	}
	if n.right.lit.k == null {
		return
	}
	p := n.right.lit.text()
	if len(p) > like.MaxBytes {
		c.fail(n.right.pos, "a pattern longer than "+strconv.Itoa(like.MaxBytes)+" bytes", "shorten it, or compare with = or instr()")
		return
	}
	n.aux.pattern = like.Compile(p, n.aux.wild)
}

func (c *checker) caseExpr(n *node) {
	if n.left != nil {
		c.value(n.left)
		n.inherit(n.left)
	}
	for _, a := range n.args {
		c.value(a)
		n.inherit(a)
	}
	if n.right != nil {
		c.value(n.right)
		n.inherit(n.right)
	}
}

func (c *checker) call(n *node) {
	var store [24]byte
	lower := store[:0]
	for i := 0; i < len(n.aux.name) && i < cap(lower); i++ {
		lower = append(lower, sqltext.LowerASCII(n.aux.name[i]))
	}
	name := clip(n.aux.name)
	fn, least, most := lookupFunction(string(lower))
	if fn == fnNone {
		what, hint := refusal(string(lower))
		if what == "" {
			c.fail(n.pos, "no such function: "+name, hint)
		} else {
			c.fail(n.pos, name+"() is "+what, hint)
		}
		return
	}
	n.fn = fn
	if len(n.args) < least || len(n.args) > most {
		c.arity(n, name, least, most)
		return
	}
	for _, a := range n.args {
		c.value(a)
		n.inherit(a)
	}
	switch fn {
	case fnLike, fnGlob:
		c.likeCall(n)
	case fnAbs:
		n.fails = n.fails || n.args[0].op != opColumn || n.args[0].col == colID
	case fnReplace, fnHex:
		n.fails = n.fails || n.uses&colContent.set() != 0
	case fnChar:
		c.char(n)
	case fnDate, fnDateTime, fnJulianDay, fnTime, fnUnixEpoch, fnStrftime:
		c.date(n)
	case fnJSONExtract, fnJSONType, fnJSONArrayLength:
		n.fails = true
		if len(n.args) == 2 {
			c.path(n, n.args[1])
		}
	}
}

// path checks the path argument of a JSON function.
func (c *checker) path(n, arg *node) {
	ok := false
	if arg.op == opLiteral && arg.lit.k == text {
		n.aux.path, ok = sqljson.ParsePath(arg.lit.s)
	}
	if !ok {
		c.fail(arg.pos, "a JSON path that is not supported", `write a literal like '$.name', '$."a b"', '$.list[0]' or '$[#-1]'`)
	}
}

// date checks a date function: literal modifiers, and for strftime a literal
// format.
func (c *checker) date(n *node) {
	args := n.args
	if n.fn == fnStrftime {
		if args[0].op != opLiteral || args[0].lit.k != text {
			c.fail(args[0].pos, "a strftime format that is not a text literal", "write the format in single quotes")
			return
		}
		n.aux.format = args[0].lit.s
		if bad := badConversion(n.aux.format); bad != "" {
			c.fail(args[0].pos, "the strftime conversion "+bad+" means different things in different versions of SQLite",
				"use %Y %m %d %H %M %S %f %s %j %w %J %%")
			return
		}
		args = args[1:]
	}
	if len(args) == 0 {
		n.now = true
		return
	}
	first := args[0]
	if first.op != opLiteral || first.lit.k == text && sqldate.IsNow(first.lit.s) {
		n.now = true
	}
	for i, a := range args[1:] {
		m, ok := sqldate.Modifier{}, false
		if a.op == opLiteral && a.lit.k == text {
			m, ok = sqldate.ParseModifier(a.lit.s)
		}
		if !ok || m.OnlyFirst() && i > 0 {
			c.fail(a.pos, "a date modifier that filters do not have",
				"use literals like '-1 day', '+2 hours', 'start of month', or 'unixepoch' first")
			return
		}
		n.aux.mods = append(n.aux.mods, m)
	}
}

func (c *checker) arity(n *node, name string, least, most int) {
	want := "it takes " + strconv.Itoa(least)
	switch {
	case most == maxArgs:
		want += " or more"
	case most > least:
		want += " or " + strconv.Itoa(most)
	}
	if (n.fn == fnMin || n.fn == fnMax) && len(n.args) == 1 {
		c.fail(n.pos, name+"() of one argument is an aggregate", "a filter looks at one event; compare two values: "+name+"(a, b)")
		return
	}
	c.fail(n.pos, "wrong number of arguments to function "+name+"()", want)
}

// likeCall turns like(p, x [, e]) and glob(p, x) into the operators.
func (c *checker) likeCall(n *node) {
	n.op = opLike
	if n.fn == fnGlob {
		n.op = opGlob
	}
	n.right, n.left = n.args[0], n.args[1]
	if len(n.args) == 3 {
		n.aux.escape = n.args[2]
	}
	c.like(n)
}

// char refuses what would make text that is not UTF-8.
func (c *checker) char(n *node) {
	for _, a := range n.args {
		if a.op != opLiteral {
			continue
		}
		if a.lit.k != null && a.lit.int64() >= 0xD800 && a.lit.int64() <= 0xDFFF {
			c.fail(a.pos, "char() of a surrogate", "surrogates are not characters")
		}
	}
}
