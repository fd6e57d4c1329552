package outbox

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"thread/event"
)

// The members of Message.Extra that carry a trace context; see [Message.Trace].
const (
	memberTraceparent = "traceparent"
	memberRequestID   = "request_id"
)

// Trace gives m the trace context of what inserts it, unless m has one: a traceparent
// of W3C Trace Context and the id of a request, each "" for none. Both are members of
// its payload, and reach the handler and its run.
func (m *Message) Trace(traceparent, requestID string) {
	for _, member := range [][2]string{{memberTraceparent, traceparent}, {memberRequestID, requestID}} {
		if v, _ := json.Marshal(member[1]); member[1] != "" && m.extra(member[0]) == "" {
			m.Extra = append(m.Extra, Member{member[0], v})
		}
	}
}

// extra returns the text of a further member, "" when it is none.
func (m *Message) extra(name string) (text string) {
	for _, e := range m.Extra {
		if e.Name == name {
			_ = json.Unmarshal(e.Value, &text) // what is not a text is none
		}
	}
	return text
}

// traceparent returns the trace context of the message. Where it has none, its trace_id
// is the trace: the 32 hexadecimal digits of it, else of its hash.
func (m *Message) traceparent() string {
	if text := m.extra(memberTraceparent); event.IsTraceparent(text) {
		return text
	}
	sum := sha256.Sum256([]byte(m.TraceID))
	trace := hex.EncodeToString(sum[:16])
	if id := strings.ToLower(strings.TrimPrefix(m.TraceID, "trc_")); len(id) == 32 {
		if _, err := hex.DecodeString(id); err == nil {
			trace = id
		}
	}
	span := sha256.Sum256([]byte(m.EventID))
	return "00-" + trace + "-" + hex.EncodeToString(span[:8]) + "-01"
}

// requestID returns the id of the request, the trace's where the message has none.
func (m *Message) requestID() string {
	if id := m.extra(memberRequestID); id != "" {
		return id
	}
	return m.TraceID
}
