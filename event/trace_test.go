package event

import (
	"strings"
	"testing"
)

// H-21: the trace context of an event is in its content, or in the headers there.
func TestTrace(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for content, want := range map[string]string{
		`{"traceparent":"` + parent + `","request_id":"r"}`:               parent + " r",
		`{"headers":{"traceparent":"` + parent + `"},"request_id":"r"}`:   parent + " r",
		`{"traceparent":"no","headers":{"traceparent":"` + parent + `"}}`: parent + " ",
		`{"request_id":7,"headers":["request_id"]}`:                       " ",
		`{"a":{"traceparent":"` + parent + `"}}`:                          " ",
		`{"traceparent":"` + strings.ToUpper(parent) + `"}`:               " ",
		`"traceparent"`:                   " ",
		`{"traceparent":"` + parent + `"`: " ",
		`{"request_id":"r","x":"` + strings.Repeat("x", maxTraced) + `"}`:        " ",
		`{"request_id":"a\u0000b","headers":{"request_id":"r","traceparent":1}}`: " r",
	} {
		e := Event{Content: content}
		if a, b := e.Trace(); a+" "+b != want {
			t.Errorf("%.80s: %q, %q", content, a, b)
		}
	}
}
