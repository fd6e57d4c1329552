package torture

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"thread/bridge/internal/brokertest"
)

// rabbitQueue is a queue whose messages have ids.
func rabbitQueue(t *testing.T) *queue { return rabbitOf(t, "quorum", "m-%d") }

// rabbitStream is a stream without ids.
func rabbitStream(t *testing.T) *queue { return rabbitOf(t, "stream", "") }

func rabbitOf(t *testing.T, kind, id string) *queue {
	brokertest.Needed(t, "RabbitMQ", "127.0.0.1:5672")
	conn, err := amqp.Dial("amqp://127.0.0.1:5672")
	if err != nil {
		t.Fatal(err)
	}
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("k%d", time.Now().UnixNano())
	if _, err := ch.QueueDeclare(name, true, false, false, false, amqp.Table{"x-queue-type": kind}); err != nil {
		t.Fatal(err)
	}
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	asks, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, err := asks.QueueDelete(name, false, false, false)
		_, gone := asks.QueueDelete(name+".dlq", false, false, false)
		if err := errors.Join(err, gone, conn.Close()); err != nil {
			t.Error(err)
		}
	})
	return &queue{
		dead:   []string{name, name + ".dlq"},
		config: fmt.Sprintf("queue_name: %s\nconsumer_group: g\nadapter: {type: rabbitmq, connection: {servers: \"127.0.0.1:5672\"}}\n", name),
		send: func(n int64) error {
			m := amqp.Publishing{Body: fmt.Appendf(nil, `{"n":%d}`, n), DeliveryMode: amqp.Persistent}
			if id != "" {
				m.MessageId = fmt.Sprintf(id, n)
			}
			c, err := ch.PublishWithDeferredConfirmWithContext(context.Background(), "", name, true, false, m)
			if err == nil && !c.Wait() {
				err = errors.New("not confirmed")
			}
			return err
		},
		empty: func() bool {
			q, err := asks.QueueDeclarePassive(name, true, false, false, false, nil)
			return err == nil && (q.Messages == 0 || kind == "stream")
		},
	}
}
