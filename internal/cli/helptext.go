package cli

import (
	"strings"
	"unicode/utf8"
)

// helpText is a help under construction, in lines of at most columns letters.
type helpText struct {
	b       strings.Builder
	columns int
}

// Terms up to widestTerm stand next to their meaning, longer ones above it. Below
// narrowest columns they all do.
const (
	widestTerm = 24
	Narrowest  = 60
)

// section adds a headline and items with their meanings in one column.
func (h *helpText) section(title string, items []item) {
	h.b.WriteByte('\n')
	h.fill(title, 0, 0)
	width := 0
	for _, it := range items {
		if n := utf8.RuneCountInString(it.term); n <= widestTerm {
			width = max(width, n)
		}
	}
	for _, it := range items {
		n := utf8.RuneCountInString(it.term)
		if h.columns < Narrowest && width > 4 {
			h.b.WriteString("  " + it.term + "\n")
			h.fill(it.meaning, 6, 6)
			continue
		}
		if h.b.WriteString("  " + it.term); n > width {
			h.b.WriteString("\n")
			h.fill(it.meaning, width+4, width+4)
			continue
		}
		h.b.WriteString(strings.Repeat(" ", width-n+2))
		h.hang(it.meaning, width+4, width+4)
	}
}

// examples adds lines that stay as they are, so that they can be copied.
func (h *helpText) examples(lines string) {
	h.b.WriteString("\nExamples:\n  " + strings.ReplaceAll(lines, "\n", "\n  ") + "\n")
}

// fill adds a paragraph whose first line begins after that many spaces, and the
// others after hang.
func (h *helpText) fill(text string, first, hang int) {
	h.b.WriteString(strings.Repeat(" ", first))
	h.hang(text, first, hang)
}

// hang adds a paragraph whose first line has used letters already.
func (h *helpText) hang(text string, used, hang int) {
	at := used
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case at+1+n > h.columns:
			h.b.WriteString("\n" + strings.Repeat(" ", hang))
			at = hang
		default:
			h.b.WriteByte(' ')
			at++
		}
		h.b.WriteString(word)
		at += n
	}
	h.b.WriteByte('\n')
}
