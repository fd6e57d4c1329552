package event

import (
	"encoding/json"
	"regexp"
	"strings"
	"sync"
)

// maxTraced bounds the content that is searched for a trace context, in bytes.
const maxTraced = 1 << 20

// IsTraceparent reports whether a text has the form of W3C Trace Context.
func IsTraceparent(text string) bool { return traceparentForm().MatchString(text) }

var traceparentForm = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)
})

// Trace returns the trace context that an event carries: the texts traceparent and
// request_id of a content of at most 1 MiB that is a JSON object, or of its member
// headers. Each is "" where there is none; a traceparent of another form is none.
func (e *Event) Trace() (traceparent, requestID string) {
	c := e.Content
	if len(c) > maxTraced || !strings.HasPrefix(c, "{") || !strings.Contains(c, `"traceparent"`) && !strings.Contains(c, `"request_id"`) {
		return "", ""
	}
	type carrier struct {
		Traceparent any `json:"traceparent"`
		RequestID   any `json:"request_id"`
	}
	var in struct {
		carrier
		Headers json.RawMessage `json:"headers"`
	}
	var headers carrier
	if json.Unmarshal([]byte(c), &in) != nil {
		return "", ""
	}
	_ = json.Unmarshal(in.Headers, &headers) // headers of another form carry nothing
	for _, v := range []carrier{in.carrier, headers} {
		if text, ok := v.Traceparent.(string); ok && traceparent == "" && IsTraceparent(text) {
			traceparent = text
		}
		if text, ok := v.RequestID.(string); ok && requestID == "" && !strings.ContainsRune(text, 0) {
			requestID = text
		}
	}
	return traceparent, requestID
}
