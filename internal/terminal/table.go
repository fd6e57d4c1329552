package terminal

import (
	"cmp"
	"slices"
	"strings"
)

// Table prints rows of cells, which are printable. On a terminal the columns are
// aligned: the first rows are held back to see how wide they are, and from then
// on widths only grow. What does not fit is cut, which an ellipsis shows. On a terminal
// that is too narrow for that each cell has a separate line, behind its column's name.
// Elsewhere cells are whole and a tab stands between them, so that a line depends
// on its row alone and cut and awk can read it.
type Table struct {
	Out     *Output
	Columns int      // of the terminal, 0: there is none
	Least   []int    // how narrow a column, but the last, may become to fit
	Styles  []string // escape sequences before the cells; none without colours
	Number  bool     // the first column is one of numbers
	Last    int      // how narrow the last column may become, if it is wider; 0: 24

	header []string
	names  []string // of the columns, for a line for each cell
	headed bool     // the header is the first of the rows
	lines  bool     // the terminal is too narrow for columns
	widths []int    // of the widest cells so far
	held   [][]string
	begun  bool // the first rows are printed
}

const (
	heldRows  = 200 // how many rows are looked at before the first is printed
	leastLast = 24  // see Table.Last
)

// Header makes row stand above the first one, if there is any.
func (t *Table) Header(row ...string) { t.header = row }

// Names names the columns where a terminal is too narrow for them, without a header
// elsewhere.
func (t *Table) Names(row ...string) { t.names = row }

// Row adds a row, which may be printed later.
func (t *Table) Row(row ...string) error {
	if t.Columns == 0 {
		t.Out.Buf = append(append(t.Out.Buf, strings.Join(row, "\t")...), '\n')
		return t.Out.More()
	}
	if t.header != nil {
		t.held, t.names, t.header, t.headed = append(t.held, t.header), t.header, nil, true
	}
	t.held = append(t.held, row)
	if !t.begun && len(t.held) < heldRows {
		return nil
	}
	return t.Flush()
}

// Flush prints the rows that are held back.
func (t *Table) Flush() error {
	if len(t.held) == 0 {
		return nil
	}
	for _, row := range t.held {
		for i, cell := range row {
			if i == len(t.widths) {
				t.widths = append(t.widths, 0)
			}
			t.widths[i] = max(t.widths[i], cells(cell))
		}
	}
	widths := t.fit()
	if !t.begun || !t.headed {
		t.lines = t.lines || t.names != nil && total(widths) > t.Columns
	}
	if t.lines {
		return t.inLines()
	}
	for _, row := range t.held {
		for i, cell := range row {
			t.cell(i, shorten(cell, widths[i]), widths[i], i == len(row)-1)
		}
		if err := t.Out.More(); err != nil {
			return err
		}
	}
	t.begun, t.held = true, t.held[:0]
	return nil
}

// total is how wide columns of those widths are, with what stands between them.
func total(widths []int) int {
	sum := len("  ") * (len(widths) - 1)
	for _, w := range widths {
		sum += w
	}
	return sum
}

// inLines prints the rows that are held back, a line for each cell that is not empty.
func (t *Table) inLines() error {
	longest := 0
	for _, name := range t.names {
		longest = max(longest, cells(name))
	}
	rows := t.held
	if !t.begun && t.headed {
		rows = rows[1:] // that one is the names
	}
	for _, row := range rows {
		if t.begun {
			t.Out.Buf = append(t.Out.Buf, '\n')
		}
		t.begun = true
		for i, cell := range row {
			if cell == "" {
				continue
			}
			fill := strings.Repeat(" ", longest-cells(t.names[i]))
			t.Out.Buf = append(append(append(t.Out.Buf, t.names[i]...), fill...), "  "...)
			t.Out.Buf = append(append(t.Out.Buf, cell...), '\n')
		}
		if err := t.Out.More(); err != nil {
			return err
		}
	}
	t.held = t.held[:0]
	return nil
}

// fit returns the widths of all columns. The widest are the first that give way
// to the last one.
func (t *Table) fit() []int {
	n := len(t.widths) - 1
	widths, enough := slices.Clone(t.widths[:n]), min(t.widths[n], cmp.Or(t.Last, leastLast))
	last := t.Columns
	for _, w := range widths {
		last -= w + len("  ")
	}
	for last < enough {
		widest := -1
		for i, w := range widths {
			if w > t.Least[i] && (widest < 0 || w > widths[widest]) {
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

func (t *Table) cell(i int, cell string, width int, last bool) {
	b := t.Out.Buf
	fill := ""
	if !last {
		fill = strings.Repeat(" ", width-cells(cell))
	}
	if t.Number && i == 0 {
		b, fill = append(b, fill...), ""
	}
	if i < len(t.Styles) && t.Styles[i] != "" {
		b = append(append(append(b, t.Styles[i]...), cell...), "\x1b[0m"...)
	} else {
		b = append(b, cell...)
	}
	if last {
		t.Out.Buf = append(b, '\n')
		return
	}
	t.Out.Buf = append(append(b, fill...), "  "...)
}
