package filter

import "strconv"

// predicate reads an operator of the level of = that is a word: IS, IN, LIKE,
// GLOB, BETWEEN, ISNULL, NOTNULL and their NOT forms. The current token is at pos.
func (p *parser) predicate(pos int, left *node) *node {
	not := p.acceptWord(wordNot)
	w := p.tok.word
	if p.tok.kind != tokName {
		w = noWord
	}
	switch w {
	case wordIn:
		p.advance()
		return p.in(pos, left, not)
	case wordBetween:
		p.advance()
		low := p.expr(levelNot)
		if !p.acceptWord(wordAnd) {
			return p.unexpected()
		}
		high := p.expr(levelCompare)
		n := p.make(opBetween, pos, left, low)
		n.aux = &aux{high: high}
		p.grow(n, high.depth+1)
		return p.negate(n, not)
	case wordLike:
		p.advance()
		p.rightAt, p.rightOf, p.rightOp = p.tok.pos, left, "LIKE"
		n := p.make(opLike, pos, left, p.expr(levelCompare))
		n.aux = &aux{}
		if p.acceptWord(wordEscape) {
			n.aux.escape = p.expr(levelCompare)
			p.grow(n, n.aux.escape.depth+1)
			n.end = p.tok.pos
		}
		return p.negate(n, not)
	case wordGlob:
		p.advance()
		p.rightAt, p.rightOf, p.rightOp = p.tok.pos, left, "GLOB"
		n := p.make(opGlob, pos, left, p.expr(levelCompare))
		n.aux = &aux{}
		if p.isWord(wordEscape) {
			return p.fail(p.tok.pos, "GLOB with ESCAPE", "in GLOB, put the character in a set: [*]")
		}
		return p.negate(n, not)
	case wordRegexp, wordMatch:
		return p.fail(p.tok.pos, "no such function: "+p.tok.text, "use LIKE '%…%' or GLOB '*…*'")
	}
	if not { // x NOT NULL
		if !p.acceptWord(wordNull) {
			return p.unexpected()
		}
		n := p.make(opIsNull, pos, left, nil)
		n.neg = true
		return n
	}
	switch w {
	case wordIsNull, wordNotNull:
		p.advance()
		n := p.make(opIsNull, pos, left, nil)
		n.neg = w == wordNotNull
		return n
	}
	p.advance() // IS
	return p.isOperator(pos, left)
}

// isOperator reads what follows IS. IS DISTINCT FROM is IS NOT.
func (p *parser) isOperator(pos int, left *node) *node {
	not := p.acceptWord(wordNot)
	if p.acceptWord(wordDistinct) {
		if !p.acceptWord(wordFrom) {
			return p.unexpected()
		}
		not = !not
	}
	p.rightAt, p.rightOf, p.rightOp = p.tok.pos, left, "IS"
	right := p.expr(levelCompare)
	o := opIs
	if not {
		o = opIsNot
	}
	n := p.make(o, pos, left, right)
	switch word := right.strip(); {
	case word.op == opLiteral && word.word:
		n.op, n.neg, n.lit, n.right = opIsTrue, not, word.lit, nil
	case word.op == opIn && len(word.args) == 0:
		// Newer versions read an empty IN as the bare word FALSE, and so the IS as
		// a truth test.
		return p.fail(word.pos, "an empty IN list on the right of IS means different things in different versions of SQLite", "write FALSE, or TRUE for NOT IN ()")
	case right.op == opLiteral && right.lit.k == null:
		n.op, n.neg, n.right = opIsNull, not, nil
	}
	return n
}

// in reads the list after IN.
func (p *parser) in(pos int, left *node, not bool) *node {
	open := p.tok.pos
	if !p.is("(") {
		if p.tok.kind == tokEnd {
			return p.unexpected()
		}
		return p.fail(p.tok.pos, "IN without a list", "write IN ('a', 'b')")
	}
	p.advance()
	n := p.make(opIn, pos, left, nil)
	n.args = p.list(open)
	n.aux = &aux{}
	n.end = p.tok.pos
	if len(n.args) > MaxList {
		return p.fail(open, "an IN list of more than "+strconv.Itoa(MaxList)+" elements", "split it: x IN (…) OR x IN (…)")
	}
	for _, e := range n.args {
		p.grow(n, e.depth+1)
	}
	if len(n.args) == 1 {
		p.grow(n, n.args[0].depth+2) // SQLite compares with +element
	}
	return p.negate(n, not)
}
