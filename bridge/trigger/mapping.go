package trigger

import (
	"encoding/json"
	"fmt"

	"thread/bridge/internal/expression"
	"thread/event"
)

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
