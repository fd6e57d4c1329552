package rabbitmq

import (
	"errors"
	"slices"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"thread/bridge/trigger"
)

// session is one connection that consumes. It is not mended: when the connection,
// the channel or the queue is lost it has ended, and another one begins. Tags are of a
// session.
type session struct {
	conn     *amqp.Connection
	ch       *amqp.Channel
	prefetch int
	wake     chan struct{} // something was delivered
	gone     chan struct{} // closed when nothing is delivered any more

	mu        sync.Mutex
	buf       []trigger.Message
	err       error           // why it is gone
	next      uint64          // the lowest tag that is not settled
	done      map[uint64]bool // those above it that are
	delivered uint64          // the latest tag
}

// handle is what settles a message.
type handle struct {
	s   *session
	tag uint64
}

func newSession(conn *amqp.Connection, ch *amqp.Channel, prefetch int) *session {
	return &session{conn: conn, ch: ch, prefetch: prefetch, wake: make(chan struct{}, 1), gone: make(chan struct{}), next: 1, done: map[uint64]bool{}}
}

// consume begins to take what the server delivers; there are never more than
// prefetch messages waiting here.
func (s *session) consume(queue string, args amqp.Table, message func(*amqp.Delivery) (trigger.Message, error)) error {
	lost := s.conn.NotifyClose(make(chan *amqp.Error, 1))
	closed := s.ch.NotifyClose(make(chan *amqp.Error, 1))
	deliveries, err := s.ch.Consume(queue, "", false, false, false, false, args)
	if err != nil {
		return err
	}
	go func() {
		defer close(s.gone)
		var failed error
		for d := range deliveries {
			m, err := message(&d)
			if err != nil {
				failed = err
				break
			}
			m.Handle = &handle{s, d.DeliveryTag}
			s.mu.Lock()
			s.buf, s.delivered = append(s.buf, m), d.DeliveryTag
			s.mu.Unlock()
			select {
			case s.wake <- struct{}{}:
			default:
			}
		}
		if failed == nil {
			failed = errors.New("the queue was deleted, or its node is away")
			for _, c := range []chan *amqp.Error{closed, lost} {
				select {
				case e := <-c:
					if e != nil {
						failed = e
					}
				default:
				}
			}
			if s.conn.IsClosed() {
				failed = errors.Join(errors.New("the connection was lost"), failed)
			}
		}
		s.mu.Lock()
		s.err = failed
		s.mu.Unlock()
	}()
	return nil
}

// take returns up to that many of the messages that were delivered.
func (s *session) take(most int) []trigger.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(most, len(s.buf))
	ms := slices.Clone(s.buf[:n])
	clear(s.buf[:n])
	s.buf = s.buf[n:]
	return ms
}

func (s *session) why() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// over reports whether the session has ended.
func (s *session) over() bool {
	select {
	case <-s.gone:
		return true
	default:
		return s.conn.IsClosed()
	}
}

// ack acknowledges messages by their tags and waits until the server has read that.
func (s *session) ack(tags []uint64) error {
	slices.Sort(tags)
	upto, rest := s.settle(tags)
	if upto > 0 {
		if err := s.ch.Ack(upto, true); err != nil {
			return err
		}
	}
	for _, tag := range rest {
		if err := s.ch.Ack(tag, false); err != nil {
			return err
		}
	}
	// An acknowledgement has no answer. The answer to this, which changes nothing,
	// comes when the server has read everything before.
	return s.ch.Qos(s.prefetch, 0, false)
}

// settle notes tags as settled. It returns the one up to which all are, 0 for none,
// and those behind it.
func (s *session) settle(tags []uint64) (upto uint64, rest []uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, tag := range tags {
		if tag >= s.next {
			s.done[tag] = true
		}
	}
	for s.done[s.next] {
		delete(s.done, s.next)
		s.next++
	}
	// The server knows no tag that was settled before: only one of these can stand
	// for those below it.
	n, _ := slices.BinarySearch(tags, s.next)
	if n > 0 {
		upto = tags[n-1]
	}
	return upto, tags[n:]
}

// nack refuses one message.
func (s *session) nack(tag uint64, requeue bool) error {
	s.settle([]uint64{tag})
	return s.ch.Nack(tag, false, requeue)
}

func (s *session) close() { hangUp(s.conn) }

// unsettled returns how many messages are here that the server has not been told of.
func (s *session) unsettled() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(s.delivered) - int64(s.next-1) - int64(len(s.done))
}
