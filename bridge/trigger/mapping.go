package trigger

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"thread/bridge/internal/expression"
	"thread/event"
)

// mapNames are what an expression of map sees. message is of json the object, else
// the text.
var mapNames = map[string]expression.Kind{"headers": expression.Texts, "message": expression.Any, "message_id": expression.Text, "key": expression.Text,
	"queue": expression.Text, "event_name": expression.Text, "tenant_id": expression.Text}

// mapping makes the fields of an event out of a message.
type mapping map[string]*expression.Program

var mapped = []string{"content", "source", "subtype", "type"}

func compileMap(texts map[string]string) (mapping, *Problem) {
	m := mapping{}
	for _, field := range slices.Sorted(maps.Keys(texts)) {
		if !slices.Contains(mapped, field) {
			return nil, &Problem{"map." + field, fmt.Sprintf("map.%s is not a field of an event: use one of %s", field, oneOf(mapped))}
		}
		p, err := expression.Compile(texts[field], mapNames)
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
	vars := expression.Vars{"headers": e.Headers, "message": string(e.Payload), "message_id": e.MessageID, "key": key, "queue": e.Source,
		"event_name": e.Type(), "tenant_id": e.TenantID}
	if e.Parser == "json" {
		object, err := expression.JSON(e.Payload)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrParse, err)
		}
		vars["message"] = object
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
