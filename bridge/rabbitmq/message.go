package rabbitmq

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"thread/bridge/trigger"
)

// offsetHeader is the header in which a stream says where a message stands.
const offsetHeader = "x-stream-offset"

// fromDelivery makes a message of what both kinds of queues deliver. Properties
// become headers amqp-…, so that they survive a restart and the way to the dead
// letter queue.
func fromDelivery(d *amqp.Delivery) trigger.Message {
	m := trigger.Message{Body: d.Body, Key: d.RoutingKey, At: d.Timestamp, Redelivered: d.Redelivered, Headers: make(map[string]string, len(d.Headers))}
	for k, v := range d.Headers {
		m.Headers[k] = fieldText(v)
	}
	for _, p := range propertiesOf(&amqp.Publishing{ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, CorrelationId: d.CorrelationId,
		ReplyTo: d.ReplyTo, Type: d.Type, AppId: d.AppId}) {
		if *p.value != "" {
			m.Headers[p.header] = *p.value
		}
	}
	if m.ID = trigger.Header(m.Headers, trigger.HeaderMessageID); m.ID == "" {
		m.ID = d.MessageId
	}
	return m
}

// unnamed gives a message a separate id, which a redelivery will not have.
func unnamed(m *trigger.Message, queue string) {
	b := make([]byte, 8)
	rand.Read(b)
	m.ID, m.Unnamed = fmt.Sprintf("%s:%x", queue, b), true
}

type property struct {
	header string
	value  *string
}

// propertiesOf are the properties that a copy of a message may have, too. Others are
// about the message's own way: who published it, and when it expires.
func propertiesOf(p *amqp.Publishing) []property {
	return []property{{"amqp-content-type", &p.ContentType}, {"amqp-content-encoding", &p.ContentEncoding}, {"amqp-correlation-id", &p.CorrelationId},
		{"amqp-reply-to", &p.ReplyTo}, {"amqp-type", &p.Type}, {"amqp-app-id", &p.AppId}}
}

// shortMost is the length of the protocol's short strings, in bytes.
const shortMost = 255

// toPublishing is the way back. The message is persistent. Headers in which the
// server reads orders, or which it writes itself, are left out.
func toPublishing(body []byte, headers map[string]string) amqp.Publishing {
	p := amqp.Publishing{Headers: amqp.Table{}, DeliveryMode: amqp.Persistent, Body: body}
	properties := propertiesOf(&p)
	for k, v := range headers {
		switch lower := strings.ToLower(k); {
		case lower == "cc" || lower == "bcc" || lower == "x-death" || strings.HasPrefix(lower, "x-first-death-") ||
			strings.HasPrefix(lower, "x-last-death-") || lower == "x-delivery-count" || lower == offsetHeader || len(k) > shortMost:
			continue
		case lower == trigger.HeaderMessageID && len(v) <= shortMost:
			p.MessageId = v
		}
		kept := true
		for _, property := range properties {
			if k == property.header && len(v) <= shortMost {
				*property.value, kept = v, false
			}
		}
		if kept {
			p.Headers[k] = v
		}
	}
	return p
}

// fieldText is the value of a header as text: what is not a text in the way JSON has it.
func fieldText(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case []byte:
		return string(v)
	case time.Time:
		return v.UTC().Format(time.RFC3339)
	case amqp.Table, []any:
		if b, err := json.Marshal(fieldJSON(v)); err == nil {
			return string(b)
		}
	}
	return fmt.Sprint(v)
}

// fieldJSON is a nested value as encoding/json takes it.
func fieldJSON(v any) any {
	switch v := v.(type) {
	case amqp.Table:
		m := make(map[string]any, len(v))
		for k, e := range v {
			m[k] = fieldJSON(e)
		}
		return m
	case []any:
		list := make([]any, len(v))
		for i, e := range v {
			list[i] = fieldJSON(e)
		}
		return list
	case []byte:
		return base64.StdEncoding.EncodeToString(v)
	case float32, float64, amqp.Decimal:
		return fmt.Sprint(v) // JSON has no NaN
	}
	return v
}
