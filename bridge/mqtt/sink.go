package mqtt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"
	"github.com/eclipse/paho.golang/paho/session/state"

	"thread/bridge/adapter"
	"thread/bridge/trigger"
)

// sink publishes messages as fast as the broker lets it, and then waits for the
// confirmation of each.
type sink struct {
	s  *adapter.Settings
	mu sync.Mutex
	c  *outlet
}

// outlet is one connection to publish by.
type outlet struct {
	client  *paho.Client
	wire    *wire
	session *state.State
	largest uint32 // packet, 0: no bound
	told    bool   // that no process has subscribed
}

// Connect implements trigger.Sink. The broker does not tell what it has.
func (k *sink) Connect(ctx context.Context) (int64, error) {
	_ = k.Close()
	id := k.s.Text("client_id")
	if id == "" {
		id = k.s.Group
	}
	c, err := k.open(ctx, id)
	if err != nil {
		return 0, err
	}
	k.mu.Lock()
	k.c = c
	k.mu.Unlock()
	return 0, nil
}

func (k *sink) qos() byte { return byte(k.s.Int("qos")) }

func (k *sink) open(ctx context.Context, id string) (*outlet, error) {
	o := &outlet{session: state.NewInMemory()}
	var ack *paho.Connack
	var err error
	// A clean start: what a process before has sent and not heard of is sent again.
	if o.client, o.wire, ack, err = connect(ctx, k.s, client{id: id, clean: true, session: o.session}); err != nil {
		return nil, err
	}
	if p := ack.Properties; p != nil {
		switch {
		case p.MaximumQoS != nil && *p.MaximumQoS < k.qos():
			err = fmt.Errorf("the broker takes QoS %d at most: set adapter.connection.qos", *p.MaximumQoS)
		case !p.RetainAvailable && k.s.Bool("retain"):
			err = errors.New("the broker does not retain messages: set adapter.connection.retain to false")
		}
		if p.MaximumPacketSize != nil {
			o.largest = *p.MaximumPacketSize
		}
	}
	if err != nil {
		disconnect(o.client)
		return nil, err
	}
	return o, nil
}

// answerTimeout is how long the broker may take for the next confirmation.
const answerTimeout = 30 * time.Second

// Publish implements trigger.Sink.
func (k *sink) Publish(ctx context.Context, ms []trigger.Outgoing) error {
	k.mu.Lock()
	c := k.c
	k.mu.Unlock()
	if c == nil {
		return errNotConnected
	}
	var ps []*packets.Publish
	for i := range ms {
		topic := ms[i].Queue
		if ms[i].Key != "" {
			topic += "/" + strings.NewReplacer("+", "_", "#", "_").Replace(clean(ms[i].Key))
		}
		p, err := k.packet(c, topic, ms[i].Headers, ms[i].Body)
		if err != nil {
			return fmt.Errorf("event %d: %w", ms[i].Event, err)
		}
		ps = append(ps, p)
	}
	return k.send(ctx, c, ps)
}

func (k *sink) packet(c *outlet, topic string, headers map[string]string, body []byte) (*packets.Publish, error) {
	p := &packets.Publish{Topic: topic, QoS: k.qos(), Retain: k.s.Bool("retain"), Payload: body, Properties: &packets.Properties{User: userProperties(headers)}}
	if len(topic) > 65535 {
		return nil, errors.New("its topic has more than 65535 bytes")
	}
	return p, tooLarge(p, c.largest)
}

// tooLarge returns an error for a packet that is larger than the broker has said that
// it takes; 0 is not a bound. It would end the connection.
func tooLarge(p *packets.Publish, largest uint32) error {
	if largest == 0 {
		return nil
	}
	if n, err := p.WriteTo(io.Discard); err == nil && n > int64(largest) {
		return fmt.Errorf("it has %d bytes, the broker takes %d at most", n, largest)
	}
	return nil
}

// send writes the packets in their order and waits for all confirmations.
func (k *sink) send(ctx context.Context, c *outlet, ps []*packets.Publish) error {
	answers := make([]chan packets.ControlPacket, len(ps))
	for i, p := range ps {
		answers[i] = make(chan packets.ControlPacket, 1)
		slot, cancel := context.WithTimeout(ctx, answerTimeout)
		err := c.session.AddToSession(slot, p, answers[i]) // waits for the broker's receive maximum
		cancel()
		if err != nil {
			return err
		}
		_, err = p.WriteTo(c.wire)
		if err != nil {
			return err
		}
	}
	timer := time.NewTimer(answerTimeout)
	defer timer.Stop()
	for _, ch := range answers {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.client.Done():
			return errLost
		case <-timer.C:
			return fmt.Errorf("the broker has not confirmed within %s", answerTimeout)
		case a := <-ch:
			if err := k.answer(c, &a); err != nil {
				return err
			}
			timer.Reset(answerTimeout)
		}
	}
	return nil
}

func (k *sink) answer(c *outlet, a *packets.ControlPacket) error {
	var code byte
	var why string
	switch p := a.Content.(type) {
	case *packets.Puback:
		code, why = p.ReasonCode, p.Reason()
	case *packets.Pubrec:
		code, why = p.ReasonCode, p.Reason()
	case *packets.Pubcomp:
		code, why = p.ReasonCode, p.Reason()
	default:
		return errLost
	}
	if code >= 0x80 {
		return fmt.Errorf("the broker refuses the message: %s", why)
	}
	if code == noSubscribers && !c.told && !k.s.Bool("retain") {
		c.told = true
		k.logger().Warn("the topic has no subscriber: the broker forgets what it confirms")
	}
	return nil
}

func (k *sink) logger() *slog.Logger {
	if k.s.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return k.s.Log
}

// Send implements trigger.Sender: to the trigger's topic, or, when that is a filter,
// to the topic that is the message's key. It has a separate session, so that the
// trigger's is not taken over.
func (k *sink) Send(ctx context.Context, m trigger.Message) (string, error) {
	topic := k.s.Queue
	if strings.ContainsAny(topic, "+#") {
		if topic = m.Key; topic == "" || checkQueue(topic, false) != "" {
			return "", fmt.Errorf("%s is a filter: name the topic by --key", k.s.Queue)
		}
	}
	c, err := k.open(ctx, "thread-send-"+random())
	if err != nil {
		return "", err
	}
	defer disconnect(c.client)
	p, err := k.packet(c, topic, m.Headers, m.Body)
	if err != nil {
		return "", err
	}
	return m.ID, k.send(ctx, c, []*packets.Publish{p})
}

// Health implements trigger.Sink.
func (k *sink) Health(context.Context) trigger.Health {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.c == nil {
		return trigger.Health{Detail: errNotConnected.Error()}
	}
	select {
	case <-k.c.client.Done():
		return trigger.Health{Detail: errNotConnected.Error()}
	default:
		return trigger.Health{OK: true}
	}
}

// Capabilities implements trigger.Sink.
func (k *sink) Capabilities() trigger.Caps { return outCaps }

// Close implements trigger.Sink.
func (k *sink) Close() error {
	k.mu.Lock()
	c := k.c
	k.c = nil
	k.mu.Unlock()
	if c != nil {
		disconnect(c.client)
	}
	return nil
}
