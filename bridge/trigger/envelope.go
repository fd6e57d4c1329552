package trigger

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
	"unsafe"

	"thread/event"
	"thread/filter"
)

// Envelope is a message as it is seen behind the adapters.
type Envelope struct {
	MessageID  string
	Payload    []byte // as parsed: of a JSON object its bytes
	Parser     string // json, text, binary
	Headers    map[string]string
	Key        string    // the record key, routing key or group; "" for none
	ReceivedAt time.Time // UTC
	Source     string    // the queue's name
	DedupKey   string    // header x-dedup-key
	EventName  string    // the configured header
	TenantID   string    // who the message is of, as far as it is believed
	TraceID    string    // queue-<message id>
}

// The headers with a meaning. They are matched without case.
const (
	HeaderMessageID = "x-message-id"
	HeaderDedupKey  = "x-dedup-key"
	HeaderEventName = "x-event-name"
	HeaderTenant    = "x-tenant-id"
	HeaderProducer  = "x-producer"
	HeaderSignature = "x-tenant-signature"
	HeaderDLQReason = "x-dlq-reason"
	// HeaderRedelivered marks a message without an id that the broker gave out before.
	HeaderRedelivered = "x-redelivered"
)

// defaultEventName is the type of an event without a name.
const defaultEventName = "queue_message"

// Header returns the header of that name, whatever its case; "" when there is none.
// Of several that differ in case only, the exact one counts, else the first in byte
// order.
func Header(headers map[string]string, name string) string {
	if v, ok := headers[name]; ok {
		return v
	}
	first, found := "", false
	for k := range headers {
		if strings.EqualFold(k, name) && (!found || k < first) {
			first, found = k, true
		}
	}
	return headers[first]
}

// ErrParse is wrapped by the errors of Parse.
var ErrParse = errors.New("the message cannot be parsed")

// Parse returns a body as its parser gives it: of json an object, of text
// valid UTF-8, of binary the bytes.
func Parse(parser string, body []byte) ([]byte, error) {
	switch parser {
	case "json":
		trimmed := bytes.TrimLeft(body, " \t\r\n")
		switch {
		case !utf8.Valid(body):
			return nil, fmt.Errorf("%w: not valid UTF-8", ErrParse)
		case len(trimmed) > 0 && trimmed[0] != '{' && isJSON(body):
			return nil, fmt.Errorf("%w: not a JSON object", ErrParse)
		}
		if !isJSON(body) {
			var into any
			return nil, fmt.Errorf("%w: not JSON: %w", ErrParse, json.Unmarshal(body, &into))
		}
		return bytes.TrimRight(trimmed, " \t\r\n"), nil
	case "text":
		if !utf8.Valid(body) {
			return nil, fmt.Errorf("%w: not valid UTF-8", ErrParse)
		}
	}
	return body, nil
}

// isJSON is json.Valid, which is the largest part of an intake: what the quick look
// does not know as JSON is nested too deep for it, or is none.
func isJSON(body []byte) bool {
	return filter.IsJSON(unsafe.String(unsafe.SliceData(body), len(body))) || json.Valid(body)
}

// Envelope makes the envelope of a message. Errors wrap ErrParse; the envelope has
// everything but the payload then.
func (c *Config) Envelope(m *Message, now time.Time, secrets []string) (*Envelope, error) {
	e := &Envelope{
		Key:       m.Key,
		MessageID: m.ID, Parser: c.Parser, Headers: m.Headers, ReceivedAt: m.At.UTC(), Source: c.Queue,
		DedupKey: Header(m.Headers, HeaderDedupKey), EventName: Header(m.Headers, c.EventNameHeader),
		TraceID: "queue-" + m.ID,
	}
	if m.At.IsZero() {
		e.ReceivedAt = now.UTC()
	}
	e.TenantID = c.Tenant.tenant(m, secrets)
	if m.Unnamed && m.Redelivered { // perhaps it is there already, under another id
		e.Headers = maps.Clone(m.Headers)
		if e.Headers == nil {
			e.Headers = map[string]string{}
		}
		e.Headers[HeaderRedelivered] = "true"
	}
	if m.Bad != "" {
		return e, fmt.Errorf("%w: %s", ErrParse, m.Bad)
	}
	var err error
	e.Payload, err = Parse(c.Parser, m.Body)
	return e, err
}

// Type is the event's type.
func (e *Envelope) Type() string {
	if e.EventName == "" {
		return defaultEventName
	}
	return e.EventName
}

// receivedLayout is the ISO form of received_at.
const receivedLayout = "2006-01-02T15:04:05.000Z"

// Content returns the content of the event: one JSON object, in which the
// message stands as it came when it is JSON, in base64 when it is binary.
func (e *Envelope) Content(focus *string) string {
	b := make([]byte, 0, len(e.Payload)+256+len(e.MessageID)+len(e.TraceID)+len(e.Source))
	b = append(b, `{"message":`...)
	switch e.Parser {
	case "json":
		b = append(b, e.Payload...)
	case "text":
		b = appendJSON(b, string(e.Payload))
	default:
		b = append(b, '"')
		b = base64.StdEncoding.AppendEncode(b, e.Payload)
		b = append(b, '"')
	}
	b = append(b, `,"headers":{`...)
	for i, k := range slices.Sorted(maps.Keys(e.Headers)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendJSON(b, k), ':')
		b = appendJSON(b, e.Headers[k])
	}
	b = append(b, `},"source":`...)
	b = appendJSON(b, e.Source)
	b = append(b, `,"message_id":`...)
	b = appendJSON(b, e.MessageID)
	if e.Key != "" {
		b = appendJSON(append(b, `,"key":`...), e.Key)
	}
	b = append(b, `,"received_at":"`...)
	b = event.AppendTime(b, e.ReceivedAt.UnixMilli())
	b = append(b, `","trace_id":`...)
	b = appendJSON(b, e.TraceID)
	b = append(b, `,"focus":`...)
	if focus == nil {
		b = append(b, "null"...)
	} else {
		b = appendJSON(b, *focus)
	}
	b = append(b, `,"tenant_id":`...)
	b = appendJSON(b, e.TenantID)
	b = append(b, '}')
	return unsafe.String(&b[0], len(b)) // nobody else has b
}

// Body returns the body alone as the content of an event.
func (e *Envelope) Body() string {
	if e.Parser == "binary" {
		return base64.StdEncoding.EncodeToString(e.Payload)
	}
	return string(e.Payload)
}

// appendJSON appends s as a JSON string, without escapes for HTML. What is not
// valid UTF-8 becomes U+FFFD.
func appendJSON(b []byte, s string) []byte {
	plain := true
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			plain = false
			break
		}
	}
	if plain {
		return append(append(append(b, '"'), s...), '"')
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // of a string: no error
	return append(b, bytes.TrimRight(out.Bytes(), "\n")...)
}
