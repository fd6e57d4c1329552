package mqtt

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/paho"

	"thread/bridge/adapter"
	"thread/bridge/internal/brokertest"
	"thread/bridge/internal/mosquitto"
	"thread/bridge/trigger"
	"thread/engine"
	"thread/event"
)

// shared is the Mosquitto of this host. With THREAD_BRIDGE_BROKERS it must be there.
const shared = "127.0.0.1:1883"

// broker is a server and topics of a test's own.
type broker struct {
	addr  string
	topic string
	c     *paho.Client
	got   chan *paho.Publish // what comes to c
}

func settings(server, queue string) *adapter.Settings {
	spec, _ := adapter.Find("mqtt")
	return &adapter.Settings{Name: "orders", Queue: queue, Group: "g", Keys: spec.Keys, MaxBatch: 100, Instance: "thread-test",
		Connection: map[string]string{"server": server, "connect_timeout": "5s"}}
}

func (b *broker) settings() *adapter.Settings {
	s := settings(b.addr, b.topic)
	s.Connection["client_id"] = strings.ReplaceAll(b.topic, "/", "-")
	return s
}

func newBroker(t *testing.T, addr string) *broker {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		mosquitto.Needed(t, err)
	}
	b := &broker{addr: addr, topic: fmt.Sprintf("thread-test/%d", time.Now().UnixNano()), got: make(chan *paho.Publish, 1000)}
	b.dial(t, conn)
	t.Cleanup(func() {
		s := b.settings() // no session of ours stays
		if c, _, _, err := connect(context.Background(), s, client{id: s.Text("client_id"), clean: true, session: newManager(newSource(s), &link{}).State}); err == nil {
			disconnect(c)
		}
	})
	return b
}

func (b *broker) dial(t *testing.T, conn net.Conn) {
	t.Helper()
	b.c = paho.NewClient(paho.ClientConfig{Conn: conn, OnPublishReceived: []func(paho.PublishReceived) (bool, error){func(p paho.PublishReceived) (bool, error) {
		b.got <- p.Packet
		return true, nil
	}}})
	if _, err := b.c.Connect(context.Background(), &paho.Connect{ClientID: "test-" + random(), CleanStart: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { disconnect(b.c) })
}

func (b *broker) subscribe(t *testing.T, topic string, qos byte) {
	t.Helper()
	if _, err := b.c.Subscribe(context.Background(), &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: topic, QoS: qos, RetainAsPublished: true}}}); err != nil {
		t.Fatal(err)
	}
}

func (b *broker) send(t *testing.T, qos byte, body string, headers ...string) {
	t.Helper()
	p := &paho.Publish{Topic: b.topic, QoS: qos, Payload: []byte(body), Properties: &paho.PublishProperties{}}
	for i := 0; i < len(headers); i += 2 {
		p.Properties.User.Add(headers[i], headers[i+1])
	}
	if _, err := b.c.Publish(context.Background(), p); err != nil {
		t.Fatal(err)
	}
}

type run struct {
	*brokertest.Intake
	s *adapter.Settings
}

func newRun(t *testing.T, s *adapter.Settings, change func(*trigger.Config)) *run {
	t.Helper()
	r := &run{s: s, Intake: brokertest.NewIntake(t, func(c *trigger.Config) {
		c.Name, c.Queue, c.Group, c.Adapter = "orders", s.Queue, "g", "mqtt"
		if change != nil {
			change(c)
		}
	})}
	r.Start(newSource(s))
	return r
}

// packets is how many packet ids are stored.
func (r *run) packets() int {
	r.T.Helper()
	all, err := trigger.StateOf(r.Thread, &r.Config).Load(packetPrefix)
	if err != nil {
		r.T.Fatal(err)
	}
	return len(all)
}

// Stored once each, with its topic, and what is not JSON is kept by the broker for
// who looks after the dead.
func TestStored(t *testing.T) {
	b := newBroker(t, shared)
	r := newRun(t, b.settings(), nil)
	b.subscribe(t, "dlq/"+b.topic+"/#", 1)
	b.send(t, 2, `{"n":1}`, "X-Message-Id", "m-1", "x-event-name", "order")
	b.send(t, 1, `{"n":2}`)
	b.send(t, 2, `oops`)
	b.send(t, 0, `{"n":3}`)
	es := r.Events(3)
	r.Until("the acknowledgements", func() bool { return r.packets() == 0 })
	if es[0].Type != "order" || es[0].Source != "mqtt:"+b.topic || !strings.Contains(es[0].Content, `"message_id":"m-1"`) ||
		!strings.Contains(es[0].Content, `"mqtt-topic":"`+b.topic+`"`) || !strings.Contains(es[1].Content, `"n":2`) || !strings.Contains(es[2].Content, `"n":3`) {
		t.Errorf("%v", es)
	}
	select {
	case p := <-b.got:
		if string(p.Payload) != "oops" || !p.Retain || !strings.Contains(p.Properties.User.Get("x-dlq-reason"), "JSON") {
			t.Errorf("%v %v", p, p.Properties.User)
		}
		if _, err := b.c.Publish(context.Background(), &paho.Publish{Topic: p.Topic, QoS: 1, Retain: true}); err != nil {
			t.Error(err) // cleared
		}
	case <-time.After(10 * time.Second):
		t.Error("there is no dead letter")
	}
}

// deaf is a source whose acknowledgements fail.
type deaf struct{ *source }

func (deaf) Ack(context.Context, []trigger.Message) error { return errors.New("no connection") }

// Stored and never acknowledged: with QoS 2 it is redelivered and is known, though its
// key would be over; with QoS 1 and no id it is stored again, and says so.
func TestRedelivered(t *testing.T) {
	for qos, want := range map[byte]int{2: 5, 1: 10} {
		b := newBroker(t, shared)
		r := newRun(t, b.settings(), func(c *trigger.Config) { c.Window = 0.001 })
		r.Stop()
		r.Start(deaf{newSource(b.settings())})
		for i := range 5 {
			b.send(t, qos, fmt.Sprintf(`{"n":%d}`, i))
		}
		r.Events(5)
		r.Stop()
		r.Start(newSource(b.settings()))
		r.Until("the end", func() bool {
			h := r.Tr.Health(context.Background())
			return h.DedupHits+h.Processed == 5 && r.packets() == 0
		})
		es := r.Events(want)
		if len(es) != want || strings.Contains(es[len(es)-1].Content, `"x-redelivered":"true"`) != (qos == 1) {
			t.Errorf("QoS %d: %v", qos, es)
		}
		r.Stop()
		r.Start(newSource(b.settings())) // nothing is left at the broker
		b.send(t, 2, `{"last":true}`)
		if es = r.Events(want + 1); len(es) != want+1 {
			t.Errorf("QoS %d: %d events", qos, len(es))
		}
		r.Stop()
	}
}

// The broker is told once the consumer is through, also when its process was
// another one.
func TestHandled(t *testing.T) {
	b := newBroker(t, shared)
	r := newRun(t, b.settings(), func(c *trigger.Config) { c.Settle = trigger.SettleHandled })
	b.send(t, 2, `{"n":1}`)
	r.Events(1)
	r.Stop()
	r.Start(newSource(b.settings()))
	r.Until("the redelivery", func() bool { return r.Tr.Health(context.Background()).DedupHits == 1 })
	if n := r.packets(); n != 1 {
		t.Errorf("%d packet ids before it is handled", n)
	}
	feed := r.Thread.Feed("orders", r.Config.Policy())
	defer feed.Close()
	if d, err := feed.Next(context.Background(), nil); err != nil || len(d.Events) != 1 {
		t.Fatal(d, err)
	}
	if _, err := feed.Settle(context.Background(), engine.Result{Verdict: engine.Succeeded}); err != nil {
		t.Fatal(err)
	}
	r.Until("the release", func() bool { return r.packets() == 0 })
	if es := r.Events(1); len(es) != 1 {
		t.Errorf("%v", es)
	}
}

// The broker is restarted under load, and keeps the session: nothing is lost, and
// nothing there twice.
func TestRestarts(t *testing.T) {
	for _, receive := range []string{"20", "1000"} {
		t.Run(receive, func(t *testing.T) { restarts(t, receive) })
	}
}

func restarts(t *testing.T, receive string) {
	server := mosquitto.New(t, "allow_anonymous true", "max_queued_messages 0", "max_inflight_messages 65534", "persistence true")
	s := settings("mqtt://"+server.Addr, "load/#")
	s.Connection["receive_maximum"] = receive
	r := newRun(t, s, nil)
	out := &sink{s: settings(server.Addr, "load/x")}
	ctx, n, restarts := context.Background(), 0, 3
	if os.Getenv("THREAD_BRIDGE_BROKERS") != "" {
		restarts = 10
	}
	for range restarts {
		if _, err := out.Connect(ctx); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			var ms []trigger.Outgoing
			for range 100 {
				n++
				ms = append(ms, trigger.Outgoing{Event: int64(n), Queue: "load/x", Body: fmt.Appendf(nil, `{"n":%d}`, n)})
			}
			if err := out.Publish(ctx, ms); err != nil {
				t.Fatal(err)
			}
		}
		server.Stop(syscall.SIGTERM)
		server.Start(t)
	}
	r.Until("the events", func() bool {
		info, err := r.Thread.Info(ctx)
		return err == nil && info.EventCount >= int64(n) && r.packets() == 0 && r.Tr.Health(ctx).AdapterHealthy
	})
	out.Close()
	if info, err := r.Thread.Info(ctx); err != nil || info.EventCount != int64(n) {
		t.Errorf("%d events of %d, %v", info.EventCount, n, err)
	}
}

// A broker without memory: packet ids are cleared, and new messages that get the
// same ones are stored.
func TestSessionLost(t *testing.T) {
	server := mosquitto.New(t, "allow_anonymous true")
	s := settings(server.Addr, "load/x")
	r := newRun(t, s, nil)
	r.Stop()
	b := &broker{addr: server.Addr, topic: "load/x", got: make(chan *paho.Publish, 100)}
	send := func() {
		conn, err := net.Dial("tcp", server.Addr)
		if err != nil {
			t.Fatal(err)
		}
		b.dial(t, conn)
		for range 3 {
			b.send(t, 2, `{"the":"same"}`)
		}
	}
	r.Start(deaf{newSource(s)})
	send()
	r.Events(3)
	if n := r.packets(); n != 3 {
		t.Fatalf("%d packet ids", n)
	}
	r.Stop()
	server.Stop(syscall.SIGKILL)
	server.Start(t)
	r.Start(deaf{newSource(s)})
	if n := r.packets(); n != 0 {
		t.Errorf("%d packet ids", n)
	}
	send()
	if es := r.Events(6); len(es) != 6 {
		t.Errorf("%d events", len(es))
	}
}

// What we have publishes in order, confirmed, with its id.
func TestPublish(t *testing.T) {
	for _, qos := range []string{"1", "2"} {
		b := newBroker(t, shared)
		b.subscribe(t, b.topic+"/#", 2)
		ctx := context.Background()
		th, err := engine.Init(t.TempDir() + "/t")
		if err != nil {
			t.Fatal(err)
		}
		for i := range 100 { // more than Mosquitto has in flight
			if _, err := th.Push(ctx, event.Draft{Source: "s", Type: "a", Content: fmt.Sprintf(`{"n":%d}`, i)}); err != nil {
				t.Fatal(err)
			}
		}
		conf := trigger.NewPublishConfig()
		conf.Name, conf.Queue, conf.Key = "out", b.topic, "type"
		s := settings(b.addr, b.topic)
		s.Connection["qos"] = qos
		k := &sink{s: s}
		p, err := trigger.NewPublisher(ctx, th, k, conf, nil)
		if err != nil {
			t.Fatal(err)
		}
		run, stop := context.WithCancel(ctx)
		p.OnIdle = stop
		if err := p.Run(run); err != nil || p.Published != 100 {
			t.Fatal(err, p.Published)
		}
		k.Close()
		for i := range 100 {
			m := <-b.got
			if m.Topic != b.topic+"/a" || string(m.Payload) != fmt.Sprintf(`{"n":%d}`, i) || !strings.HasSuffix(m.Properties.User.Get("x-message-id"), fmt.Sprintf(":%d", i+1)) {
				t.Fatalf("%d: %v", i, m)
			}
		}
	}
}

// Another client with our id is an error that says so, and a shared topic gives each
// message to one.
func TestTakenOverAndShared(t *testing.T) {
	b := newBroker(t, shared)
	r := newRun(t, b.settings(), nil)
	other := newRun(t, b.settings(), nil)
	r.Until("the error", func() bool {
		d := r.Tr.Health(context.Background()).Detail
		return d != nil && strings.Contains(*d, "client_id")
	})
	other.Stop()
	r.Stop()

	two := []*run{}
	for _, instance := range []string{"thread-a", "thread-b"} {
		s := settings(b.addr, b.topic)
		s.Group, s.Instance, s.Connection["shared"], s.Connection["session_expiry"] = "g"+random(), instance, "true", "1s"
		if len(two) > 0 {
			s.Group = two[0].s.Group
		}
		two = append(two, newRun(t, s, nil))
	}
	for i := range 20 {
		b.send(t, 2, fmt.Sprintf(`{"n":%d}`, i))
	}
	two[0].Until("20 events", func() bool {
		x, _ := two[0].Thread.Info(context.Background())
		y, _ := two[1].Thread.Info(context.Background())
		return x.EventCount+y.EventCount == 20 && x.EventCount > 0 && y.EventCount > 0
	})
}

// Looking takes nothing, warns, and leaves the trigger that runs alone.
func TestTrial(t *testing.T) {
	b := newBroker(t, shared)
	r := newRun(t, b.settings(), nil)
	s := b.settings()
	s.Instance = ""
	k := newSource(s)
	if err := k.Connect(context.Background(), trigger.NoState); err != nil {
		t.Fatal(err)
	}
	if w := k.Warnings(context.Background()); len(w) != 1 || !strings.Contains(w[0], "max_queued_messages") {
		t.Errorf("%v", w)
	}
	b.send(t, 2, `{}`)
	if ms, err := k.Consume(context.Background(), 10); err != nil || len(ms) != 1 {
		t.Errorf("%v %v", ms, err)
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	r.Events(1)
	if h := r.Tr.Health(context.Background()); h.Status != "healthy" {
		t.Errorf("%+v", h)
	}
}

// What has no room for the reason next to it is kept with its beginning, and what comes
// behind it is stored, on the same connection.
func TestTooLargeToBury(t *testing.T) {
	server := mosquitto.New(t, "allow_anonymous true", "max_packet_size 50000")
	b := newBroker(t, server.Addr)
	r := newRun(t, b.settings(), nil)
	b.subscribe(t, "dlq/#", 1)
	size := 49_900
	b.send(t, 2, strings.Repeat("x", size))
	b.send(t, 2, `{"n":1}`)
	r.Events(1)
	dead := <-b.got
	if n := dead.Properties.User.Get("x-dlq-body-bytes"); len(dead.Payload) != 1<<10 || n != fmt.Sprint(size) {
		t.Errorf("%d bytes of %s", len(dead.Payload), n)
	}
}
