//go:build linux

package serve

import (
	"encoding/json"
	"strings"
	"testing"

	"thread/internal/api"
)

// TestUIReference: the page of the API has each request, shape and type of problem, and
// each link to a shape leads to one.
func TestUIReference(t *testing.T) {
	b := newBench(t)
	br := b.browse(Options{})
	_, body := br.page("/api")
	for _, route := range api.Routes() {
		method, path, _ := strings.Cut(route, " ")
		if !strings.Contains(body, `<b class="w-num">`+method+`</b><code class="cut" title="`+path+`"`) {
			t.Errorf("%s is missing", route)
		}
	}
	for _, k := range api.Kinds() {
		if !strings.Contains(body, k.Type()) {
			t.Errorf("%s is missing", k.Type())
		}
	}
	links := strings.Split(body, `href="#shape-`)
	for _, rest := range links[1:] {
		name, _, _ := strings.Cut(rest, `"`)
		if !strings.Contains(body, `id="shape-`+name+`"`) {
			t.Errorf("the shape %s is missing", name)
		}
	}
	var twin struct{ Requests, Shapes []any }
	_, text := br.page("/api.json")
	if err := json.Unmarshal([]byte(text), &twin); err != nil || len(twin.Requests) != len(api.Routes()) || len(twin.Shapes) == 0 || len(links) < 40 {
		t.Errorf("%d requests, %d shapes, %d links: %v", len(twin.Requests), len(twin.Shapes), len(links)-1, err)
	}
}
