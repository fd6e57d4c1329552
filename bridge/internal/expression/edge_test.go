//go:build edge

package expression

import (
	"strings"
	"testing"
)

func TestEdge(t *testing.T) {
	type env struct {
		Type    string `expr:"type"`
		Message any    `expr:"message"`
	}
	e := env{"order", map[string]any{"m": map[string]any{"n": int64(7)}}}
	for text, want := range map[string]string{"type": "order", " message.m.n ": "7", "message.m.x": "nil"} {
		p, err := Compile(text, env{})
		if err != nil {
			t.Fatal(err)
		}
		if v, err := p.Run(e); err != nil || String(v) != want {
			t.Errorf("%s: %v %v", text, v, err)
		}
	}
	for _, text := range []string{`"a" + type`, "string(type)", "", "nosuch"} {
		if _, err := Compile(text, env{}); err == nil || text != "nosuch" && !strings.Contains(err.Error(), "use the full thread-bridge") {
			t.Errorf("%s: %v", text, err)
		}
	}
	if p, err := Compile("message.m.n.x", env{}); err != nil {
		t.Error(err)
	} else if _, err := p.Run(e); err == nil {
		t.Error("a number has an element")
	}
}
