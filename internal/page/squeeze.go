package page

import "strings"

// squeeze leaves out of a script or stylesheet what only its readers need: lines of
// comments, and spaces around signs outside of quotes, which matter in a stylesheet. It is for our own files, which have
// no quote in a regular expression and no comment behind code.
func squeeze(text string, spaces bool) string {
	var b strings.Builder
	for l := range strings.Lines(text) {
		if l = strings.TrimSpace(l); l == "" || strings.HasPrefix(l, "//") || strings.HasPrefix(l, "/*") && strings.HasSuffix(l, "*/") {
			continue
		}
		if spaces {
			squeezeLine(&b, l)
		} else {
			b.WriteString(l)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// signs need no space next to them.
const signs = "=+-*/<>?:;,{}()[]&|!"

func squeezeLine(b *strings.Builder, l string) {
	quote := byte(0)
	for i := 0; i < len(l); i++ {
		c := l[i]
		switch {
		case quote != 0:
			if c == quote && l[i-1] != '\\' {
				quote = 0
			}
		case c == '\'' || c == '"' || c == '`':
			quote = c
		case c == ' ' && spare(l[i-1], l[i+1]):
			continue
		}
		b.WriteByte(c)
	}
}

// spare reports whether a space between two characters can be left out.
func spare(before, after byte) bool {
	left, right := strings.IndexByte(signs, before) >= 0, strings.IndexByte(signs, after) >= 0
	return (left || right) && (!left || !right || before != after)
}
