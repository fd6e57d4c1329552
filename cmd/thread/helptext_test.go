package main

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestHelpFits: at every width the help has the same words, its examples as they
// are, before the flags, and no other line that could be shorter.
func TestHelpFits(t *testing.T) {
	pages := map[string]func(columns int) string{
		"overview": func(columns int) string { return overview(true, columns) },
	}
	examples := map[string]string{"overview": overviewExamples}
	for _, v := range verbs() {
		pages[v.name], examples[v.name] = v.help, v.examples
	}
	for name, page := range pages {
		example := "\nExamples:\n  " + strings.ReplaceAll(examples[name], "\n", "\n  ") + "\n"
		words := strings.Fields(page(1000))
		for _, columns := range []int{30, 40, 59, 60, 80, 100} {
			text := page(columns)
			if !slices.Equal(strings.Fields(text), words) {
				t.Errorf("%s: other words at %d columns:\n%s", name, columns, text)
			}
			rest, flags, found := strings.Cut(text, example)
			if !found || strings.Contains(rest, "\nFlags:") {
				t.Errorf("%s: the examples do not come first:\n%s", name, text)
			}
			for line := range strings.SplitSeq(rest+flags, "\n") {
				term := columns < narrowest && strings.HasPrefix(line, "  ") && !strings.HasPrefix(line, "   ")
				if utf8.RuneCountInString(line) > columns && len(strings.Fields(line)) > 1 && !term {
					t.Errorf("%s: longer than %d: %q", name, columns, line)
				}
			}
		}
	}
}

func TestTable(t *testing.T) {
	rows := [][]string{{"1", "a", "x", "end"}, {"12", "grün", "beyond all bounds", ""}, {"3", "abcdef", "y", strings.Repeat("z", 30)}}
	for _, tt := range []struct {
		table table
		want  string
	}{
		{table{}, "1\ta\tx\tend\n12\tgrün\tbeyond all bounds\t\n3\tabcdef\ty\t" + strings.Repeat("z", 30) + "\n"},
		{table{columns: 80, number: true, least: []int{9, 6, 4}}, "" +
			" 1  a       x                  end\n" +
			"12  grün    beyond all bounds  \n" +
			" 3  abcdef  y                  " + strings.Repeat("z", 30) + "\n"},
		// The third column gives way until the last has its least width.
		{table{columns: 46, number: true, least: []int{9, 6, 4}}, "" +
			" 1  a       x         end\n" +
			"12  grün    beyond …  \n" +
			" 3  abcdef  y         " + strings.Repeat("z", 23) + "…\n"},
		{table{columns: 20, least: []int{9, 3, 4}, styles: []string{"", "\x1b[1m"}}, "" +
			"1   \x1b[1ma\x1b[0m    x     end\n" +
			"12  \x1b[1mgr…\x1b[0m  bey…  \n" +
			"3   \x1b[1mab…\x1b[0m  y     " + strings.Repeat("z", 23) + "…\n"},
	} {
		var out strings.Builder
		tt.table.out = &output{w: &out}
		for _, cells := range rows {
			if err := tt.table.row(cells...); err != nil {
				t.Fatal(err)
			}
		}
		if err := tt.table.flush(); err != nil {
			t.Fatal(err)
		}
		if err := tt.table.out.flush(); err != nil {
			t.Fatal(err)
		}
		if out.String() != tt.want {
			t.Errorf("got\n%s\nwant\n%s", out.String(), tt.want)
		}
	}
}

// TestTableGrows: rows after the first do not wait, and only make columns wider.
func TestTableGrows(t *testing.T) {
	var out strings.Builder
	o := &output{w: &out}
	rows := &table{out: o, columns: 80, least: []int{9}}
	for range heldRows {
		if err := rows.row("a", "b"); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(string(o.buf), "\n"); n != heldRows {
		t.Errorf("%d rows are printed, want %d", n, heldRows)
	}
	for _, first := range []string{"long", "a"} {
		o.buf = nil
		if err := rows.row(first, "b"); err != nil {
			t.Fatal(err)
		}
		if want := first + strings.Repeat(" ", 6-len(first)) + "b\n"; string(o.buf) != want {
			t.Errorf("got %q, want %q", o.buf, want)
		}
	}
}
