package terminal

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestCells(t *testing.T) {
	for _, tt := range []struct {
		s    string
		want int
	}{
		{"", 0}, {"plain", 5}, {"grün", 4}, {"gru\u0308n", 4}, {"…", 1}, {"中文", 4}, {"ｆｕｌｌ", 8}, {"ｶﾅ", 2}, {"한글", 4}, {"🧵", 2},
		{"e\u20dd", 1}, {"🇩🇪", 2}, {"Ωж", 2},
	} {
		if got := cells(tt.s); got != tt.want {
			t.Errorf("cells(%q) = %d, want %d", tt.s, got, tt.want)
		}
	}
}

func TestShorten(t *testing.T) {
	for _, tt := range []struct {
		s    string
		most int
		want string
	}{
		{"中文字", 6, "中文字"}, {"中文字", 5, "中文…"}, {"中文字", 4, "中…"}, {"中文字", 1, "…"}, {"a中文", 4, "a中…"},
		{"e\u0301e\u0301e\u0301", 2, "e\u0301…"},
	} {
		if got := shorten(tt.s, tt.most); got != tt.want {
			t.Errorf("shorten(%q, %d) = %q, want %q", tt.s, tt.most, got, tt.want)
		}
	}
}

// TestTableInCells: no row is wider than the terminal where the columns may become
// narrow enough, and the columns begin in the same cells in every row.
func TestTableInCells(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.RuneFrom([]rune("ab中文한🧵é\u0301")), 0, 40, -1)
		rows := rapid.SliceOfN(rapid.SliceOfN(text, 3, 3), 1, 5).Draw(t, "rows")
		var out strings.Builder
		table := Table{Out: &Output{W: &out}, Columns: 60, Least: []int{8, 8}, Styles: []string{"", "|"}}
		for _, row := range rows {
			if err := table.Row(row...); err != nil {
				t.Fatal(err)
			}
		}
		if err := table.Flush(); err != nil {
			t.Fatal(err)
		}
		if err := table.Out.Flush(); err != nil {
			t.Fatal(err)
		}
		second := -1
		for line := range strings.Lines(strings.ReplaceAll(out.String(), "\x1b[0m", "")) {
			before, after, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "|")
			if n := cells(before + after); n > 60 {
				t.Fatalf("%d cells: %q", n, line)
			}
			if at := cells(before); second < 0 {
				second = at
			} else if at != second {
				t.Fatalf("the second column begins at %d and at %d: %q", second, at, out.String())
			}
		}
	})
}
