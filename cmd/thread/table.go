package main

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// table prints rows of cells, which are printable. On a terminal the columns are
// aligned: the first rows are held back to see how wide they are, and from then
// on widths only grow. What does not fit is cut, which an ellipsis shows.
// Elsewhere cells are whole and a tab stands between them, so that a line depends
// on its row alone and cut and awk can read it.
type table struct {
	out     *output
	columns int      // of the terminal, 0: there is none
	least   []int    // how narrow a column, but the last, may become to fit
	styles  []string // escape sequences before the cells; none without colours
	number  bool     // the first column is one of numbers

	widths []int // of the widest cells so far
	held   [][]string
	begun  bool // the first rows are printed
}

const (
	heldRows  = 200 // how many rows are looked at before the first is printed
	leastLast = 24  // how narrow the last column may become, if it is wider
)

func (t *table) row(cells ...string) error {
	if t.columns == 0 {
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
	if len(t.held) == 0 {
		return nil
	}
	for _, cells := range t.held {
		for i, cell := range cells {
			if i == len(t.widths) {
				t.widths = append(t.widths, 0)
			}
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(cell))
		}
	}
	widths := t.fit()
	for _, cells := range t.held {
		for i, cell := range cells {
			t.cell(i, shorten(cell, widths[i]), widths[i], i == len(cells)-1)
		}
		if err := t.out.more(); err != nil {
			return err
		}
	}
	t.begun, t.held = true, t.held[:0]
	return nil
}

// fit returns the widths of all columns. The widest are the first that give way
// to the last one.
func (t *table) fit() []int {
	n := len(t.widths) - 1
	widths, enough := slices.Clone(t.widths[:n]), min(t.widths[n], leastLast)
	last := t.columns
	for _, w := range widths {
		last -= w + len("  ")
	}
	for last < enough {
		widest := -1
		for i, w := range widths {
			if w > t.least[i] && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
		last++
	}
	return append(widths, max(last, enough))
}

// shorten returns at most so many letters of s.
func shorten(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	return string([]rune(s)[:width-1]) + "…"
}

func (t *table) cell(i int, cell string, width int, last bool) {
	b := t.out.buf
	fill := ""
	if !last {
		fill = strings.Repeat(" ", width-utf8.RuneCountInString(cell))
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
