package terminal

import (
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	rows := [][]string{{"1", "a", "x", "end"}, {"12", "grün", "beyond all bounds", ""}, {"3", "abcdef", "y", strings.Repeat("z", 30)}}
	for _, tt := range []struct {
		table Table
		want  string
	}{
		{Table{}, "1\ta\tx\tend\n12\tgrün\tbeyond all bounds\t\n3\tabcdef\ty\t" + strings.Repeat("z", 30) + "\n"},
		{Table{Columns: 80, Number: true, Least: []int{9, 6, 4}}, "" +
			" 1  a       x                  end\n" +
			"12  grün    beyond all bounds  \n" +
			" 3  abcdef  y                  " + strings.Repeat("z", 30) + "\n"},
		// The third column gives way until the last has its least width.
		{Table{Columns: 46, Number: true, Least: []int{9, 6, 4}}, "" +
			" 1  a       x         end\n" +
			"12  grün    beyond …  \n" +
			" 3  abcdef  y         " + strings.Repeat("z", 23) + "…\n"},
		{Table{Columns: 20, Least: []int{9, 3, 4}, Styles: []string{"", "\x1b[1m"}}, "" +
			"1   \x1b[1ma\x1b[0m    x     end\n" +
			"12  \x1b[1mgr…\x1b[0m  bey…  \n" +
			"3   \x1b[1mab…\x1b[0m  y     " + strings.Repeat("z", 23) + "…\n"},
	} {
		var out strings.Builder
		tt.table.Out = &Output{W: &out}
		for _, cells := range rows {
			if err := tt.table.Row(cells...); err != nil {
				t.Fatal(err)
			}
		}
		if err := tt.table.Flush(); err != nil {
			t.Fatal(err)
		}
		if err := tt.table.Out.Flush(); err != nil {
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
	o := &Output{W: &out}
	rows := &Table{Out: o, Columns: 80, Least: []int{9}}
	for range heldRows {
		if err := rows.Row("a", "b"); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(string(o.Buf), "\n"); n != heldRows {
		t.Errorf("%d rows are printed, want %d", n, heldRows)
	}
	for _, first := range []string{"long", "a"} {
		o.Buf = nil
		if err := rows.Row(first, "b"); err != nil {
			t.Fatal(err)
		}
		if want := first + strings.Repeat(" ", 6-len(first)) + "b\n"; string(o.Buf) != want {
			t.Errorf("got %q, want %q", o.Buf, want)
		}
	}
}
