package trigger

import "context"

// Sink is one queue of a broker that events are published to. Its methods are
// called by one goroutine at a time, except for Health.
type Sink interface {
	// Connect connects, and returns the id of the last event that the broker has for
	// certain in the order of the ids; 0 when there is none, or when the broker does
	// not tell. The publisher goes on behind the greater of that and its consumer's
	// progress. The error names the queue.
	Connect(ctx context.Context) (last int64, err error)

	// Publish sends the messages in their order and returns nil once the broker has
	// confirmed all of them. After an error none, some or all may be there:
	// the publisher connects anew and sends again what Connect does not tell of.
	Publish(ctx context.Context, ms []Outgoing) error

	Health(ctx context.Context) Health
	Capabilities() Caps
	Close() error
}

// Outgoing is one event on its way out.
type Outgoing struct {
	Event   int64  // the event's id
	ID      string // "THREAD:EVENT", the same whenever it is sent
	Queue   string // topic, subject, stream or routing key
	Key     string // "" for none
	Headers map[string]string
	Body    []byte
}
