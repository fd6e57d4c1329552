package filter

import (
	"strings"

	"thread/filter/internal/sqltext"
)

// chain is a row of operators without parentheses, so that their ranks and their
// grouping decide. It holds no arithmetic that makes a REAL: see number.
func (g generator) chain(depth int) string {
	operand := func() string {
		s := ""
		for g.pick(5) == 0 {
			s += g.of("~ ", "+ ", "NOT ")
		}
		return s + g.of(g.column(), g.column(), g.text(), g.of("0", "1", "2", "5", "-1", "NULL", "TRUE", "FALSE"))
	}
	s := operand()
	for range 1 + g.pick(2+depth) {
		if g.pick(4) == 0 {
			s += " " + g.of("IS NULL", "ISNULL", "NOTNULL", "NOT NULL", "IS NOT NULL", "IS TRUE", "IS NOT FALSE", "IN (1, '5')", "NOT IN ('a', NULL)",
				"IN (0)", "BETWEEN 0 AND 2", "NOT BETWEEN 'a' AND subtype", "BETWEEN NOT 1 AND 5 > 2", "LIKE '%a%'", "NOT LIKE 'a!_%' ESCAPE '!'", "GLOB '[^a-c]*'")
			continue
		}
		s += " " + g.of("=", "==", "<>", "!=", "<", "<=", ">", ">=", "IS", "IS NOT", "IS DISTINCT FROM", "IS NOT DISTINCT FROM",
			"LIKE", "NOT LIKE", "GLOB", "NOT GLOB", "AND", "AND", "OR", "&", "|", "<<", ">>") + " " + operand()
	}
	return s
}

// dress writes a filter in another way that means the same: other white space,
// comments, other case of what is not quoted.
func (g generator) dress(filter string) string {
	var b strings.Builder
	gap := func(needed bool) {
		switch {
		case g.pick(3) == 0:
			b.WriteString(g.of(" ", "\t", "\n", "\f", "\r\n", "/**/", "/* it's -- */", " -- don't /*\n", " --\n"))
		case needed:
			b.WriteByte(' ')
		}
	}
	fold := g.pick(2) == 0
	l := lexer{src: filter}
	last := token{kind: tokOp, text: "("}
	gap(false)
	for t := l.next(); t.kind != tokEnd; t = l.next() {
		// Between words and numbers, next to a point and between operators a missing
		// space would make another token; two strings in a row would be one.
		apart := t.kind == tokOp && t.text != "(" && t.text != ")" && t.text != ","
		lastApart := last.kind == tokOp && last.text != "(" && last.text != ")" && last.text != ","
		gap(t.kind != tokOp && last.kind != tokOp || apart && (lastApart || last.kind != tokName) || lastApart && t.kind != tokName)
		word := filter[t.pos:t.end]
		if t.kind == tokName && fold {
			c := []byte(word)
			for i := range c {
				if c[i] < 0x80 && g.pick(2) == 0 {
					c[i] = sqltext.UpperASCII(c[i])
				} else if c[i] < 0x80 {
					c[i] = sqltext.LowerASCII(c[i])
				}
			}
			word = string(c)
		}
		b.WriteString(word)
		last = t
	}
	gap(false)
	if g.pick(4) == 0 {
		b.WriteString(g.of("--", " -- to the end", "-- it's (", "--/*"))
	}
	return b.String()
}
