package trigger

import (
	"strings"
	"testing"
	"time"
)

// TestTrace: with Trace, the event has the context that Trace returns in the place of the
// message's, whatever the case of its name; the message itself stays as it is.
func TestTrace(t *testing.T) {
	c := Config{Parser: "json", Queue: "q"}
	m := Message{ID: "m", Body: []byte("{}"), Headers: map[string]string{"Traceparent": "theirs", "x-a": "1"}}
	e, err := c.Envelope(&m, time.Now(), nil)
	if err != nil {
		t.Fatal(err)
	}
	stored := int64(0)
	done := e.trace(&m, func(_ *Message, traceparent string) (string, func(int64)) {
		if traceparent != "theirs" {
			t.Errorf("the context of the message is %q", traceparent)
		}
		return "ours", func(event int64) { stored = event }
	})
	done(7)
	if content := e.Content(nil); !strings.Contains(content, `"headers":{"traceparent":"ours","x-a":"1"}`) || stored != 7 || m.Headers["Traceparent"] != "theirs" {
		t.Errorf("the event is %s, the message has %v", content, m.Headers)
	}
}
