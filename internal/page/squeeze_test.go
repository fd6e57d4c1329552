package page

import "testing"

// TestBudgets: the script and the stylesheet are as small as their budgets ask for.
func TestBudgets(t *testing.T) {
	for _, b := range []struct {
		most  int
		names []string
	}{{8 << 10, []string{"ui.js"}}, {1 << 10, []string{"worker.js"}}, {20 << 10, []string{"ui.css"}}} {
		size := 0
		for _, name := range b.names {
			size += len(asset(name))
		}
		t.Logf("%v: %d bytes", b.names, size)
		if size > b.most {
			t.Errorf("%v have %d bytes, at most %d are allowed", b.names, size, b.most)
		}
	}
}
