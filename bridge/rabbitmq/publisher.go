package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"thread/bridge/adapter"
)

// publisher publishes with confirmations, on a separate connection: the server
// stops reading from one that publishes while it is short of memory or disk, and
// acknowledgements must not wait for that.
type publisher struct {
	s       *adapter.Settings
	purpose string

	mu      sync.Mutex
	conn    *amqp.Connection
	ch      *amqp.Channel
	returns chan amqp.Return
	lost    chan *amqp.Error
}

// publishAtOnce bounds how many messages wait for their confirmation.
const publishAtOnce = 500

// confirmWithin bounds how long they do.
const confirmWithin = 30 * time.Second

// outgoing is one message and where it goes.
type outgoing struct {
	exchange, key string
	amqp.Publishing
}

// errUnroutable says that no queue takes a message.
var errUnroutable = errors.New("no queue takes it")

// connect connects unless it is.
func (p *publisher) connect(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open(ctx)
}

func (p *publisher) open(ctx context.Context) error {
	if p.ch != nil && !p.ch.IsClosed() {
		return nil
	}
	p.shut()
	conn, err := dial(ctx, p.s, p.purpose)
	if err != nil {
		return err
	}
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	p.conn, p.ch = conn, ch
	p.returns, p.lost = ch.NotifyReturn(make(chan amqp.Return, publishAtOnce)), ch.NotifyClose(make(chan *amqp.Error, 1))
	return nil
}

// publish returns once the server has confirmed all messages: they are where they
// are routed to, on disk when they and the queue are durable. After an error nothing
// more is sent on this connection.
func (p *publisher) publish(ctx context.Context, ms ...outgoing) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(ms) > 0 {
		n := min(len(ms), publishAtOnce)
		if err := p.some(ctx, ms[:n]); err != nil {
			p.shut()
			return err
		}
		ms = ms[n:]
	}
	return nil
}

func (p *publisher) some(ctx context.Context, ms []outgoing) error {
	ctx, cancel := context.WithTimeout(ctx, confirmWithin)
	defer cancel()
	if err := p.open(ctx); err != nil {
		return err
	}
	sent := make([]*amqp.DeferredConfirmation, len(ms))
	for i, m := range ms {
		var err error
		if sent[i], err = p.ch.PublishWithDeferredConfirmWithContext(ctx, m.exchange, m.key, true, false, m.Publishing); err != nil {
			return err
		}
	}
	for i, c := range sent {
		ok, err := c.WaitContext(ctx)
		if err != nil {
			return fmt.Errorf("not confirmed: %w", err)
		}
		if !ok {
			err := fmt.Errorf("message %q was not confirmed", ms[i].MessageId)
			select {
			case e := <-p.lost:
				if e != nil {
					err = errors.Join(err, e)
				}
			default:
			}
			return err
		}
	}
	// What was returned was so before its confirmation.
	select {
	case r := <-p.returns:
		return fmt.Errorf("exchange %q, routing key %q: %w (%s)", r.Exchange, r.RoutingKey, errUnroutable, r.ReplyText)
	default:
		return nil
	}
}

// declare makes a durable queue.
func (p *publisher) declare(ctx context.Context, queue string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.open(ctx); err != nil {
		return err
	}
	_, err := p.ch.QueueDeclare(queue, true, false, false, false, nil)
	if err != nil {
		p.shut()
	}
	return err
}

// look returns the server's error about an exchange, or without one about a queue.
func (p *publisher) look(ctx context.Context, exchange, queue string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.open(ctx); err != nil {
		return err
	}
	defer p.shut() // an error has closed the channel
	if exchange != "" {
		return p.ch.ExchangeDeclarePassive(exchange, amqp.ExchangeDirect, true, false, false, false, nil)
	}
	_, err := p.ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	return err
}

func (p *publisher) shut() {
	if p.conn != nil {
		hangUp(p.conn)
	}
	p.conn, p.ch = nil, nil
}

func (p *publisher) connected() bool {
	if !p.mu.TryLock() {
		return true // it publishes
	}
	defer p.mu.Unlock()
	return p.ch != nil && !p.ch.IsClosed()
}

func (p *publisher) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shut()
}
