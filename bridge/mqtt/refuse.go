package mqtt

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/eclipse/paho.golang/paho"

	"thread/bridge/adapter"
	"thread/bridge/trigger"
)

// Nack implements trigger.Source. MQTT has no way to refuse a message.
func (k *source) Nack(ctx context.Context, m trigger.Message, requeue bool) error {
	if requeue {
		return fmt.Errorf("%w: MQTT cannot deliver a message again", trigger.ErrNotBuilt)
	}
	return k.Ack(ctx, []trigger.Message{m})
}

// noSubscribers is the reason of a broker that has no process to give a message to.
const noSubscribers = 0x10

// packetTooLarge is the reason of a broker that takes smaller messages only, without
// having said so.
const packetTooLarge = 0x95

// SendToDLQ implements trigger.Source. A broker keeps a message for those who have
// subscribed, and the last one of a topic that is to be retained: so each dead
// letter gets a topic.
func (k *source) SendToDLQ(ctx context.Context, m trigger.Message, r trigger.Reason) error {
	k.mu.Lock()
	var c *paho.Client
	var largest uint32
	if k.link != nil {
		c, largest = k.link.client, k.link.largest
	}
	k.mu.Unlock()
	if c == nil {
		return errNotConnected
	}
	topic := k.s.DLQ
	if topic == "" {
		topic = "dlq/" + m.Key
	}
	p := &paho.Publish{Topic: topic, QoS: 1, Payload: m.Body, Properties: &paho.PublishProperties{}}
	if k.s.Bool("dlq_retain") {
		id := sha256.Sum256([]byte(m.ID))
		p.Topic, p.Retain = topic+"/"+hex.EncodeToString(id[:8]), true
	}
	for _, u := range userProperties(adapter.DLQHeaders(&m, &r)) {
		p.Properties.User.Add(u.Key, u.Value)
	}
	if err := tooLarge(p.Packet(), largest); err != nil {
		return fmt.Errorf("topic %s: %w: %w", p.Topic, trigger.ErrTooLarge, err)
	}
	ctx, cancel := during(ctx, c)
	defer cancel()
	resp, err := c.Publish(ctx, p)
	if resp != nil && resp.ReasonCode == packetTooLarge {
		err = fmt.Errorf("%w: %w", trigger.ErrTooLarge, err)
	}
	if err != nil {
		return fmt.Errorf("topic %s: %w", p.Topic, err)
	}
	if resp.ReasonCode == noSubscribers && !p.Retain {
		return fmt.Errorf("%s has no subscriber, the message would be lost: subscribe, or set adapter.connection.dlq_retain", p.Topic)
	}
	return nil
}
