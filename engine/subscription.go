package engine

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"thread/event"
	"thread/filter"
	"thread/index"
	"thread/lock"
)

// Subscription is a consumer's standing order: run Handler while there are
// events that match Filter.
type Subscription struct {
	Consumer string  // its id: any text in UTF-8, 1 to event.MaxNameBytes bytes
	Handler  string  // a shell command, not empty
	Filter   *string // nil: every event
	// Timeout is how long a handler may run; 0 for as long as it likes.
	Timeout time.Duration
	// AckOnSuccess moves progress to the newest event that the handler popped,
	// when it exits 0 (contract, section 12).
	AckOnSuccess bool
	// Paused keeps dispatch and consume from giving out events (see Pause).
	Paused bool
	// Lane is the global lane in which a resident process runs the handler; ""
	// for the lane main.
	Lane string

	ordinal uint64            // subscriptions are listed in the order they were made
	unknown map[uint64][]byte // fields of a newer version, kept as they are
}

// Where returns the text of the filter, "" when there is none.
func (s *Subscription) Where() string {
	if s.Filter == nil {
		return ""
	}
	return *s.Filter
}

// A subscription record is valid if and only if its crc fits and it consists of
// fields in rising order of their tags, each of them
//
//	tag     uvarint
//	length  uvarint
//	value
//
// followed by a crc of 4 bytes. A field that is missing has its zero value.
const (
	fieldOrdinal      = 1 // 8 bytes
	fieldHandler      = 2
	fieldFilter       = 3
	fieldTimeout      = 4 // 8 bytes, nanoseconds
	fieldAckOnSuccess = 5 // empty
	fieldPaused       = 6 // empty
	fieldLane         = 7
)

const (
	maxHandlerBytes = 1 << 20
	maxLaneBytes    = 200
)

func consumerKey(consumer string) []byte { return append([]byte{'c'}, consumer...) }

func appendField(b []byte, tag uint64, value string) []byte {
	b = binary.AppendUvarint(b, tag)
	b = binary.AppendUvarint(b, uint64(len(value)))
	return append(b, value...)
}

func uint64Text(n uint64) string { return string(binary.BigEndian.AppendUint64(nil, n)) }

func (s *Subscription) encode() []byte {
	b := appendField(nil, fieldOrdinal, uint64Text(s.ordinal))
	b = appendField(b, fieldHandler, s.Handler)
	if s.Filter != nil {
		b = appendField(b, fieldFilter, *s.Filter)
	}
	if s.Timeout != 0 {
		b = appendField(b, fieldTimeout, uint64Text(uint64(s.Timeout)))
	}
	if s.AckOnSuccess {
		b = appendField(b, fieldAckOnSuccess, "")
	}
	if s.Paused {
		b = appendField(b, fieldPaused, "")
	}
	if s.Lane != "" {
		b = appendField(b, fieldLane, s.Lane)
	}
	tags := make([]uint64, 0, len(s.unknown))
	for tag := range s.unknown {
		tags = append(tags, tag)
	}
	slices.Sort(tags)
	for _, tag := range tags {
		b = appendField(b, tag, string(s.unknown[tag]))
	}
	return index.AppendSum(b, consumerKey(s.Consumer))
}

func decodeSubscription(key, value []byte) (*Subscription, error) {
	bad := func() (*Subscription, error) { return nil, fmt.Errorf("%w: subscription %q", ErrCorrupt, key) }
	b, ok := index.CheckSum(key, value)
	if !ok || len(key) == 0 || key[0] != 'c' {
		return bad()
	}
	s := &Subscription{Consumer: string(key[1:])}
	for len(b) > 0 {
		tag, w := binary.Uvarint(b)
		if w <= 0 {
			return bad()
		}
		n, w2 := binary.Uvarint(b[w:])
		if w2 <= 0 || n > uint64(len(b)-w-w2) {
			return bad()
		}
		v := b[w+w2 : w+w2+int(n)]
		b = b[w+w2+int(n):]
		switch tag {
		case fieldOrdinal, fieldTimeout:
			if n != 8 {
				return bad()
			}
			if u := binary.BigEndian.Uint64(v); tag == fieldOrdinal {
				s.ordinal = u
			} else {
				s.Timeout = time.Duration(u)
			}
		case fieldHandler:
			s.Handler = string(v)
		case fieldFilter:
			s.Filter = event.Text(string(v))
		case fieldAckOnSuccess:
			s.AckOnSuccess = true
		case fieldPaused:
			s.Paused = true
		case fieldLane:
			s.Lane = string(v)
		default:
			if s.unknown == nil {
				s.unknown = make(map[uint64][]byte)
			}
			s.unknown[tag] = slices.Clone(v)
		}
	}
	return s, nil
}

// Subscribe stores a subscription. A consumer that was subscribed before goes on
// from its progress. The subscription is durable when Subscribe returns nil.
//
// Subscribe returns ErrSubscriptionExists, changing nothing, ErrInvalid for an
// empty or overlong field, and for a consumer that differs from another only in
// the case of letters on a file system that does not tell them apart, and
// *filter.Error for a filter that is not one. An empty filter is none.
func (t *Thread) Subscribe(ctx context.Context, s Subscription) error {
	if err := s.validate(); err != nil {
		return err
	}
	return t.Update(ctx, func(tx *Tx) error { return tx.subscribe(&s) })
}

// Subscribe is Thread.Subscribe in this transaction.
func (tx *Tx) Subscribe(s Subscription) error {
	if err := s.validate(); err != nil {
		return err
	}
	return tx.subscribe(&s)
}

// Replace changes a subscription and keeps its place in the order and the
// consumer's progress. The consumer itself cannot be changed.
//
// Replace returns ErrNoSubscription, and the errors of Subscribe for what change
// made of it.
func (tx *Tx) Replace(consumer string, change func(s *Subscription)) error {
	s, err := tx.subscription(consumer)
	if err != nil {
		return err
	}
	change(s)
	s.Consumer = consumer
	if err := s.validate(); err != nil {
		return err
	}
	return tx.subscriptions.Put(consumerKey(consumer), s.encode())
}

func (s *Subscription) validate() error {
	if err := checkConsumer(s.Consumer); err != nil {
		return err
	}
	if s.Handler == "" {
		return invalidf("handler is empty")
	}
	if len(s.Handler) > maxHandlerBytes {
		return invalidf("handler is %d bytes long, the limit is %d", len(s.Handler), maxHandlerBytes)
	}
	if s.Timeout < 0 {
		return invalidf("timeout is negative")
	}
	if len(s.Lane) > maxLaneBytes || !utf8.ValidString(s.Lane) || strings.HasPrefix(s.Lane, "session:") || strings.TrimSpace(s.Lane) != s.Lane {
		return invalidf("lane %q is no name of up to %d bytes without spaces around it that does not begin with \"session:\"", s.Lane, maxLaneBytes)
	}
	if s.Where() == "" {
		s.Filter = nil
	}
	_, err := filter.Compile(s.Where())
	return err
}

func (tx *Tx) subscribe(s *Subscription) (err error) {
	// JSON could not tell two such names apart. Those that were imported stay.
	if !utf8.ValidString(s.Consumer) {
		return invalidf("consumer is not valid UTF-8")
	}
	key := consumerKey(s.Consumer)
	if err := index.CheckPath(tx.subscriptions, key); err != nil {
		return err
	}
	if tx.subscriptions.Get(key) != nil {
		return fmt.Errorf("%w: %q", ErrSubscriptionExists, s.Consumer)
	}
	if err := tx.ownFiles(s.Consumer); err != nil {
		return err
	}
	if s.ordinal, err = tx.subscriptions.NextSequence(); err != nil {
		return err
	}
	return tx.subscriptions.Put(key, s.encode())
}

// foldsCase is exchanged by tests.
var foldsCase = lock.FoldsCase

// ownFiles returns ErrInvalid for a consumer whose files in run/ and logs/, its lock
// among them, would be those of another. Their names stay as they are, so that
// programs of all versions agree on who has a consumer's lock; so it is the name of
// the consumer that must differ where the file system does not tell A from a.
func (tx *Tx) ownFiles(consumer string) error {
	if !foldsCase(tx.t.path(databaseName)) {
		return nil
	}
	list, err := tx.subscriptionList()
	for _, s := range list {
		if lock.SameFile(s.Consumer, consumer) {
			return invalidf("consumer %q differs from %q only in the case of letters, which this file system does not tell apart", consumer, s.Consumer)
		}
	}
	return err
}

// Unsubscribe removes a subscription and keeps its progress (T-51). It
// returns ErrNoSubscription when there is none.
func (t *Thread) Unsubscribe(ctx context.Context, consumer string) error {
	return t.Update(ctx, func(tx *Tx) error {
		if _, err := tx.subscription(consumer); err != nil {
			return err
		}
		return tx.subscriptions.Delete(consumerKey(consumer))
	})
}

func (tx *Tx) subscription(consumer string) (*Subscription, error) {
	if err := checkConsumer(consumer); err != nil {
		return nil, err
	}
	key := consumerKey(consumer)
	if err := index.CheckPath(tx.subscriptions, key); err != nil {
		return nil, err
	}
	v := tx.subscriptions.Get(key)
	if v == nil {
		return nil, fmt.Errorf("%w: %q", ErrNoSubscription, consumer)
	}
	return decodeSubscription(key, v)
}

func (tx *Tx) hasSubscriptions() bool {
	if index.CheckPath(tx.subscriptions, nil) != nil {
		return true // whoever looks for them will say so
	}
	k, _ := tx.subscriptions.Cursor().First()
	return k != nil
}

// subscriptionList returns all subscriptions in the order they were made.
func (tx *Tx) subscriptionList() (list []*Subscription, err error) {
	if err := index.CheckTree(tx.subscriptions); err != nil {
		return nil, err
	}
	c := tx.subscriptions.Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		s, err := decodeSubscription(k, v)
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b *Subscription) int {
		if a.ordinal < b.ordinal {
			return -1
		}
		return 1
	})
	return list, nil
}
