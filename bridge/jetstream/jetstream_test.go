package jetstream

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"thread/bridge/adapter"
	"thread/bridge/trigger"
	"thread/engine"
	"thread/event"
)

// server is the NATS of this host. With THREAD_BRIDGE_BROKERS it must be there.
const server = "127.0.0.1:4222"

type broker struct {
	js     jetstream.JetStream
	stream string
}

func newBroker(t *testing.T) *broker {
	t.Helper()
	c, err := net.DialTimeout("tcp", server, time.Second)
	if err != nil {
		if os.Getenv("THREAD_BRIDGE_BROKERS") != "" {
			t.Fatalf("NATS must run: %v", err)
		}
		t.Skipf("NATS does not run: %v", err)
	}
	c.Close()
	nc, err := nats.Connect("nats://" + server)
	if err != nil {
		t.Fatal(err)
	}
	b := &broker{stream: fmt.Sprintf("T%d", time.Now().UnixNano())}
	if b.js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	b.create(t)
	t.Cleanup(func() {
		ctx := context.Background()
		_ = b.js.DeleteStream(ctx, b.stream) // one of them may not be there
		_ = b.js.DeleteStream(ctx, b.stream+"_dlq")
		nc.Close()
	})
	return b
}

func (b *broker) create(t *testing.T) {
	t.Helper()
	if _, err := b.js.CreateStream(context.Background(), jetstream.StreamConfig{Name: b.stream, Subjects: []string{b.stream + ".in"}, Storage: jetstream.MemoryStorage}); err != nil {
		t.Fatal(err)
	}
}

func (b *broker) send(t *testing.T, body string, headers ...string) {
	t.Helper()
	h := nats.Header{}
	for i := 0; i < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	if _, err := b.js.PublishMsg(context.Background(), &nats.Msg{Subject: b.stream + ".in", Data: []byte(body), Header: h}); err != nil {
		t.Fatal(err)
	}
}

func (b *broker) settings(name string) *adapter.Settings {
	spec, _ := adapter.Find("jetstream")
	return &adapter.Settings{Name: name, Queue: b.stream, Group: "g", Keys: spec.Keys, MaxBatch: 100,
		Connection: map[string]string{"servers": "nats://" + server, "ack_wait": "2s", "connect_timeout": "5s"}}
}

func (b *broker) pending(t *testing.T) int {
	t.Helper()
	c, err := b.js.Consumer(context.Background(), b.stream, "g")
	if err != nil {
		t.Fatal(err)
	}
	return int(c.CachedInfo().NumPending) + c.CachedInfo().NumAckPending
}

type run struct {
	t   *testing.T
	b   *broker
	th  *engine.Thread
	tr  *trigger.Trigger
	cfg trigger.Config
}

func newRun(t *testing.T, b *broker, change func(*trigger.Config)) *run {
	t.Helper()
	th, err := engine.Init(t.TempDir() + "/t")
	if err != nil {
		t.Fatal(err)
	}
	r := &run{t: t, b: b, th: th, cfg: trigger.NewConfig()}
	c := &r.cfg
	c.Name, c.Queue, c.Group, c.Adapter, c.BackoffBase = "orders", b.stream, "g", "jetstream", 0.001
	if change != nil {
		change(c)
	}
	c.Complete()
	if c.Settle == trigger.SettleHandled {
		if err := th.Subscribe(context.Background(), engine.Subscription{Consumer: c.Consumer, Handler: "true"}); err != nil {
			t.Fatal(err)
		}
	}
	r.start()
	return r
}

func (r *run) start() {
	r.t.Helper()
	var err error
	if r.tr, err = trigger.New(r.th, &source{s: r.b.settings("orders")}, r.cfg, trigger.Options{Drain: time.Second}); err != nil {
		r.t.Fatal(err)
	}
	if err := r.tr.Start(context.Background()); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = r.tr.Stop() })
}

func (r *run) until(what string, ok func() bool) {
	r.t.Helper()
	end := time.After(30 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond) // the server does not tell of acknowledgements
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-r.tr.Changed():
		case <-end:
			r.t.Fatalf("waited in vain for %s: %+v", what, r.tr.Health(context.Background()))
		}
	}
}

func (r *run) events(n int) (es []event.Event) {
	r.t.Helper()
	r.until(fmt.Sprintf("%d events", n), func() bool {
		var err error
		if es, err = r.th.Peek(context.Background(), engine.Query{}); err != nil {
			r.t.Fatal(err)
		}
		return len(es) >= n
	})
	return es
}

// Stored once each, acknowledged, and not JSON goes to a stream for the dead.
func TestStored(t *testing.T) {
	b := newBroker(t)
	b.send(t, `{"n":1}`, "X-Message-Id", "m-1", "x-event-name", "order")
	b.send(t, `{"n":2}`)
	b.send(t, `oops`)
	r := newRun(t, b, nil)
	es := r.events(2)
	r.until("the acknowledgements", func() bool { return b.pending(t) == 0 })
	if es[0].Type != "order" || es[0].Source != "jetstream:"+b.stream || !strings.Contains(es[0].Content, `"message_id":"m-1"`) ||
		!strings.Contains(es[1].Content, `"message_id":"`+b.stream+`:`) {
		t.Errorf("%v", es)
	}
	s, err := b.js.Stream(context.Background(), b.stream+"_dlq")
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.GetLastMsgForSubject(context.Background(), b.stream+".dlq")
	if err != nil || string(m.Data) != "oops" || !strings.Contains(m.Header.Get("x-dlq-reason"), "JSON") {
		t.Errorf("%v %v", m, err)
	}
}

// What was fetched by a process that died comes again, and is known by its key.
func TestRedelivered(t *testing.T) {
	b := newBroker(t)
	r := newRun(t, b, nil)
	if err := r.tr.Stop(); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		b.send(t, fmt.Sprintf(`{"n":%d}`, i))
	}
	// Stored, and never acknowledged: the acknowledgement finds no connection.
	src := &source{s: b.settings("orders")}
	tr, err := trigger.New(r.th, deaf{src}, r.cfg, trigger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	r.events(5)
	if err := tr.Stop(); err != nil {
		t.Fatal(err)
	}
	if n := b.pending(t); n != 5 {
		t.Fatalf("%d pending", n)
	}
	r.start()
	r.until("the acknowledgements", func() bool { return b.pending(t) == 0 })
	if es := r.events(5); len(es) != 5 {
		t.Errorf("%d events", len(es))
	}
	if h := r.tr.Health(context.Background()); h.DedupHits != 5 {
		t.Errorf("%+v", h)
	}
}

// deaf is a source whose acknowledgements fail.
type deaf struct{ *source }

func (deaf) Ack(context.Context, []trigger.Message) error { return fmt.Errorf("no connection") }

// A stream that was deleted and made again has other messages, though their
// sequences are the same.
func TestStreamMadeAgain(t *testing.T) {
	b := newBroker(t)
	r := newRun(t, b, nil)
	b.send(t, `{"n":1}`)
	r.events(1)
	r.until("the acknowledgement", func() bool { return b.pending(t) == 0 })
	if err := r.tr.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := b.js.DeleteStream(context.Background(), b.stream); err != nil {
		t.Fatal(err)
	}
	b.create(t)
	b.send(t, `{"n":2}`)
	r.start()
	if es := r.events(2); !strings.Contains(es[1].Content, `"n":2`) {
		t.Errorf("%v", es)
	}
}

// Handlers may take longer than ack_wait: the server is asked to wait. What fails is
// delivered again, and is the same event.
func TestHandled(t *testing.T) {
	b := newBroker(t)
	r := newRun(t, b, func(c *trigger.Config) {
		c.Settle, c.AckPolicy, c.MaxRetries = trigger.SettleHandled, trigger.PolicyRequeue, 0
	})
	b.send(t, `{}`)
	r.events(1)
	time.Sleep(3 * time.Second) // longer than ack_wait: time itself is what is tested
	if h := r.tr.Health(context.Background()); h.DedupHits != 0 {
		t.Errorf("delivered again: %+v", h)
	}
	feed := r.th.Feed("orders", r.cfg.Policy())
	for _, v := range []engine.Verdict{engine.Failed, engine.Succeeded} {
		r.until("a delivery", func() bool {
			d, err := feed.Next(context.Background(), nil)
			if err != nil {
				t.Fatal(err)
			}
			return len(d.Events) == 1
		})
		if _, err := feed.Settle(context.Background(), engine.Result{Verdict: v, Error: "boom"}); err != nil {
			t.Fatal(err)
		}
	}
	r.until("the acknowledgement", func() bool { return b.pending(t) == 0 })
	if es := r.events(1); len(es) != 1 || r.tr.Health(context.Background()).Processed != 1 {
		t.Errorf("%v %+v", es, r.tr.Health(context.Background()))
	}
}

// What the stream has of ours is read back, so that nothing is published twice, also
// by a process that has lost its progress.
func TestPublish(t *testing.T) {
	b := newBroker(t)
	ctx := context.Background()
	th, err := engine.Init(t.TempDir() + "/t")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		if _, err := th.Push(ctx, event.Draft{Source: "s", Type: "a", Content: fmt.Sprintf(`{"n":%d}`, i)}); err != nil {
			t.Fatal(err)
		}
	}
	id, err := trigger.Identity(ctx, th)
	if err != nil {
		t.Fatal(err)
	}
	publish := func() int64 {
		t.Helper()
		conf := trigger.NewPublishConfig()
		conf.Name, conf.Queue = "out", b.stream+".in"
		s := b.settings("out")
		s.Queue, s.Instance = conf.Queue, "thread-"+id
		k := &sink{s: s}
		defer k.Close()
		p, err := trigger.NewPublisher(ctx, th, k, conf, nil)
		if err != nil {
			t.Fatal(err)
		}
		run, stop := context.WithCancel(ctx)
		p.OnIdle = stop
		if err := p.Run(run); err != nil {
			t.Fatal(err)
		}
		return p.Published
	}
	if n := publish(); n != 5 {
		t.Errorf("%d published", n)
	}
	if err := th.Seek(ctx, "out", 0); err != nil {
		t.Fatal(err)
	}
	if n := publish(); n != 0 {
		t.Errorf("%d published twice", n)
	}
	s, err := b.js.Stream(ctx, b.stream)
	if err != nil || s.CachedInfo().State.Msgs != 5 {
		t.Errorf("%+v %v", s.CachedInfo().State, err)
	}
}

func TestConnectRefused(t *testing.T) {
	s := (&broker{stream: "X"}).settings("x")
	s.Connection["servers"] = "nats://user:hunter2@127.0.0.1:1"
	err := (&source{s: s}).Connect(context.Background(), trigger.NoState)
	if err == nil || strings.Contains(trigger.Redact(err.Error()), "hunter2") {
		t.Error(err)
	}
}
