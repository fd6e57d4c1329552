package filter

import (
	"strconv"

	"thread/filter/internal/sqltext"
)

// primary reads a literal, a name, a call, CASE or CAST.
func (p *parser) primary() *node {
	t := p.tok
	switch t.kind {
	case tokString:
		p.advance()
		return p.literal(t, textValue(t.text))
	case tokInteger, tokHex, tokReal:
		p.advance()
		return p.numeric(t)
	case tokQuoted:
		p.advance()
		return p.name(t)
	case tokName:
		switch t.word {
		case noWord, wordLike, wordGlob, wordFilter, wordOver, wordMatch:
			p.advance()
			return p.name(t)
		case wordNull:
			p.advance()
			return p.literal(t, value{})
		case wordTrue, wordFalse:
			p.advance()
			if p.is(".") || p.is("(") {
				return p.unexpected()
			}
			n := p.literal(t, boolValue(t.word == wordTrue))
			n.word = true
			return n
		case wordCase:
			return p.caseExpr()
		case wordCast:
			return p.cast()
		case wordExists:
			return p.fail(t.pos, "EXISTS with a sub-query", "a filter looks at one event; sub-queries are not supported")
		case wordRegexp:
			return p.fail(t.pos, "no such function: "+t.text, "use LIKE '%…%' or GLOB '*…*'")
		}
	}
	return p.unexpected()
}

func (p *parser) literal(t token, v value) *node {
	n := p.nodes.alloc()
	n.op, n.pos, n.end, n.lit, n.depth = opLiteral, t.pos, t.end, v, 1
	return n
}

func (p *parser) numeric(t token) *node {
	switch t.kind {
	case tokReal:
		return p.literal(t, realValue(sqltext.ParseReal(t.text)))
	case tokHex:
		digits := t.text[2:]
		for len(digits) > 1 && digits[0] == '0' {
			digits = digits[1:]
		}
		u, err := strconv.ParseUint(digits, 16, 64)
		if err != nil {
			return p.fail(t.pos, "hex literal too big: "+clip(t.text), "at most 16 hexadecimal digits")
		}
		n := p.literal(t, intValue(int64(u)))
		if u == 1<<63 {
			n.mark = minHex
		}
		return n
	}
	i, ok := sqltext.ParseInteger(t.text)
	if ok {
		return p.literal(t, intValue(i))
	}
	n := p.literal(t, realValue(sqltext.ParseReal(t.text)))
	if d := trimZeros(t.text); d == "9223372036854775808" {
		n.mark = maxPlusOne
	}
	return n
}

func trimZeros(s string) string {
	for len(s) > 1 && s[0] == '0' {
		s = s[1:]
	}
	return s
}

func (p *parser) parenthesis() *node {
	open := p.tok.pos
	if p.prefix > maxNesting {
		return p.tooNested(open)
	}
	p.advance()
	if p.isWord(wordSelect) {
		return p.unexpected()
	}
	n := p.expr(levelOr)
	if p.is(",") {
		return p.fail(p.tok.pos, "a row value", "compare one value at a time, joined with AND")
	}
	p.close(open)
	return n
}

// close expects the parenthesis that closes the one at open.
func (p *parser) close(open int) {
	if p.accept(")") {
		return
	}
	if p.tok.kind == tokEnd {
		p.fail(open, "an unclosed parenthesis", "close it with )")
		return
	}
	p.unexpected()
}

// list reads expressions separated by commas up to the closing parenthesis.
func (p *parser) list(open int) []*node {
	if p.accept(")") {
		return nil
	}
	var store [4]*node
	list := store[:0]
	for {
		if p.isWord(wordSelect) {
			p.unexpected()
		}
		list = append(list, p.expr(levelOr))
		if !p.accept(",") {
			break
		}
	}
	p.close(open)
	return append([]*node(nil), list...)
}

// name reads what begins with an identifier: a column, events.column or a call.
func (p *parser) name(t token) *node {
	if p.is("(") {
		return p.call(t)
	}
	last := t
	if p.is(".") {
		p.advance()
		last = p.tok
		if last.kind != tokName && last.kind != tokQuoted {
			return p.unexpected()
		}
		p.advance()
		if p.is(".") {
			return p.fail(t.pos, "a column with a schema: "+clip(p.lex.src[t.pos:last.end])+"…", "write the column name alone")
		}
		if !sqltext.EqualFoldASCII(t.text, "events") {
			return p.fail(t.pos, "no such column: "+clip(p.lex.src[t.pos:last.end]), "the only table is events; its columns are "+columnList)
		}
	}
	col, ok := columnOf(last.text)
	if !ok {
		return p.noColumn(t, last)
	}
	n := p.nodes.alloc()
	n.op, n.col, n.pos, n.end, n.depth = opColumn, col, t.pos, last.end, 1
	n.uses = col.set()
	n.aff = affText
	if col == colID {
		n.aff = affInteger
	}
	return n
}

// columnOf finds a column by name, without regard to ASCII case.
func columnOf(name string) (column, bool) {
	for c, known := range columnNames {
		if sqltext.EqualFoldASCII(name, known) {
			return column(c), true
		}
	}
	if sqltext.EqualFoldASCII(name, "rowid") || sqltext.EqualFoldASCII(name, "_rowid_") || sqltext.EqualFoldASCII(name, "oid") {
		return colID, true
	}
	return 0, false
}

func (p *parser) call(t token) *node {
	open := p.tok.pos
	if p.prefix > maxNesting {
		return p.tooNested(open)
	}
	p.advance()
	n := p.nodes.alloc()
	n.op, n.pos, n.end, n.depth = opCall, t.pos, t.end, 1
	n.aux = &aux{name: t.text}
	if p.isWord(wordDistinct) {
		return p.fail(p.tok.pos, "DISTINCT in a call", "aggregates are not supported")
	}
	if p.is("*") {
		return p.fail(t.pos, "an aggregate: "+clip(t.text)+"(*)", "a filter looks at one event; aggregates are not supported")
	}
	n.args = p.list(open)
	n.end = p.tok.pos
	for _, a := range n.args {
		p.grow(n, a.depth+1)
	}
	if p.isWord(wordOver) || p.isWord(wordFilter) {
		return p.fail(p.tok.pos, "a window or aggregate call", "a filter looks at one event; aggregates are not supported")
	}
	return n
}

func (p *parser) caseExpr() *node {
	pos := p.tok.pos
	if p.prefix > maxNesting {
		return p.tooNested(pos)
	}
	p.advance()
	n := p.nodes.alloc()
	n.op, n.pos, n.depth = opCase, pos, 1
	child := func() *node {
		c := p.expr(levelOr)
		p.grow(n, c.depth+1)
		return c
	}
	if !p.isWord(wordWhen) {
		n.left = child()
	}
	if !p.isWord(wordWhen) {
		return p.unexpected()
	}
	for p.acceptWord(wordWhen) {
		when := child()
		if !p.acceptWord(wordThen) {
			return p.unexpected()
		}
		n.args = append(n.args, when, child())
	}
	if p.acceptWord(wordElse) {
		n.right = child()
	}
	n.end = p.tok.end
	if !p.acceptWord(wordEnd) {
		if p.tok.kind == tokEnd {
			return p.fail(pos, "CASE without END", "close it with END")
		}
		return p.unexpected()
	}
	return n
}

func (p *parser) cast() *node {
	pos := p.tok.pos
	if p.prefix > maxNesting {
		return p.tooNested(pos)
	}
	p.advance()
	open := p.tok.pos
	if !p.accept("(") {
		return p.unexpected()
	}
	operand := p.expr(levelOr)
	if !p.acceptWord(wordAs) {
		return p.unexpected()
	}
	t := p.tok
	aff, ok := castAffinity(t)
	if !ok {
		return p.fail(t.pos, "CAST to a type that filters do not have", "cast to INTEGER, REAL, NUMERIC or TEXT")
	}
	p.advance()
	if p.tok.kind != tokEnd && !p.is(")") {
		return p.fail(p.tok.pos, "CAST to a type that filters do not have", "cast to INTEGER, REAL, NUMERIC or TEXT")
	}
	p.close(open)
	n := p.make(opCast, pos, operand, nil)
	n.aff = aff
	return n
}

func castAffinity(t token) (affinity, bool) {
	if t.kind != tokName && t.kind != tokQuoted {
		return affNone, false
	}
	switch {
	case sqltext.EqualFoldASCII(t.text, "integer"), sqltext.EqualFoldASCII(t.text, "int"):
		return affInteger, true
	case sqltext.EqualFoldASCII(t.text, "real"):
		return affReal, true
	case sqltext.EqualFoldASCII(t.text, "numeric"):
		return affNumeric, true
	case sqltext.EqualFoldASCII(t.text, "text"):
		return affText, true
	}
	return affNone, false
}
