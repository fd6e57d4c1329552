package trigger

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"thread/bridge/internal/expression"
	"thread/event"
)

// mapEnv is what an expression of map sees. Message is of json the object, else the
// text. A header that is missing is nil.
type mapEnv struct {
	Headers   map[string]any `expr:"headers"`
	Message   any            `expr:"message"`
	MessageID string         `expr:"message_id"`
	Key       string         `expr:"key"`
	Queue     string         `expr:"queue"`
	EventName string         `expr:"event_name"`
	TenantID  string         `expr:"tenant_id"`
}

// mapping makes the fields of an event out of a message.
type mapping map[string]*expression.Program

var mapped = []string{"content", "source", "subtype", "type"}

func compileMap(texts map[string]string) (mapping, *Problem) {
	m := mapping{}
	for _, field := range slices.Sorted(maps.Keys(texts)) {
		if !slices.Contains(mapped, field) {
			return nil, &Problem{"map." + field, fmt.Sprintf("map.%s is not a field of an event: use one of %s", field, oneOf(mapped))}
		}
		p, err := expression.Compile(texts[field], mapEnv{})
		if err != nil {
			return nil, &Problem{"map." + field, fmt.Sprintf("map.%s: %v", field, err)}
		}
		m[field] = p
	}
	return m, nil
}

// draft makes the event of an envelope. Its errors wrap ErrParse: a message that
// cannot be an event goes where those go that cannot be parsed.
func (c *Config) draft(m mapping, key string, e *Envelope) (d event.Draft, err error) {
	d = event.Draft{Source: c.Adapter + ":" + c.Queue, Type: e.Type()}
	if c.Content == "message" {
		d.Content = e.Body()
	} else {
		d.Content = e.Content(c.Focus)
	}
	if len(m) > 0 {
		if err := m.apply(&d, key, e); err != nil {
			return d, err
		}
	}
	if err := d.Validate(); err != nil {
		return d, fmt.Errorf("%w: %w", ErrParse, err)
	}
	return d, nil
}

func (m mapping) apply(d *event.Draft, key string, e *Envelope) error {
	vars := mapEnv{Headers: make(map[string]any, len(e.Headers)), Message: string(e.Payload), MessageID: e.MessageID, Key: key, Queue: e.Source,
		EventName: e.Type(), TenantID: e.TenantID}
	for k, v := range e.Headers {
		vars.Headers[k] = v
	}
	if e.Parser == "json" {
		var err error
		if vars.Message, err = expression.JSON(e.Payload); err != nil {
			return fmt.Errorf("%w: %w", ErrParse, err)
		}
	}
	for _, field := range mapped {
		p := m[field]
		if p == nil {
			continue
		}
		v, err := p.Run(vars)
		if err != nil {
			return fmt.Errorf("%w: map.%s: %w", ErrParse, field, err)
		}
		text, ok := v.(string)
		if !ok && field == "content" {
			b, err := json.Marshal(v)
			if err != nil {
				return fmt.Errorf("%w: map.content: %w", ErrParse, err)
			}
			text, ok = string(b), true
		}
		switch {
		case v == nil && field == "subtype":
			continue
		case !ok:
			return fmt.Errorf("%w: map.%s gives no text but %T", ErrParse, field, v)
		}
		switch field {
		case "content":
			d.Content = text
		case "source":
			d.Source = text
		case "subtype":
			d.Subtype = event.Text(text)
		case "type":
			d.Type = text
		}
	}
	return nil
}
