package trigger

import (
	"context"
	"errors"
	"time"
)

// Source is one queue of a broker, as one trigger reads it. An adapter implements
// it. Between Connect and Close, Consume is called by one goroutine while another may
// call Ack, Nack and SendToDLQ, one at a time, and any number Health, Lag and Keep.
// Close may be called while Consume waits, which then ends with an error.
//
// A Source does not decide whether a message was stored before: it gives what the
// broker gives, and the transaction of the intake decides (see Position and
// Message.ID). What it may do is to begin behind what State holds.
type Source interface {
	// Connect connects and learns where to begin: behind the greater of what State
	// holds and what the broker has for the group. It returns an error that names
	// the queue when the broker cannot be reached or refuses; the caller closes the
	// source then. It ends with ctx.
	Connect(ctx context.Context, s State) error

	// Consume returns the next messages, in the broker's order within a key of
	// their positions, at least one and at most max. It waits until there are some
	// or ctx ends, and does not wait for more than there are: what is buffered is a
	// batch. After an error the caller waits and calls again; a source reconnects
	// by itself. What is wrong with one message is not an error (see Message.Bad).
	Consume(ctx context.Context, max int) ([]Message, error)

	// Ack tells the broker that the messages are through. Of a source with
	// Caps.Positions, messages come in the order of their positions within a key,
	// none left out; so the last one of a key stands for those before it. A message
	// of before a crash, or of a lost connection, comes without a Handle, with its
	// Ref. Acknowledging twice does no harm.
	Ack(ctx context.Context, ms []Message) error

	// Nack refuses a message: the broker delivers it again (requeue), or does with
	// it what is configured there (its own dead letter policy, or nothing). Of a
	// source with Caps.Positions it is followed by Ack of the same message, and with
	// requeue it stores a copy in the queue whose ID is the id of the message.
	Nack(ctx context.Context, m Message, requeue bool) error

	// SendToDLQ stores the message with the reason in the dead letter queue. Its
	// error wraps ErrTooLarge when that takes no message of this size. It
	// returns nil once the broker has confirmed that. Ack follows.
	SendToDLQ(ctx context.Context, m Message, r Reason) error

	// Health says whether the source can read now.
	Health(ctx context.Context) Health

	// Lag returns how many messages the broker has for the group that were not
	// acknowledged; ErrNotKnown where the broker does not tell.
	Lag(ctx context.Context) (int64, error)

	Capabilities() Caps

	// Close gives back what is held. Messages that were not acknowledged are
	// delivered again.
	Close() error
}

// Keeper is implemented by a Source whose broker takes a message back after a
// while: the trigger calls Keep for the messages that it holds for longer than
// Caps.KeepEvery, from any goroutine.
type Keeper interface {
	Keep(ctx context.Context, ms []Message) error
}

// Sender is implemented by a Source or Sink that can put one message into its own
// queue, for "trigger send". It returns the id that the message will have, "" when
// that is not known, once the broker has confirmed it.
type Sender interface {
	Send(ctx context.Context, m Message) (id string, err error)
}

// Warner is implemented by a Source that, once connected, can tell what is not an error
// and not what was meant, perhaps: one line each, for "trigger validate --connect".
type Warner interface {
	Warnings(ctx context.Context) []string
}

// Prober is implemented by a Source that, once connected, can find out without a message
// whether its dead letter queue takes messages: for "trigger validate --connect". The
// error says why not, the warning what is worth knowing, "" for nothing.
type Prober interface {
	ProbeDLQ(ctx context.Context) (warning string, err error)
}

// MadeLater is the warning of ProbeDLQ for a queue that SendToDLQ makes.
func MadeLater(queue string) string {
	return "dead letter queue " + queue + " does not exist yet: it is made for the first message, if the account may do that"
}

// Place is where a source is to continue reading: "start", "end", or "time" and a time.
type Place struct {
	Name string
	At   time.Time
}

// Seeker is implemented by a Source with positions that can go back or forward: it
// returns the records of State to store in place of those that are there, one for
// each key, and tells the broker. It is called on a source that is not connected. What
// it leaves at the broker should it be killed before they are stored, it may note in s.
type Seeker interface {
	Seek(ctx context.Context, s State, to Place) ([]Write, error)
}

// ErrNotKnown says that a broker does not tell how many messages wait.
var ErrNotKnown = errors.New("the broker does not tell")

// ErrTooLarge is wrapped by the errors of sending what is larger than a queue takes.
var ErrTooLarge = errors.New("too large for the queue")

// ErrNotBuilt is wrapped by the errors of what an adapter does not do.
var ErrNotBuilt = errors.New("not built")

// Message is one message as a broker delivered it. The trigger keeps it until it is
// acknowledged; no process changes what it holds.
type Message struct {
	// ID is the message id: of header x-message-id, else the broker's own, else made
	// of the position as "queue:partition:offset". Never empty, and the same
	// whenever the message is delivered.
	ID string
	// Positional says that ID was made of the position. That message needs no
	// record of its ID: the record of its position keeps it from being stored twice.
	Positional bool
	// Unnamed says that ID was made up, since the message has no id of any kind: a
	// redelivery has another one and is stored again, marked as redelivered.
	Unnamed bool

	Body    []byte
	Headers map[string]string // names as the broker has them; they are compared without case
	At      time.Time         // when the broker got it; zero: not known, the time of the intake counts
	Key     string            // the record key, routing key or group; "" for none
	// Redelivered says that the broker gave it out before.
	Redelivered bool
	// Bad says what is wrong with a message that the adapter cannot turn into one,
	// "" when nothing is. It is treated as a parse failure.
	Bad string

	// Position is where the message stands in a stream that is read in order; nil
	// where the source gives no such promise.
	Position *Position
	// State is what the transaction that stores the message stores with it, next to
	// its position.
	State []Write
	// Ref is enough to acknowledge the message after a restart, where the broker has
	// that thing: nil where only a redelivery can be acknowledged.
	Ref []byte
	// Handle is the adapter's own, for this connection.
	Handle any
}

func (d *deliveries) add(one delivery) *delivery {
	p := &one
	if d.inOrder && one.m.Position != nil {
		k := one.m.Position.Key
		d.byKey[k] = append(d.byKey[k], p)
	} else if one.done {
		d.ready = append(d.ready, p)
	}
	return p
}

// delivery is a message that the broker waits to hear about.
type delivery struct {
	m    *Message
	at   []byte // its key, to be settled once the broker was told; nil: none
	done bool
	drop bool // see toldKey
}

// deliveries are those that are not acknowledged. Of a source with positions they
// are acknowledged in their order within a key, so that nothing is passed over.
type deliveries struct {
	inOrder bool
	byKey   map[string][]*delivery
	ready   []*delivery
}

// Position is the place of a message in a stream whose messages come in order.
// The transaction that stores a message stores its position; one that is not after
// what is stored under its key is a duplicate.
type Position struct {
	// Key names the stream and its generation: cluster id, topic id or the time the
	// stream was made, and partition, so that a stream that was deleted and made
	// again has another one. At most 1,024 bytes; no part of it may hold a NUL but
	// as a separator.
	Key string
	// At is compared byte by byte: big-endian numbers. Not empty, of one length
	// within a key. A Kafka offset is stored as offset+1, the next one.
	At []byte
	// Exact says that places have no order: a message is a duplicate if and only if
	// the broker says that it was delivered before (Redelivered) and At is what is
	// stored. So it is with the packet ids of MQTT, which the adapter deletes and the
	// broker uses again. Not for a source with Caps.Positions.
	Exact bool `json:",omitempty"`
}

// Write is a change to State: a record of the adapter's own that is stored, or
// deleted, in the transaction of a message.
type Write struct {
	Key    string // at most 1,024 bytes; keys of positions are in the same space
	Value  []byte
	Delete bool
}

// State is what earlier transactions stored for this adapter, queue and group: the
// positions (Key to At) and the writes (Key to Value).
type State interface {
	Get(key string) []byte // nil when there is no such record
	// Load returns the records whose keys begin with prefix, or why they cannot be
	// read.
	Load(prefix string) (map[string][]byte, error)
	// All is Load without those records that cannot be read: the transaction that
	// uses them says so.
	All(prefix string) map[string][]byte
	// Update makes changes at once, in a separate transaction: for what a broker
	// says outside of a message, such as the end of an MQTT session.
	Update(ctx context.Context, ws []Write) error
}

// Attempt is one failed attempt at handling an event.
type Attempt struct {
	Number int64     `json:"attempt"` // from 1
	At     time.Time `json:"at"`
	Error  string    `json:"error"` // no credentials
}

// Reason says why a message goes to the dead letter queue. Its texts hold no
// credentials.
type Reason struct {
	Text       string // one line: header x-dlq-reason
	Status     string // parse_error, rejected or failed
	Attempts   int64  // at handling it, 0 when it was never tried
	Deliveries int64  // by the broker, as counted here
	FirstError string
	LastError  string
	FirstAt    time.Time // zero when it was never tried
	LastAt     time.Time
	History    []Attempt // the newest attempts, in their order
	TraceID    string
	// BodyBytes is how long the body was, when only its beginning is sent; else 0.
	BodyBytes int
}

// parkedRecord is a message that waits for the dead letter queue.
type parkedRecord struct {
	number  int64
	ID      string            `json:"id"`
	Body    []byte            `json:"body"`
	Headers map[string]string `json:"headers"`
	At      time.Time         `json:"at"`
	Key     string            `json:"key,omitempty"`
	Reason  Reason            `json:"reason"`
}

// Health is the answer of a health check.
type Health struct {
	OK     bool
	Detail string // why not; no credentials
}

// Caps is what a source or sink promises. docs/reference/bridge.md has the table.
type Caps struct {
	// Promise is what the thread gets: ExactlyOnce or AtLeastOnce, and Condition
	// when that depends on something, such as "with message ids".
	Promise   string
	Condition string
	// Positions says that every message has a Position.
	Positions bool
	// Requeue says that Nack with requeue delivers a message again; DLQ that
	// SendToDLQ works without configuration at the broker.
	Requeue, DLQ bool
	// KeepEvery is how often held messages are to be kept (see Keeper), 0: never.
	KeepEvery time.Duration
	// MaxBatch bounds what Consume gives at once, 0: no bound.
	MaxBatch int
	// MaxOut bounds how many messages may be out unacknowledged, 0: no bound.
	MaxOut int
}

// The promises.
const (
	ExactlyOnce = "exactly once"
	AtLeastOnce = "at least once"
)

// Sink is one queue of a broker that events are published to. Its methods are
// called by one goroutine at a time, except for Health.
type Sink interface {
	// Connect connects, and returns the id of the last event that the broker has for
	// certain in the order of the ids; 0 when there is none, or when the broker does
	// not tell. The publisher continues behind the greater of that and its consumer's
	// progress. The error names the queue.
	Connect(ctx context.Context) (last int64, err error)

	// Publish sends the messages in their order and returns nil once the broker has
	// confirmed all of them. After an error none, some or all may be there:
	// the publisher connects again and sends again what Connect does not tell of.
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
