package rabbitmq

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"thread/bridge/adapter"
	"thread/bridge/internal/brokertest"
	"thread/bridge/trigger"
	"thread/engine"
	"thread/event"
)

// host is the RabbitMQ of this host. With THREAD_BRIDGE_BROKERS it must be there.
const host = "127.0.0.1:5672"

// rabbit is one queue.
type rabbit struct {
	conn  *amqp.Connection
	out   *publisher
	queue string
	kind  string
}

func newRabbit(t *testing.T, kind string) *rabbit {
	t.Helper()
	brokertest.Needed(t, "RabbitMQ", host)
	conn, err := amqp.Dial("amqp://" + host)
	if err != nil {
		t.Fatal(err)
	}
	b := &rabbit{conn: conn, queue: fmt.Sprintf("t%d", time.Now().UnixNano()), kind: kind}
	b.out = &publisher{s: b.settings(), purpose: "test"}
	b.create(t)
	t.Cleanup(func() {
		b.delete(t, b.queue)
		b.delete(t, b.queue+".dlq")
		b.out.close()
		conn.Close()
	})
	return b
}

func (b *rabbit) settings() *adapter.Settings {
	spec, _ := adapter.Find("rabbitmq")
	return &adapter.Settings{Name: "orders", Queue: b.queue, Group: "g", Keys: spec.Keys, Concurrency: 1, MaxBatch: 100,
		Connection: map[string]string{"servers": host, "connect_timeout": "5s"}}
}

func (b *rabbit) channel(t *testing.T) *amqp.Channel {
	t.Helper()
	ch, err := b.conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

func (b *rabbit) create(t *testing.T) {
	t.Helper()
	ch := b.channel(t)
	defer ch.Close()
	if _, err := ch.QueueDeclare(b.queue, true, false, false, false, amqp.Table{"x-queue-type": b.kind}); err != nil {
		t.Fatal(err)
	}
}

func (b *rabbit) delete(t *testing.T, queue string) {
	t.Helper()
	ch := b.channel(t)
	defer ch.Close()
	if _, err := ch.QueueDelete(queue, false, false, false); err != nil && !code(err, amqp.NotFound) {
		t.Error(err)
	}
}

func (b *rabbit) send(t *testing.T, body string, headers ...string) {
	t.Helper()
	h := map[string]string{}
	for i := 0; i < len(headers); i += 2 {
		h[headers[i]] = headers[i+1]
	}
	if err := b.out.publish(context.Background(), outgoing{key: b.queue, Publishing: toPublishing([]byte(body), h)}); err != nil {
		t.Fatal(err)
	}
}

// broker is b for the cases of brokertest.
func (b *rabbit) broker(s *adapter.Settings) *brokertest.Broker {
	return &brokertest.Broker{Adapter: "rabbitmq", Settings: s, Send: b.send, Pending: b.pending,
		Dead: func(t *testing.T) (string, map[string]string) {
			t.Helper()
			return b.last(t, b.queue+".dlq")
		}}
}

// pending counts what is ready in the queue, and what is in flight with the source: the
// server does not tell that.
func (b *rabbit) pending(t *testing.T, src trigger.Source) int {
	t.Helper()
	ch := b.channel(t)
	defer ch.Close()
	q, err := ch.QueueDeclarePassive(b.queue, true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	n := q.Messages
	if b.kind == "stream" {
		n = 0 // it keeps them
	}
	if s := src.(*source).session(); s != nil {
		n += int(s.unsettled())
	}
	return n
}

// last takes the messages of a queue and returns the last one.
func (b *rabbit) last(t *testing.T, queue string) (body string, headers map[string]string) {
	t.Helper()
	ch := b.channel(t)
	for {
		d, ok, err := ch.Get(queue, true)
		if code(err, amqp.NotFound) || err == nil && !ok {
			return body, headers
		}
		if err != nil {
			t.Fatal(err)
		}
		body, headers = string(d.Body), fromDelivery(&d).Headers
	}
}

//
func TestQueues(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"classic", "quorum", "stream"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			brokertest.Cases(t, func(t *testing.T) *brokertest.Broker {
				b := newRabbit(t, kind)
				return b.broker(b.settings())
			})
		})
	}
}

// A second queue type or a stream that was made again while the trigger was down, or
// while it runs: what is new is stored, though its offsets and its messages are those
// of before.
//
func TestStreamMadeAgain(t *testing.T) {
	t.Parallel()
	for _, live := range []bool{false, true} {
		t.Run(fmt.Sprintf("live %t", live), func(t *testing.T) {
			b := newRabbit(t, "stream")
			fill := func() {
				for i := range 5 {
					b.send(t, fmt.Sprintf(`{"n":%d}`, i))
				}
			}
			fill()
			r := brokertest.New(t, b.broker(b.settings()), nil)
			r.Events(5)
			if !live {
				r.Stop()
			}
			b.delete(t, b.queue)
			b.create(t)
			fill()
			if !live {
				r.Start()
			}
			r.Events(10)
			b.send(t, `{"n":5}`)
			if es := r.Events(11); len(es) != 11 || brokertest.Contains(es, `"n":4}`) != 2 {
				t.Errorf("%v", es)
			}
			// And the same stream is not read again.
			r.Stop()
			b.send(t, `{"n":6}`)
			r.Start()
			if es := r.Events(12); len(es) != 12 || !strings.Contains(es[11].Content, `"n":6`) {
				t.Errorf("%v", es)
			}
		})
	}
}

// Whatever the downtime: positions, not keys, know what is stored.
func TestStreamPositions(t *testing.T) {
	b := newRabbit(t, "stream")
	r := brokertest.New(t, b.broker(b.settings()), func(c *trigger.Config) { c.Dedup = false })
	for i := range 300 {
		b.send(t, fmt.Sprintf(`{"n":%d}`, i))
	}
	for n := 100; n <= 300; n += 100 { // batches of 100
		r.Events(n)
		r.Stop()
		r.Start()
	}
	es := r.Events(300)
	if len(es) != 300 || brokertest.Contains(es, `"n":299}`) != 1 {
		t.Errorf("%d events", len(es))
	}
}

// A dry run and a validation leave nothing at the broker.
func TestStreamDryRun(t *testing.T) {
	b := newRabbit(t, "stream")
	b.send(t, `{}`)
	src, err := newSource(b.settings())
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if err := src.Connect(t.Context(), trigger.NoState); err != nil {
		t.Fatal(err)
	}
	ms, err := src.Consume(t.Context(), 10)
	if err != nil || len(ms) != 1 || ms[0].Position == nil {
		t.Fatalf("%v %v", ms, err)
	}
	if ok, err := src.exists(b.conn, ms[0].Position.Key); ok || err != nil {
		t.Errorf("%t %v", ok, err)
	}
}

// Without ids a redelivery is stored again, and says so.
//
func TestUnnamed(t *testing.T) {
	b := newRabbit(t, "classic")
	b.send(t, `{"n":1}`)
	r := brokertest.New(t, b.broker(b.settings()), nil)
	r.Events(1)
	r.Drained() // or the first one is redelivered, too
	r.Stop()
	r.Wrap = func(s trigger.Source) trigger.Source { return brokertest.Deaf{Source: s} }
	b.send(t, `{"n":2}`)
	r.Start()
	r.Events(2)
	r.Stop()
	r.Wrap = nil
	r.Start()
	r.Drained()
	es := r.Events(3)
	if len(es) != 3 || strings.Contains(es[1].Content, "redelivered") || !strings.Contains(es[2].Content, `"x-redelivered":"true"`) {
		t.Errorf("%v", es)
	}
}

// The ids that publishers give: the property, and the header before it.
//
func TestIDs(t *testing.T) {
	b := newRabbit(t, "classic")
	ch := b.channel(t)
	at := time.Now().Add(-time.Hour).Truncate(time.Second)
	if err := ch.PublishWithContext(t.Context(), "", b.queue, true, false, amqp.Publishing{Body: []byte(`{}`), MessageId: "p-1", ContentType: "application/json",
		Timestamp: at, Headers: amqp.Table{"n": int32(7), "list": []any{"a", amqp.Table{"b": true}}, "none": nil, "bytes": []byte("x"), "CC": []any{}}}); err != nil {
		t.Fatal(err)
	}
	src, err := newSource(b.settings())
	if err == nil {
		err = src.Connect(t.Context(), trigger.NoState)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	ms, err := src.Consume(t.Context(), 10)
	if err != nil {
		t.Fatal(err)
	}
	m := ms[0]
	if m.ID != "p-1" || !m.At.Equal(at) || m.Headers["n"] != "7" || m.Headers["list"] != `["a",{"b":true}]` || m.Headers["none"] != "" ||
		m.Headers["bytes"] != "x" || m.Headers["amqp-content-type"] != "application/json" || m.Key != b.queue {
		t.Errorf("%+v", m)
	}
	// The copy in the dead letter queue has the properties, and no orders to the server.
	if err := src.SendToDLQ(t.Context(), m, trigger.Reason{Text: "x"}); err != nil {
		t.Fatal(err)
	}
	d, _, err := ch.Get(b.queue+".dlq", true)
	if err != nil || d.ContentType != "application/json" || d.MessageId != "p-1" || d.Headers["CC"] != nil || d.DeliveryMode != amqp.Persistent {
		t.Errorf("%+v %v", d, err)
	}
}

// Acknowledgements in any order tell the server of each message once: what is not
// acknowledged is redelivered, and nothing else.
func TestAckOrder(t *testing.T) {
	b := newRabbit(t, "classic")
	const n = 12
	for i := range n {
		b.send(t, `{}`, "x-message-id", fmt.Sprint(i))
	}
	src, err := newSource(b.settings())
	if err == nil {
		err = src.Connect(t.Context(), trigger.NoState)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	var ms []trigger.Message
	for len(ms) < n {
		more, err := src.Consume(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		ms = append(ms, more...)
	}
	pick := func(is ...int) (list []trigger.Message) {
		for _, i := range is {
			list = append(list, ms[i])
		}
		return list
	}
	for _, list := range [][]trigger.Message{pick(2, 5), pick(0), pick(3, 1), pick(4), pick(11, 9, 8)} {
		if err := src.Ack(t.Context(), list); err != nil {
			t.Fatal(err)
		}
	}
	if err := src.Nack(t.Context(), ms[6], false); err != nil {
		t.Fatal(err)
	}
	if src.session().over() {
		t.Fatal(src.session().why())
	}
	if lag, err := src.Lag(t.Context()); lag != 2 || err != nil {
		t.Errorf("lag %d %v", lag, err)
	}
	src.Close()
	if _, err := src.Consume(t.Context(), 1); err == nil {
		t.Error("it is closed")
	}
	ch := b.channel(t)
	for _, want := range []string{"7", "10"} {
		d, ok, err := ch.Get(b.queue, true)
		if err != nil || !ok || d.MessageId != want || !d.Redelivered {
			t.Errorf("%v %t %v, want %s", d.MessageId, ok, err, want)
		}
	}
	if _, ok, _ := ch.Get(b.queue, true); ok {
		t.Error("there are more")
	}
}

// a queue that is not there is an error that names it; with create it is made.
//
func TestQueueMissing(t *testing.T) {
	b := newRabbit(t, "quorum")
	b.delete(t, b.queue)
	s := b.settings()
	r := &brokertest.Run{B: b.broker(s), Intake: brokertest.NewIntake(t, func(c *trigger.Config) {
		c.Name, c.Queue, c.Group, c.Adapter = "orders", b.queue, "g", "rabbitmq"
	})}
	r.Patience = 60 * time.Second
	if err := r.TryStart(); err == nil || !strings.Contains(err.Error(), "cannot connect to queue "+b.queue) || !strings.Contains(err.Error(), "create") {
		t.Fatal(err)
	}
	s.Connection["create"] = "quorum"
	r.Start()
	b.send(t, `{}`)
	r.Events(1)
	// And away again, while it runs: it comes back by itself.
	b.delete(t, b.queue)
	r.Until("the loss", func() bool { return r.Health().Status == "unhealthy" || b.declared(t) })
	r.Until("the queue", func() bool { // a queue that is being deleted, or made, confirms nothing
		return b.declared(t) && b.out.publish(t.Context(), outgoing{key: b.queue, Publishing: toPublishing([]byte(`{}`), nil)}) == nil
	})
	r.Events(2)
}

func (b *rabbit) declared(t *testing.T) bool {
	t.Helper()
	ch := b.channel(t)
	defer ch.Close()
	_, err := ch.QueueDeclarePassive(b.queue, true, false, false, false, nil)
	return err == nil
}

// publishers of rules: a thread's events go out with their ids, confirmed; a queue
// that is not there is an error and loses none.
func TestPublish(t *testing.T) {
	t.Parallel()
	b := newRabbit(t, "classic")
	b.delete(t, b.queue)
	ctx := t.Context()
	th, err := engine.Init(t.TempDir() + "/t")
	if err != nil {
		t.Fatal(err)
	}
	const n = 1200 // more than wait for their confirmation at once
	for i := range n {
		if _, err := th.Push(ctx, event.Draft{Source: "s", Type: "a", Content: fmt.Sprintf(`{"n":%d}`, i)}); err != nil {
			t.Fatal(err)
		}
	}
	conf := trigger.NewPublishConfig()
	conf.Name, conf.Queue, conf.Headers = "out", b.queue, map[string]string{"CC": `"[]"`, "x-more": "source"}
	k, err := newSink(b.settings())
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	p, err := trigger.NewPublisher(ctx, th, k, conf, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Connect(ctx); err != nil {
		t.Fatal(err)
	}
	err = k.Publish(ctx, []trigger.Outgoing{{Event: 1, ID: "x", Body: []byte("{}")}})
	if err == nil || !strings.Contains(err.Error(), errUnroutable.Error()) || !strings.Contains(err.Error(), b.queue) {
		t.Fatal(err)
	}
	b.create(t)
	run, stop := context.WithCancel(ctx)
	p.OnIdle = stop
	if err := p.Run(run); err != nil || p.Published != n {
		t.Fatalf("%d %v", p.Published, err)
	}
	ch := b.channel(t)
	for i := range n {
		d, ok, err := ch.Get(b.queue, true)
		if err != nil || !ok || string(d.Body) != fmt.Sprintf(`{"n":%d}`, i) || !strings.HasSuffix(d.MessageId, fmt.Sprint(":", i+1)) || d.Headers["x-more"] != "s" {
			t.Fatalf("message %d: %+v %v", i, d, err)
		}
	}
}

func TestCheck(t *testing.T) {
	brokertest.Checks(t, "rabbitmq", "servers=h", map[string]string{
		"require & servers=localhost":                   "",
		"require & servers=amqps://a, amqps://b:5671/v": "",
		"require & servers=amqp://localhost":            "servers: ",
		"servers=http://localhost":                      "servers: ",
		"servers=amqp://a b":                            "servers: ",
		"require & tls=false":                           "tls: ",
		"password=x":                                    "username: ",
		"sasl_mechanism=EXTERNAL":                       "sasl_mechanism",
		"prefetch=65536":                                "prefetch: ",
	})
}
