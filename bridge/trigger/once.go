package trigger

import (
	"context"
	"errors"
	"time"

	"thread/engine"
	"thread/event"
)

// Preview returns the event that a message would become, with the id 0, or why it
// cannot become one.
func Preview(c *Config, m *Message, now time.Time) (*event.Event, error) {
	env, err := c.Envelope(m, now, c.Tenant.secrets())
	if err != nil {
		return nil, err
	}
	mapping, problem := compileMap(c.Map)
	if problem != nil {
		return nil, errors.New(problem.What)
	}
	d, err := c.draft(mapping, m.Key, env)
	if err != nil {
		return nil, err
	}
	return &event.Event{CreatedAt: event.FormatTime(now), Source: d.Source, Type: d.Type, Subtype: d.Subtype, Content: d.Content}, nil
}

// NoState is the State of a trigger that has stored nothing, and stores nothing.
var NoState State = noState{}

type noState struct{}

func (noState) Get(string) []byte { return nil }

func (noState) All(string) map[string][]byte { return map[string][]byte{} }

func (noState) Load(string) (map[string][]byte, error) { return map[string][]byte{}, nil }

func (noState) Update(context.Context, []Write) error { return nil }

// ReadOnly returns s without its Update.
func ReadOnly(s State) State { return readOnly{s} }

type readOnly struct{ State }

// Stores reports whether the Update of s stores: the Update of NoState and ReadOnly does not.
func Stores(s State) bool {
	_, dry := s.(readOnly)
	return !dry && s != NoState
}

func (readOnly) Update(context.Context, []Write) error { return nil }

// SendMock stores one message through a mock queue and returns its row of the
// ledger, once the message is settled.
func SendMock(ctx context.Context, t *engine.Thread, c Config, m Message, onStored func(source string, subscribed bool)) (Row, error) {
	mock := NewMock()
	c.Ledger = true
	tr, err := New(t, mock, c, Options{OnStored: onStored})
	if err != nil {
		return Row{}, err
	}
	if err := tr.Start(ctx); err != nil {
		return Row{}, err
	}
	mock.Enqueue(m)
	for {
		changed, moved := tr.Changed(), mock.Changed()
		if mock.Idle() {
			break
		}
		select {
		case <-ctx.Done():
			tr.drain = 0
			return Row{}, errors.Join(context.Cause(ctx), tr.Stop())
		case <-tr.Ended():
			return Row{}, tr.Stop()
		case <-changed:
		case <-moved:
		}
	}
	if err := tr.Stop(); err != nil {
		return Row{}, err
	}
	rows, err := Ledger(ctx, t, tr.cfg.Name, "", 100)
	for _, r := range rows {
		if r.MessageID == m.ID {
			return r, err
		}
	}
	return Row{}, err
}
