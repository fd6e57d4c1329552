package serve

import (
	"testing"

	"thread/internal/dispatch"
)

func TestWant(t *testing.T) {
	push := func(author string) want { return wantOf(dispatch.Ping{Push: true, Author: author}) }
	for _, tt := range []struct {
		name                string
		merged              []want
		freshC, freshOthers bool
	}{
		{"a glance", []want{glance}, true, true},
		{"a push", []want{push("")}, false, false},
		{"a push of c itself", []want{push("c")}, true, false},
		{"twice", []want{push("c"), push("c")}, true, false},
		{"a glance and a push of c", []want{glance, push("c")}, true, false},
		{"a push of c and a glance", []want{push("c"), glance}, true, false},
		{"a push of c and one of another", []want{push("c"), push("d")}, false, false},
		{"a push of c and one of nobody", []want{push("c"), push("")}, false, false},
		{"one of nobody and one of c", []want{push(""), push("c")}, false, false},
		{"three", []want{push("c"), push("d"), push("c")}, false, false},
	} {
		var w want
		for _, m := range tt.merged {
			w.add(m)
		}
		if !w.look || w.fresh("c") != tt.freshC || w.fresh("x") != tt.freshOthers {
			t.Errorf("%s: %+v", tt.name, w)
		}
	}
	var none want
	none.add(want{})
	if none.look {
		t.Error("nothing asks for a look")
	}
}
