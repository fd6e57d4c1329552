package page

import (
	"html/template"
	"regexp"
	"strings"
)

// token is a string, with a colon behind it for a key, or a number or word of JSON.
var token = regexp.MustCompile(`"(?:[^"\\]|\\.)*"(\s*:)?|-?\d[\d.eE+-]*|\b(?:true|false|null)\b`)

// highlight colours JSON. Any other text is only escaped.
func highlight(text string) template.HTML {
	if !looksJSON(text) || len(text) > pageBytes {
		return template.HTML(template.HTMLEscapeString(text)) //nolint:gosec // it is escaped
	}
	var b strings.Builder
	last := 0
	for _, m := range token.FindAllStringSubmatchIndex(text, -1) {
		b.WriteString(template.HTMLEscapeString(text[last:m[0]]))
		class, end := "d", m[1]
		switch {
		case m[2] >= 0:
			class, end = "k", m[2]
		case text[m[0]] == '"':
			class = "s"
		}
		b.WriteString(`<span class="` + class + `">` + template.HTMLEscapeString(text[m[0]:end]) + `</span>`)
		last = end
	}
	b.WriteString(template.HTMLEscapeString(text[last:]))
	return template.HTML(b.String()) //nolint:gosec // every piece is escaped
}
