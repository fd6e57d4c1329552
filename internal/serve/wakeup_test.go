package serve

import (
	"testing"

	"thread/internal/dispatch"
)

func TestWakeUp(t *testing.T) {
	push := func(author string) wakeUp { return wakeUpOf(dispatch.Ping{Push: true, Author: author}) }
	for _, tt := range []struct {
		name                string
		merged              []wakeUp
		freshC, freshOthers bool
	}{
		{"a wakeNew", []wakeUp{wakeNew}, true, true},
		{"a push", []wakeUp{push("")}, false, false},
		{"a push of c itself", []wakeUp{push("c")}, true, false},
		{"twice", []wakeUp{push("c"), push("c")}, true, false},
		{"a wakeNew and a push of c", []wakeUp{wakeNew, push("c")}, true, false},
		{"a push of c and a wakeNew", []wakeUp{push("c"), wakeNew}, true, false},
		{"a push of c and one of another", []wakeUp{push("c"), push("d")}, false, false},
		{"a push of c and one of nobody", []wakeUp{push("c"), push("")}, false, false},
		{"one of nobody and one of c", []wakeUp{push(""), push("c")}, false, false},
		{"three", []wakeUp{push("c"), push("d"), push("c")}, false, false},
	} {
		var w wakeUp
		for _, m := range tt.merged {
			w.add(m)
		}
		if !w.set || w.fresh("c") != tt.freshC || w.fresh("x") != tt.freshOthers {
			t.Errorf("%s: %+v", tt.name, w)
		}
	}
	var none wakeUp
	none.add(wakeUp{})
	if none.set {
		t.Error("nothing asks for a pass")
	}
}
