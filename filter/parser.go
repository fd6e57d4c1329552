package filter

import (
	"math"
	"strconv"
	"thread/filter/internal/sqltext"
)

// The precedence levels of SQLite (docs/spec/filter.md, section 3). A right operand is
// read one level higher: all binary operators associate to the left.
const (
	levelOr = iota + 1
	levelAnd
	levelNot
	levelEqual
	levelCompare
	_
	levelBits
	levelAdd
	levelMultiply
	levelConcat
	levelCollate
	levelPrefix
)

// MaxDepth is how deep a filter's tree may be: SQLite allows 1000, and the query
// around the filter takes one. A leaf has depth 1, each operator, function or
// CASE adds one, parentheses add none, and chains of AND or OR grow to the left.
const MaxDepth = 999

// parser is a Pratt parser: expr(level) reads an operand and then every operator
// of at least that level.
type parser struct {
	lex    lexer
	tok    token // the current token
	nodes  nodes
	prefix int // operands being read inside each other: bounds the recursion

	// The latest operator of comparison and what stands left of it, for hints.
	rightAt int // where its right side begins
	rightOf *node
	rightOp string
	err     *Error
}

func parse(src string) (*node, *Error) {
	p := parser{lex: lexer{src: src}, rightAt: -1}
	p.nodes.next = min(3+len(src)/10, 32) // enough for most filters in one slab
	p.advance()
	if p.lex.err == nil && p.tok.kind == tokEnd {
		return nil, newError(src, len(src), "the filter is empty", "leave the filter out to select every event")
	}
	n := p.expr(levelOr)
	if p.err == nil && p.lex.err == nil && p.tok.kind != tokEnd {
		p.unexpected()
	}
	// A fault of the lexer is farther left than what the parser made of it.
	if p.lex.err != nil {
		return nil, p.lex.err
	}
	if p.err != nil {
		return nil, p.err
	}
	return n, nil
}

func (p *parser) advance() { p.tok = p.lex.next() }

// fail keeps the first fault and stops the lexer, so that parsing runs out.
func (p *parser) fail(pos int, what, hint string) *node {
	if p.err == nil && p.lex.err == nil {
		p.err = newError(p.lex.src, pos, what, hint)
	}
	p.lex.pos = len(p.lex.src)
	p.tok = token{pos: p.lex.pos, end: p.lex.pos}
	n := p.nodes.alloc()
	n.depth = 1
	return n
}

func (p *parser) is(op string) bool { return p.tok.kind == tokOp && p.tok.text == op }

func (p *parser) isWord(w word) bool { return p.tok.kind == tokName && p.tok.word == w }

func (p *parser) accept(op string) bool {
	if p.is(op) {
		p.advance()
		return true
	}
	return false
}

func (p *parser) acceptWord(w word) bool {
	if p.isWord(w) {
		p.advance()
		return true
	}
	return false
}

// make makes a node whose operator stands at pos.
func (p *parser) make(o op, pos int, left, right *node) *node {
	n := p.nodes.alloc()
	n.op, n.pos, n.end, n.left, n.right = o, pos, p.tok.pos, left, right
	depth := int16(0)
	if left != nil {
		depth = left.depth
	}
	if right != nil {
		depth = max(depth, right.depth)
	}
	p.grow(n, depth+1)
	return n
}

// grow sets the depth of n to at least depth and refuses what is too deep.
func (p *parser) grow(n *node, depth int16) {
	n.depth = max(n.depth, depth)
	if n.depth > MaxDepth {
		p.fail(n.pos, "the expression tree is too deep (more than "+strconv.Itoa(MaxDepth)+" levels)",
			"use IN (…) instead of a long chain of OR, or split the filter")
		n.depth = 1
	}
}

// negate wraps n in what SQLite builds for NOT LIKE, NOT IN and NOT BETWEEN: the
// node carries the NOT itself, the depth counts it.
func (p *parser) negate(n *node, not bool) *node {
	if not {
		n.neg = true
		p.grow(n, n.depth+1)
	}
	return n
}

// binary maps an operator token to its node and level.
func binary(text string) (op, int) {
	switch text {
	case "=", "==":
		return opEq, levelEqual
	case "<>", "!=":
		return opNe, levelEqual
	case "<":
		return opLt, levelCompare
	case "<=":
		return opLe, levelCompare
	case ">":
		return opGt, levelCompare
	case ">=":
		return opGe, levelCompare
	case "&":
		return opBitAnd, levelBits
	case "|":
		return opBitOr, levelBits
	case "<<":
		return opShiftLeft, levelBits
	case ">>":
		return opShiftRight, levelBits
	case "+":
		return opAdd, levelAdd
	case "-":
		return opSub, levelAdd
	case "*":
		return opMul, levelMultiply
	case "/":
		return opDiv, levelMultiply
	case "%":
		return opRem, levelMultiply
	case "||":
		return opConcat, levelConcat
	case "->":
		return opArrow, levelConcat
	case "->>":
		return opArrowText, levelConcat
	}
	return 0, 0
}

func (p *parser) expr(level int) *node {
	start := p.tok.pos
	left := p.operand()
	for ; ; left.start = start {
		pos := p.tok.pos
		switch p.tok.kind {
		case tokOp:
			o, l := binary(p.tok.text)
			if l == 0 || l < level {
				return left
			}
			operator := p.tok.text
			p.advance()
			if l == levelEqual || l == levelCompare {
				p.rightAt, p.rightOf, p.rightOp = p.tok.pos, left, operator
			}
			left = p.make(o, pos, left, p.expr(l+1))
			continue
		case tokName:
		default:
			return left
		}
		switch p.tok.word {
		case wordAnd, wordOr:
			o, l := opAnd, levelAnd
			if p.tok.word == wordOr {
				o, l = opOr, levelOr
			}
			if l < level {
				return left
			}
			p.advance()
			left = p.make(o, pos, left, p.expr(l+1))
		case wordCollate:
			if levelCollate < level {
				return left
			}
			p.advance()
			left = p.collate(pos, left)
		case wordIs, wordIn, wordLike, wordGlob, wordBetween, wordIsNull, wordNotNull, wordNot,
			wordRegexp, wordMatch:
			if levelEqual < level {
				return left
			}
			left = p.predicate(pos, left)
		default:
			return left
		}
	}
}

// operand reads a prefix operator with what it applies to, or a primary.
func (p *parser) operand() *node {
	p.prefix++
	defer func() { p.prefix-- }()
	pos := p.tok.pos
	o, level := opNot, levelEqual
	switch {
	case p.isWord(wordNot):
	case p.is("-"):
		o, level = opNegate, levelPrefix
	case p.is("+"):
		o, level = opPlus, levelPrefix
	case p.is("~"):
		o, level = opBitNot, levelPrefix
	case p.is("("):
		return p.parenthesis()
	default:
		n := p.primary()
		n.start = pos
		return n
	}
	if p.prefix > maxNesting {
		return p.tooNested(pos)
	}
	p.advance()
	if o == opNot && p.isWord(wordExists) {
		return p.primary()
	}
	n := p.make(o, pos, p.expr(level), nil)
	n.start = pos
	if o == opNegate && n.left.op == opLiteral {
		p.negateLiteral(n)
	}
	return n
}

// maxNesting bounds the recursion of the parser, parentheses included. Only a
// filter of little else than opening parentheses comes near it.
const maxNesting = 20_000

func (p *parser) tooNested(pos int) *node {
	return p.fail(pos, "nested more than "+strconv.Itoa(maxNesting)+" deep", "remove parentheses")
}

// negateLiteral makes -5 a literal. SQLite reads the digits together with the
// minus, which matters for the least INTEGER.
func (p *parser) negateLiteral(n *node) {
	l := n.left
	switch {
	case l.mark == negatedOnce || l.word || l.lit.k == null || l.lit.k == text:
		return
	case l.mark == minHex:
		p.fail(n.pos, "hex literal too big: -0x8000000000000000", "write -9223372036854775808")
		return
	case l.mark == maxPlusOne:
		n.lit = intValue(math.MinInt64)
	case l.lit.k == integer:
		n.lit = intValue(-l.lit.i)
	default:
		n.lit = realValue(-l.lit.f)
	}
	n.op, n.left, n.mark = opLiteral, nil, negatedOnce
}

func (p *parser) unexpected() *node {
	t := p.tok
	switch {
	case t.kind == tokEnd:
		return p.fail(len(p.lex.src), "incomplete filter: an operand is missing", "complete the expression")
	case t.kind == tokOp && t.text == ")":
		return p.fail(t.pos, `near ")": syntax error`, "remove the ), or open it; the filter must be one whole expression")
	case t.kind == tokOp && t.text == "=":
		return p.fail(t.pos, `near "=": syntax error`, "write a value on both sides of =")
	case t.kind == tokString:
		return p.fail(t.pos, "near "+clip(p.lex.src[t.pos:t.end])+": syntax error",
			"join conditions with AND or OR, and write a quote inside a text as ''")
	case t.kind == tokName && t.word == wordSelect:
		return p.fail(t.pos, "a sub-query", "a filter looks at one event; sub-queries are not supported")
	}
	return p.fail(t.pos, `near "`+clip(p.lex.src[t.pos:t.end])+`": syntax error`, "join conditions with AND or OR")
}

// collate reads COLLATE and the name of a collation; the current token is the
// name.
func (p *parser) collate(pos int, left *node) *node {
	t := p.tok
	n := p.make(opCollate, pos, left, nil)
	switch {
	case t.kind != tokName && t.kind != tokQuoted && t.kind != tokString:
		return p.unexpected()
	case sqltext.EqualFoldASCII(t.text, "nocase"):
		n.coll = noCase
	case sqltext.EqualFoldASCII(t.text, "rtrim"):
		n.coll = rTrim
	case !sqltext.EqualFoldASCII(t.text, "binary"):
		return p.fail(t.pos, "no such collation sequence: "+clip(t.text), "use NOCASE, RTRIM or BINARY")
	}
	p.advance()
	return n
}
