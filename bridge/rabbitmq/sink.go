package rabbitmq

import (
	"context"
	"fmt"

	"thread/bridge/adapter"
	"thread/bridge/trigger"
)

// sink publishes with confirmations. The server does not tell what it has, so what
// was confirmed and not noted is sent again, with the same id.
type sink struct {
	s   *adapter.Settings
	out *publisher
}

func newSink(s *adapter.Settings) (*sink, error) {
	if _, err := s.TLS(); err != nil {
		return nil, err
	}
	return &sink{s: s, out: &publisher{s: s, purpose: "publishing"}}, nil
}

// Connect implements trigger.Sink.
func (k *sink) Connect(ctx context.Context) (int64, error) {
	k.out.close()
	return 0, k.out.connect(ctx)
}

// Publish implements trigger.Sink. A message that no queue takes is an error: it
// would be lost.
func (k *sink) Publish(ctx context.Context, ms []trigger.Outgoing) error {
	list := make([]outgoing, len(ms))
	for i := range ms {
		key := k.s.Text("routing_key")
		if key == "" {
			key = k.s.Queue
		}
		// The default exchange takes the key for a queue's name.
		if ms[i].Key != "" && k.s.Text("exchange") != "" {
			key = ms[i].Key
		}
		if len(key) > shortMost {
			return fmt.Errorf("event %d: a routing key has at most %d bytes, this one %d", ms[i].Event, shortMost, len(key))
		}
		list[i] = outgoing{exchange: k.s.Text("exchange"), key: key, Publishing: toPublishing(ms[i].Body, ms[i].Headers)}
	}
	return k.out.publish(ctx, list...)
}

// Send implements trigger.Sender: into the queue of a trigger.
func (k *sink) Send(ctx context.Context, m trigger.Message) (string, error) {
	return m.ID, k.out.publish(ctx, outgoing{key: k.s.Queue, Publishing: toPublishing(m.Body, m.Headers)})
}

// Health implements trigger.Sink.
func (k *sink) Health(context.Context) trigger.Health {
	if !k.out.connected() {
		return trigger.Health{Detail: errNotConnected.Error()}
	}
	return trigger.Health{OK: true}
}

// Capabilities implements trigger.Sink.
func (k *sink) Capabilities() trigger.Caps { return outCaps }

// Close implements trigger.Sink.
func (k *sink) Close() error {
	k.out.close()
	return nil
}
