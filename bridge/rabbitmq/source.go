package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"thread/bridge/adapter"
	"thread/bridge/trigger"
)

// source reads one queue. Whether it is a stream the server tells.
type source struct {
	s   *adapter.Settings
	out *publisher // of dead letters, and of copies in a stream

	mu      sync.Mutex
	state   trigger.State
	live    *session
	closed  bool
	kind    string // queue or stream, "" before the first connection
	reached reached
	last    error // why the session before this one ended
}

func newSource(s *adapter.Settings) (*source, error) {
	if _, err := s.TLS(); err != nil {
		return nil, err
	}
	return &source{s: s, out: &publisher{s: s, purpose: "dead letters"}, state: trigger.NoState}, nil
}

// Connect implements trigger.Source.
func (k *source) Connect(ctx context.Context, state trigger.State) error {
	k.mu.Lock()
	k.state, k.closed, k.kind, k.reached, k.last = state, false, "", reached{}, nil
	k.mu.Unlock()
	return k.open(ctx)
}

// open begins a session.
func (k *source) open(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, max(k.s.Duration("connect_timeout"), 100*time.Millisecond))
	defer cancel()
	conn, err := dial(ctx, k.s, "messages")
	if err != nil {
		return err
	}
	unwatch := context.AfterFunc(ctx, func() { hangUp(conn) })
	s, kind, err := k.begin(ctx, conn)
	if !unwatch() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		hangUp(conn)
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		hangUp(conn)
		return errNotConnected
	}
	k.live, k.kind = s, kind
	return nil
}

func (k *source) begin(ctx context.Context, conn *amqp.Connection) (*session, string, error) {
	if err := k.find(conn); err != nil {
		return nil, "", err
	}
	kind, err := kindOf(conn, k.s.Queue)
	if err != nil {
		return nil, "", err
	}
	k.mu.Lock()
	before := k.kind
	k.mu.Unlock()
	if before != "" && before != kind {
		return nil, "", fmt.Errorf("queue %s was a %s and is a %s now: start the trigger again", k.s.Queue, before, kind)
	}
	ch, err := conn.Channel()
	if err != nil {
		return nil, "", err
	}
	s := newSession(conn, ch, k.prefetch(kind))
	if err := ch.Qos(s.prefetch, 0, false); err != nil {
		return nil, "", err
	}
	if kind == "stream" {
		return s, kind, k.consumeStream(ctx, s)
	}
	return s, kind, s.consume(k.s.Queue, nil, func(d *amqp.Delivery) (trigger.Message, error) {
		m := fromDelivery(d)
		if m.ID == "" {
			unnamed(&m, k.s.Queue)
		}
		return m, nil
	})
}

// find looks for the queue, and makes it where that is asked for.
func (k *source) find(conn *amqp.Connection) error {
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	_, err = ch.QueueDeclarePassive(k.s.Queue, true, false, false, false, nil)
	if err == nil {
		return ch.Close()
	}
	kind := k.s.Text("create")
	if !code(err, amqp.NotFound) || kind == "" {
		if code(err, amqp.NotFound) {
			err = fmt.Errorf("make it, or set adapter.connection.create: %w", err)
		}
		return fmt.Errorf("queue %s: %w", k.s.Queue, err)
	}
	if ch, err = conn.Channel(); err != nil {
		return err
	}
	if _, err = ch.QueueDeclare(k.s.Queue, true, false, false, false, amqp.Table{"x-queue-type": kind}); err != nil {
		return fmt.Errorf("making queue %s: %w", k.s.Queue, err)
	}
	return ch.Close()
}

// kindOf asks the server whether a queue is a stream: only a stream can be read from
// an offset. It is asked for the messages to come, so that none is delivered.
func kindOf(conn *amqp.Connection, queue string) (string, error) {
	ch, err := conn.Channel()
	if err != nil {
		return "", err
	}
	if err := ch.Qos(1, 0, false); err != nil {
		return "", err
	}
	_, err = ch.Consume(queue, "", false, false, false, false, amqp.Table{offsetHeader: "next"})
	if code(err, amqp.PreconditionFailed) {
		return "queue", nil
	}
	if err != nil {
		return "", fmt.Errorf("queue %s: %w", queue, err)
	}
	return "stream", ch.Close()
}

// prefetch is how many messages may be out. Messages of a stream are acknowledged in
// their order: one that waits must not keep those behind it from being delivered.
func (k *source) prefetch(kind string) int {
	n := k.s.Int("prefetch")
	if n == 0 && k.s.Handled && kind != "stream" {
		n = k.s.Concurrency
	} else if n == 0 {
		n = k.s.MaxBatch
	}
	return min(max(n, 1), maxPrefetch)
}

func (k *source) session() *session {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.live
}

// Consume implements trigger.Source.
func (k *source) Consume(ctx context.Context, most int) ([]trigger.Message, error) {
	for {
		k.mu.Lock()
		s, closed := k.live, k.closed
		k.mu.Unlock()
		switch {
		case closed:
			return nil, errNotConnected
		case s == nil:
			if err := k.open(ctx); err != nil {
				if ctx.Err() != nil {
					return nil, context.Cause(ctx)
				}
				k.note(err)
				return nil, err
			}
			k.note(nil)
			continue
		case s.over():
			// What was delivered and not taken is redelivered.
			k.lose(s)
			continue
		}
		if ms := s.take(most); len(ms) > 0 {
			k.reach(ms)
			return ms, nil
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-s.wake:
		case <-s.gone:
		}
	}
}

func (k *source) note(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last = err
}

// lose ends a session that has ended; the next Consume begins another one.
func (k *source) lose(s *session) {
	s.close()
	<-s.gone
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.live == s {
		k.live, k.last = nil, s.why()
	}
	if k.s.Log != nil {
		k.s.Log.Warn("reading ended, connecting again", "queue", k.s.Queue, "error", s.why())
	}
}

// Ack implements trigger.Source. What a session before this one has delivered is
// delivered again, but not by a stream, whose positions are in the thread.
func (k *source) Ack(_ context.Context, ms []trigger.Message) error {
	s := k.session()
	var tags []uint64
	stale := 0
	for i := range ms {
		if h, ok := ms[i].Handle.(*handle); ok && h.s == s {
			tags = append(tags, h.tag)
		} else {
			stale++
		}
	}
	if len(tags) > 0 {
		if err := s.ack(tags); err != nil {
			return err
		}
	}
	if stale > 0 && !k.Capabilities().Positions {
		return fmt.Errorf("%d messages were delivered on a connection that was lost", stale)
	}
	return nil
}

// Nack implements trigger.Source. A message of a lost connection is delivered again
// without being asked for.
func (k *source) Nack(ctx context.Context, m trigger.Message, requeue bool) error {
	if k.Capabilities().Positions {
		if !requeue {
			return nil
		}
		return k.copy(ctx, &m)
	}
	h, ok := m.Handle.(*handle)
	if !ok || h.s != k.session() {
		return nil
	}
	if err := h.s.nack(h.tag, requeue); err != nil && !h.s.over() {
		return err
	}
	return nil
}

func (k *source) dlq() string {
	if k.s.DLQ != "" {
		return k.s.DLQ
	}
	return k.s.Queue + ".dlq"
}

// ProbeDLQ implements trigger.Prober.
func (k *source) ProbeDLQ(ctx context.Context) (string, error) {
	exchange := k.s.Text("dlq_exchange")
	err := k.out.look(ctx, exchange, k.dlq())
	switch {
	case err == nil:
		return "", nil
	case exchange != "":
		return "", fmt.Errorf("exchange %s: %w", exchange, err)
	case code(err, amqp.NotFound):
		return trigger.MadeLater(k.dlq()), nil
	}
	return "", fmt.Errorf("queue %s: %w", k.dlq(), err)
}

// SendToDLQ implements trigger.Source: to the queue that is named, which is made
// when there is none.
func (k *source) SendToDLQ(ctx context.Context, m trigger.Message, r trigger.Reason) error {
	queue := k.dlq()
	o := outgoing{exchange: k.s.Text("dlq_exchange"), key: queue, Publishing: toPublishing(m.Body, adapter.DLQHeaders(&m, &r))}
	err := k.out.publish(ctx, o)
	if errors.Is(err, errUnroutable) && o.exchange == "" {
		if err = k.out.declare(ctx, queue); err == nil {
			err = k.out.publish(ctx, o)
		}
	}
	if code(err, amqp.PreconditionFailed) || code(err, amqp.ContentTooLarge) {
		err = errors.Join(trigger.ErrTooLarge, err)
	}
	if err != nil {
		return fmt.Errorf("queue %s: %w", queue, err)
	}
	return nil
}

// Health implements trigger.Source.
func (k *source) Health(context.Context) trigger.Health {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.live != nil && !k.live.over():
		return trigger.Health{OK: true}
	case k.last != nil:
		return trigger.Health{Detail: k.last.Error()}
	}
	return trigger.Health{Detail: errNotConnected.Error()}
}

// Lag implements trigger.Source: what is ready in the queue. What was delivered and
// is not acknowledged the server does not tell, nor how long a stream is.
func (k *source) Lag(context.Context) (int64, error) {
	s := k.session()
	if s == nil || k.Capabilities().Positions {
		return 0, trigger.ErrNotKnown
	}
	ch, err := s.conn.Channel()
	if err != nil {
		return 0, err
	}
	q, err := ch.QueueDeclarePassive(k.s.Queue, true, false, false, false, nil)
	if err != nil {
		return 0, err
	}
	return int64(q.Messages) + s.unsettled(), ch.Close()
}

// Capabilities implements trigger.Source.
func (k *source) Capabilities() trigger.Caps {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kind == "stream" {
		return streamCaps
	}
	return queueCaps
}

// Close implements trigger.Source.
func (k *source) Close() error {
	k.mu.Lock()
	s := k.live
	k.live, k.closed = nil, true
	k.mu.Unlock()
	if s != nil {
		s.close()
	}
	k.out.close()
	return nil
}

var (
	_ trigger.Source = (*source)(nil)
	_ trigger.Seeker = (*source)(nil)
)
