package torture

import (
	"context"
	"fmt"
	"math"
	"net"
	"testing"

	"github.com/eclipse/paho.golang/paho"

	"thread/bridge/internal/mosquitto"
	_ "thread/bridge/mqtt"
	"thread/bridge/trigger"
	"thread/engine"
)

// mqttQueue is a topic of a Mosquitto that drops nothing.
func mqttQueue(t *testing.T) *queue {
	server := mosquitto.New(t, "allow_anonymous true", "max_queued_messages 0")
	conn, err := net.Dial("tcp", server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	c := paho.NewClient(paho.ClientConfig{Conn: conn})
	if _, err := c.Connect(ctx, &paho.Connect{ClientID: "producer", CleanStart: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Disconnect(&paho.Disconnect{}) })
	subscribeFirst(t, server.Addr)
	return &queue{
		dead:   []string{"orders/#", "dlq/#", "client_id: kill", "client_id: dead"},
		config: fmt.Sprintf("queue_name: orders/#\nconsumer_group: g\nadapter: {type: mqtt, connection: {server: %q, client_id: kill}}\n", server.Addr),
		send: func(n int64) error {
			_, err := c.Publish(ctx, &paho.Publish{Topic: fmt.Sprintf("orders/%d", n%17), QoS: 2, Payload: fmt.Appendf(nil, `{"n":%d}`, n)})
			return err
		},
		settled: func(th *engine.Thread) bool { // no packet id is known any more
			conf := trigger.NewConfig()
			conf.Adapter, conf.Queue, conf.Group = "mqtt", "orders/#", "g"
			all, err := trigger.StateOf(th, &conf).Load("packet:")
			return err == nil && len(all) == 0
		},
	}
}

// subscribeFirst makes the session: what is published before reaches no session.
func subscribeFirst(t *testing.T, addr string) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	ctx, expiry := context.Background(), uint32(math.MaxUint32)
	c := paho.NewClient(paho.ClientConfig{Conn: conn})
	if _, err := c.Connect(ctx, &paho.Connect{ClientID: "kill", CleanStart: true, Properties: &paho.ConnectProperties{SessionExpiryInterval: &expiry}}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Subscribe(ctx, &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: "orders/#", QoS: 2, NoLocal: true}}}); err != nil {
		t.Fatal(err)
	}
	_ = c.Disconnect(&paho.Disconnect{})
}
