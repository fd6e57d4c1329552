package terminal

import (
	"testing"
	"time"
)

// TestBarLine: what a bar says on terminals of several widths, which it never fills.
func TestBarLine(t *testing.T) {
	for _, c := range []struct {
		done, total int64
		columns     int
		want        string
	}{
		{500, 1000, 0, "copying [============            ] 50%, 500 of 1000, 100/s, 5s left"},
		{500, 1000, 80, "copying [============            ] 50%, 500 of 1000, 100/s, 5s left"},
		{500, 1000, 40, "copying 50%, 100/s, 5s left"},
		{500, 1000, 20, "copying 50%, 100/s,"},
		{500, 0, 80, "copying 500, 100/s"},
		{0, 1000, 80, "copying 0, 0/s"},
		{1500, 1000, 80, "copying [========================] 100%, 1000 of 1000, 300/s, 0s left"},
	} {
		since := 5 * time.Second
		if got := barLine("copying", c.done, c.total, since, c.columns); got != c.want {
			t.Errorf("%d of %d on %d columns: %q, want %q", c.done, c.total, c.columns, got, c.want)
		}
	}
}
