package jetstream

import (
	"cmp"
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
	"thread/bridge/internal/brokertest"
	"thread/bridge/trigger"
	"thread/engine"
	"thread/event"
)

// server is the NATS of this host. With THREAD_BRIDGE_BROKERS it must be there.
const server = "127.0.0.1:4222"

type broker struct {
	js      jetstream.JetStream
	stream  string
	ackWait string // "": 2s
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
		Connection: map[string]string{"servers": "nats://" + server, "ack_wait": cmp.Or(b.ackWait, "2s"), "connect_timeout": "5s"}}
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
	*brokertest.Intake
	b *broker
}

func newRun(t *testing.T, b *broker, change func(*trigger.Config)) *run {
	t.Helper()
	r := &run{b: b, Intake: brokertest.NewIntake(t, func(c *trigger.Config) {
		c.Name, c.Queue, c.Group, c.Adapter = "orders", b.stream, "g", "jetstream"
		if change != nil {
			change(c)
		}
	})}
	r.start()
	return r
}

func (r *run) start() {
	r.T.Helper()
	r.Start(&source{s: r.b.settings("orders")})
}

// Stored once each, acknowledged, and not JSON goes to a stream for the dead.
func TestStored(t *testing.T) {
	b := newBroker(t)
	b.send(t, `{"n":1}`, "X-Message-Id", "m-1", "x-event-name", "order")
	b.send(t, `{"n":2}`)
	b.send(t, `oops`)
	r := newRun(t, b, nil)
	es := r.Events(2)
	r.Until("the acknowledgements", func() bool { return b.pending(t) == 0 })
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

// Proof 5: what was fetched by a process that died is redelivered, and is known by its
// key, though that was down for longer than the idempotency window.
func TestRedelivered(t *testing.T) {
	b := newBroker(t)
	r := newRun(t, b, func(c *trigger.Config) { c.Window = 1 })
	if err := r.Tr.Stop(); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		b.send(t, fmt.Sprintf(`{"n":%d}`, i))
	}
	// Stored, and never acknowledged: the acknowledgement finds no connection.
	src := &source{s: b.settings("orders")}
	tr, err := trigger.New(r.Thread, deaf{src}, r.Config, trigger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	r.Events(5)
	if err := tr.Stop(); err != nil {
		t.Fatal(err)
	}
	if n := b.pending(t); n != 5 {
		t.Fatalf("%d pending", n)
	}
	r.Options.Now = func() time.Time { return time.Now().Add(1000 * time.Hour) }
	r.start()
	r.Until("the acknowledgements", func() bool { return b.pending(t) == 0 })
	if es := r.Events(5); len(es) != 5 {
		t.Errorf("%d events", len(es))
	}
	if h := r.Tr.Health(context.Background()); h.DedupHits < 5 { // more where the server was quicker than the acknowledgement
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
	r.Events(1)
	r.Until("the acknowledgement", func() bool { return b.pending(t) == 0 })
	if err := r.Tr.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := b.js.DeleteStream(context.Background(), b.stream); err != nil {
		t.Fatal(err)
	}
	b.create(t)
	b.send(t, `{"n":2}`)
	r.start()
	if es := r.Events(2); !strings.Contains(es[1].Content, `"n":2`) {
		t.Errorf("%v", es)
	}
}

// Handlers may take longer than ack_wait: the server is asked to wait. What fails is
// delivered again, and is the same event.
func TestHandled(t *testing.T) {
	b := newBroker(t)
	b.ackWait = "6s" // on a busy host a process may stand still for seconds
	r := newRun(t, b, func(c *trigger.Config) {
		c.Settle, c.AckPolicy, c.MaxRetries = trigger.SettleHandled, trigger.PolicyRequeue, 0
	})
	b.send(t, `{}`)
	r.Events(1)
	time.Sleep(8 * time.Second) // longer than ack_wait: time itself is what is tested
	if h := r.Tr.Health(context.Background()); h.DedupHits != 0 {
		t.Errorf("delivered again: %+v", h)
	}
	feed := r.Thread.Feed("orders", r.Config.Policy())
	defer feed.Close()
	for _, v := range []engine.Verdict{engine.Failed, engine.Succeeded} {
		r.Until("a delivery", func() bool {
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
	r.Until("the acknowledgement", func() bool { return b.pending(t) == 0 })
	if es := r.Events(1); len(es) != 1 || r.Tr.Health(context.Background()).Processed != 1 {
		t.Errorf("%v %+v", es, r.Tr.Health(context.Background()))
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

// What is larger than the stream for the dead takes goes there with its beginning, and
// what comes behind it is stored.
func TestTooLargeToBury(t *testing.T) {
	b := newBroker(t)
	if _, err := b.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: b.stream + "_dlq", Subjects: []string{b.stream + ".dlq"}, MaxMsgSize: 100_000, Storage: jetstream.MemoryStorage}); err != nil {
		t.Fatal(err)
	}
	r := newRun(t, b, nil)
	for _, size := range []int{200_000, 1<<20 - 10} { // the stream refuses it; with more headers the server does
		b.send(t, strings.Repeat("x", size))
	}
	b.send(t, `{"n":1}`)
	r.Events(1)
	r.Until("the acknowledgements", func() bool { return b.pending(t) == 0 })
	s, err := b.js.Stream(t.Context(), b.stream+"_dlq")
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.GetLastMsgForSubject(t.Context(), b.stream+".dlq")
	if err != nil || len(m.Data) != 64<<10 || m.Header.Get("x-dlq-body-bytes") != fmt.Sprint(1<<20-10) || m.Sequence != 2 {
		t.Errorf("%v %v", m, err)
	}
}

func TestProbeDLQ(t *testing.T) {
	b := newBroker(t)
	brokertest.Probe(t, &source{s: b.settings("probe")})
	if _, err := b.js.UpdateStream(t.Context(), jetstream.StreamConfig{Name: b.stream + "_dlq", Subjects: []string{b.stream + ".dlq"}, MaxMsgs: 1, Discard: jetstream.DiscardNew}); err != nil {
		t.Fatal(err)
	}
	src := &source{s: b.settings("probe")}
	defer src.Close()
	if err := src.Connect(t.Context(), trigger.NoState); err != nil {
		t.Fatal(err)
	}
	if _, err := src.ProbeDLQ(t.Context()); err == nil || !strings.Contains(err.Error(), "is full or sealed") {
		t.Error(err)
	}
}
