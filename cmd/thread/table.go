package main

import (
	"strings"
	"unicode/utf8"
)

// table prints rows of cells, which are printable. On a terminal the columns are
// aligned: the first rows are held back to see how wide they are, and from then
// on widths only grow. Elsewhere a tab stands between the cells, so that a line
// depends on its row alone and cut and awk can read it.
type table struct {
	out     *output
	aligned bool
	widest  []int    // beyond which a column, but the last, does not push the others
	styles  []string // escape sequences before the cells; none without colours
	number  bool     // the first column is one of numbers

	widths []int
	held   [][]string
	begun  bool // the first rows are printed
}

// heldRows is how many rows are looked at before the first is printed.
const heldRows = 200

func (t *table) row(cells ...string) error {
	if !t.aligned {
		t.out.buf = append(append(t.out.buf, strings.Join(cells, "\t")...), '\n')
		return t.out.more()
	}
	t.held = append(t.held, cells)
	if !t.begun && len(t.held) < heldRows {
		return nil
	}
	return t.flush()
}

// flush prints the rows that are held back.
func (t *table) flush() error {
	for _, cells := range t.held {
		for i, cell := range cells[:len(cells)-1] {
			if i == len(t.widths) {
				t.widths = append(t.widths, 0)
			}
			t.widths[i] = max(t.widths[i], min(t.widest[i], utf8.RuneCountInString(cell)))
		}
	}
	for _, cells := range t.held {
		for i, cell := range cells {
			t.cell(i, cell, i == len(cells)-1)
		}
		if err := t.out.more(); err != nil {
			return err
		}
	}
	t.begun = t.begun || len(t.held) > 0
	t.held = t.held[:0]
	return nil
}

func (t *table) cell(i int, cell string, last bool) {
	b := t.out.buf
	fill := ""
	if !last {
		fill = strings.Repeat(" ", max(0, t.widths[i]-utf8.RuneCountInString(cell)))
	}
	if t.number && i == 0 {
		b, fill = append(b, fill...), ""
	}
	if i < len(t.styles) && t.styles[i] != "" {
		b = append(append(append(b, t.styles[i]...), cell...), "\x1b[0m"...)
	} else {
		b = append(b, cell...)
	}
	if last {
		t.out.buf = append(b, '\n')
		return
	}
	t.out.buf = append(append(b, fill...), "  "...)
}
