package filter

import "strings"

const columnList = "id, created_at, source, type, subtype, content"

// noColumn fails with an unknown column. It is most often a text that lacks
// its quotes; whole is the name as written, from t to last.
func (p *parser) noColumn(t, last token) *node {
	src := p.lex.src
	if last.kind == tokQuoted && src[last.pos] == '"' {
		return p.fail(t.pos, "no such column: "+clip(src[t.pos:last.end])+" - should this be a string literal in single-quotes?",
			"did you mean "+p.suggest(t.pos, last.text)+"?")
	}
	what := "no such column: " + clip(src[t.pos:last.end])
	switch strings.ToLower(last.text) {
	case "current_date", "current_time", "current_timestamp":
		return p.fail(t.pos, last.text+" is not supported in filters", "use date('now'), time('now') or datetime('now')")
	}
	if t.pos == p.rightAt {
		return p.fail(t.pos, what, "did you mean "+p.suggest(t.pos, bareText(src[t.pos:]))+"?")
	}
	for _, name := range columnNames {
		if nearly(strings.ToLower(last.text), name) {
			return p.fail(t.pos, what, "did you mean "+name+"?")
		}
	}
	return p.fail(t.pos, what, "the columns are "+columnList+"; a text goes in single quotes")
}

// suggest writes text as a string literal, with the comparison in front if pos
// is the right side of one.
func (p *parser) suggest(pos int, text string) string {
	quoted := "'" + strings.ReplaceAll(clip(text), "'", "''") + "'"
	if pos == p.rightAt && p.rightOf.op == opColumn {
		return columnNames[p.rightOf.col] + " " + p.rightOp + " " + quoted
	}
	return quoted
}

// nearly reports whether one letter is wrong, missing or too many, or two
// neighbours are exchanged.
func nearly(a, b string) bool {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	a, b = a[i:], b[i:]
	switch {
	case len(a) > 0 && len(b) > 0 && a[1:] == b[1:],
		len(a) > 0 && a[1:] == b,
		len(b) > 0 && b[1:] == a:
		return true
	}
	return len(a) > 1 && len(b) > 1 && a[0] == b[1] && a[1] == b[0] && a[2:] == b[2:]
}
