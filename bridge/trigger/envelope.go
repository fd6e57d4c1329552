package trigger

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
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

// Header returns the value of the header with that name, compared without case, and
// "" for a header that is missing. An exact name wins over the others; of those, the
// first one in byte order counts.
func Header(headers map[string]string, name string) string {
	v, _ := findHeader(headers, name)
	return v
}

// findHeader is Header that also reports whether the header is there.
func findHeader(headers map[string]string, name string) (string, bool) {
	if v, ok := headers[name]; ok {
		return v, true
	}
	first, found := "", false
	for k := range headers {
		if strings.EqualFold(k, name) && (!found || k < first) {
			first, found = k, true
		}
	}
	if !found { // headers[""] is another header
		return "", false
	}
	return headers[first], true
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

// headerTrace is the header of W3C Trace Context.
const headerTrace = "traceparent"

// trace replaces the trace context of the message by the one that begin returns for it.
func (e *Envelope) trace(m *Message, begin func(*Message, string) (string, func(int64))) (stored func(event int64)) {
	own, stored := begin(m, Header(m.Headers, headerTrace))
	headers := map[string]string{headerTrace: own}
	for name, value := range e.Headers {
		if !strings.EqualFold(name, headerTrace) {
			headers[name] = value
		}
	}
	e.Headers = headers
	return stored
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
	return unsafe.String(&b[0], len(b)) // no other process has b
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

// tenant returns who a message is of: what its header says, if that is
// believed, else the default. A tenant that is not valid is not believed.
func (t *Tenancy) tenant(m *Message, secrets []string) string {
	claimed := Header(m.Headers, HeaderTenant)
	if !t.Trust || claimed == "" {
		return DefaultTenant
	}
	producer := Header(m.Headers, HeaderProducer)
	if len(t.Producers) > 0 && !slices.Contains(t.Producers, producer) {
		return DefaultTenant
	}
	if len(t.SecretEnvs) == 0 {
		return claimed
	}
	given := strings.TrimSpace(Header(m.Headers, HeaderSignature))
	form := signedText
	if !strings.HasPrefix(given, signatureV2) {
		if strings.Contains(claimed, ":") || strings.Contains(producer, ":") {
			return DefaultTenant // several readings have that signature
		}
		form = signedTextV1
	}
	sum, err := hex.DecodeString(strings.TrimPrefix(given, signatureV2))
	if err != nil {
		return DefaultTenant
	}
	for _, secret := range secrets {
		if hmac.Equal(sum, sign(secret, form(m.ID, claimed, producer))) {
			return claimed
		}
	}
	return DefaultTenant
}

// secrets returns the named environment variables that are set. A host
// rotates a secret by naming two.
func (t *Tenancy) secrets() (list []string) {
	for _, name := range t.SecretEnvs {
		if v := os.Getenv(name); v != "" {
			list = append(list, v)
		}
	}
	return list
}

// signatureV2 begins a signature over signedText. One without it has ended signedTextV1.
const signatureV2 = "v2:"

// signedText has the length of each part in bytes, so that it has one reading.
func signedText(id, tenant, producer string) string {
	text := "v2"
	for _, part := range []string{id, tenant, producer} {
		text += ":" + strconv.Itoa(len(part)) + ":" + part
	}
	return text
}

// signedTextV1 has one reading when tenant and producer hold no colon.
func signedTextV1(id, tenant, producer string) string { return id + ":" + tenant + ":" + producer }

func sign(secret, text string) []byte {
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte(text))
	return h.Sum(nil)
}

// Sign returns the value that header x-tenant-signature must have: "v2:" and, in
// hexadecimal, the HMAC-SHA256 of "v2:LENGTH:ID:LENGTH:TENANT:LENGTH:PRODUCER".
func Sign(secret, id, tenant, producer string) string {
	return signatureV2 + hex.EncodeToString(sign(secret, signedText(id, tenant, producer)))
}
