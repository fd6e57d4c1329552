package kafka

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"thread/bridge/adapter"
	"thread/bridge/internal/brokertest"
	"thread/bridge/trigger"
	"thread/engine"
	"thread/event"
)

func broker(t *testing.T, o ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(2, "orders"), kfake.AllowAutoTopicCreation()}, o...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func settings(c *kfake.Cluster) *adapter.Settings {
	spec, err := adapter.Find("kafka")
	if err != nil {
		panic(err)
	}
	return &adapter.Settings{Name: "orders", Queue: "orders", Group: "g", Concurrency: 1, MaxBatch: 100, Keys: spec.Keys,
		Connection: map[string]string{"brokers": strings.Join(c.ListenAddrs(), ","), "connect_timeout": "10s"}}
}

func client(t *testing.T, c *kfake.Cluster, o ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(c.ListenAddrs()...), kgo.AllowAutoTopicCreation()}, o...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func produce(t *testing.T, cl *kgo.Client, rs ...*kgo.Record) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := cl.ProduceSync(ctx, rs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func record(key, body string, headers ...string) *kgo.Record {
	r := &kgo.Record{Topic: "orders", Key: []byte(key), Value: []byte(body)}
	for i := 0; i < len(headers); i += 2 {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: headers[i], Value: []byte(headers[i+1])})
	}
	return r
}

// read returns the committed messages of a topic, at least n.
func read(t *testing.T, c *kfake.Cluster, topic string, n int) (rs []*kgo.Record) {
	t.Helper()
	cl := client(t, c, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for len(rs) < n {
		cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) { rs = append(rs, r) })
		if ctx.Err() != nil {
			t.Fatalf("%s has %d messages, want %d", topic, len(rs), n)
		}
	}
	return rs
}

type run struct{ *brokertest.Intake }

func runOn(t *testing.T, th *engine.Thread) *run {
	return &run{&brokertest.Intake{T: t, Thread: th, Options: trigger.Options{Drain: 5 * time.Second}, Patience: 30 * time.Second}}
}

func start(t *testing.T, s *adapter.Settings, change func(*trigger.Config)) *run {
	t.Helper()
	th, err := engine.OpenOrCreate(t.TempDir() + "/t")
	if err != nil {
		t.Fatal(err)
	}
	r := runOn(t, th)
	r.again(s, change)
	return r
}

func (r *run) again(s *adapter.Settings, change func(*trigger.Config)) {
	r.T.Helper()
	r.Configure(func(c *trigger.Config) {
		c.Name, c.Queue, c.Group, c.Adapter = s.Name, s.Queue, s.Group, "kafka"
		if change != nil {
			change(c)
		}
	})
	src, err := newSource(s)
	if err != nil {
		r.T.Fatal(err)
	}
	r.Start(src)
}

func committed(t *testing.T, c *kfake.Cluster, group string) (total int64) {
	t.Helper()
	os, err := kadm.NewClient(client(t, c)).FetchOffsets(context.Background(), group)
	if err != nil {
		t.Fatal(err)
	}
	os.Each(func(o kadm.OffsetResponse) { total += max(0, o.At) })
	return total
}

// Q-26, cases 35, 41, 42 and 85: header, else position; the offset behind the message
// is committed; what is not JSON goes to the dead letter queue.
func TestStored(t *testing.T) {
	c := broker(t)
	cl := client(t, c)
	produce(t, cl, record("k", `{"n":1}`, "X-Message-Id", "m-1", "x-event-name", "order"), record("k", `{"n":2}`), record("k", `oops`, "x-message-id", "m-3"))
	r := start(t, settings(c), nil)
	es := r.Events(2)
	dead := read(t, c, "orders.dlq", 1)
	r.Until("the commit", func() bool { return committed(t, c, "g") == 3 })
	if err := r.Tr.Stop(); err != nil {
		t.Fatal(err)
	}
	var first, second struct {
		MessageID string `json:"message_id"`
		Message   map[string]int
	}
	if json.Unmarshal([]byte(es[0].Content), &first) != nil || json.Unmarshal([]byte(es[1].Content), &second) != nil {
		t.Fatal(es)
	}
	if es[0].Source != "kafka:orders" || es[0].Type != "order" || first.MessageID != "m-1" || second.MessageID[:7] != "orders:" || second.MessageID[len(second.MessageID)-2:] != ":1" || second.Message["n"] != 2 {
		t.Errorf("%v", es)
	}
	h := headersOf(dead[0])
	if h["x-message-id"] != "m-3" || !strings.Contains(h["x-dlq-reason"], "JSON") || string(dead[0].Value) != "oops" || string(dead[0].Key) != "k" {
		t.Errorf("%v", h)
	}
}

// Positions count, not commits: a group that has forgotten all doubles nothing.
func TestPositionsInThread(t *testing.T) {
	c := broker(t)
	cl := client(t, c)
	r := start(t, settings(c), nil)
	produce(t, cl, record("a", `{}`), record("b", `{}`), record("c", `{}`))
	r.Events(3)
	if err := r.Tr.Stop(); err != nil {
		t.Fatal(err)
	}
	s := settings(c)
	if rs, err := kadm.NewClient(cl).DeleteGroups(context.Background(), "g"); err != nil || rs.Error() != nil {
		t.Fatal(err, rs.Error())
	}
	r.again(s, nil)
	produce(t, cl, record("a", `{"last":1}`))
	if es := r.Events(4); len(es) != 4 {
		t.Errorf("%d events", len(es))
	}
}

// A topic that was deleted and made again begins again, though its offsets are small.
func TestTopicMadeAgain(t *testing.T) {
	c := broker(t)
	cl := client(t, c)
	admin := kadm.NewClient(cl)
	r := start(t, settings(c), nil)
	for range 5 {
		produce(t, cl, record("a", `{}`))
	}
	r.Events(5)
	if err := r.Tr.Stop(); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if _, err := admin.DeleteTopics(ctx, "orders"); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CreateTopics(ctx, 2, 1, nil, "orders"); err != nil {
		t.Fatal(err)
	}
	produce(t, client(t, c), record("a", `{"new":1}`), record("a", `{"new":2}`))
	r.again(settings(c), nil)
	if es := r.Events(7); !strings.Contains(es[6].Content, `"new":2`) {
		t.Errorf("%v", es)
	}
}

// Case 42: what a message has stands in its event, whatever it is.
func TestPropertyFieldsPreserved(t *testing.T) {
	c := broker(t, kfake.SeedTopics(1, "orders"))
	cl := client(t, c)
	r := start(t, settings(c), func(c *trigger.Config) { c.Parser = "binary" })
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		body, key := rapid.SliceOf(rapid.Byte()).Draw(rt, "body"), rapid.String().Draw(rt, "key")
		headers := rapid.MapOfN(rapid.StringMatching(`h-[a-z]{1,5}`), rapid.String(), 0, 4).Draw(rt, "headers")
		rec := &kgo.Record{Topic: "orders", Key: []byte(key), Value: body}
		var want []string
		for _, name := range adapter.Sorted(headers) {
			rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: name, Value: []byte(headers[name])})
			want = append(want, name)
		}
		produce(t, cl, rec)
		n++
		e := r.Events(n)[n-1]
		var got struct {
			Message   []byte
			Key       string
			Headers   map[string]string
			MessageID string `json:"message_id"`
			Source    string
		}
		if err := json.Unmarshal([]byte(e.Content), &got); err != nil {
			rt.Fatal(err)
		}
		if string(got.Message) != string(body) || got.Key != key || got.Source != "orders" || got.MessageID != fmt.Sprintf("orders:0:%d", rec.Offset) || !slices.Equal(adapter.Sorted(got.Headers), want) {
			rt.Errorf("%+v of %q %q %v", got, body, key, headers)
		}
		for name, v := range headers {
			if got.Headers[name] != v {
				rt.Errorf("%s is %q, not %q", name, got.Headers[name], v)
			}
		}
	})
}

// Q-28, case 36: a requeued message is one copy with its id, and revives its event.
func TestRequeue(t *testing.T) {
	c := broker(t)
	produce(t, client(t, c), record("k", `{}`))
	r := start(t, settings(c), func(c *trigger.Config) {
		c.Settle, c.AckPolicy, c.MaxRetries, c.DeliveryLimit = trigger.SettleHandled, trigger.PolicyRequeue, 0, 3
	})
	r.Events(1)
	feed := r.Thread.Feed("orders", r.Config.Policy())
	defer feed.Close()
	for range 3 {
		var d engine.Delivery
		r.Until("a delivery", func() bool {
			var err error
			if d, err = feed.Next(context.Background(), nil); err != nil {
				t.Fatal(err)
			}
			return len(d.Events) == 1
		})
		if _, err := feed.Settle(context.Background(), engine.Result{Verdict: engine.Failed, Error: "boom"}); err != nil {
			t.Fatal(err)
		}
	}
	dead := read(t, c, "orders.dlq", 1)
	r.Until("the commit", func() bool { return committed(t, c, "g") == 3 })
	if err := r.Tr.Stop(); err != nil {
		t.Fatal(err)
	}
	if es := r.Events(1); len(es) != 1 || headersOf(dead[0])["x-dlq-deliveries"] != "3" || headersOf(dead[0])["x-dlq-last-error"] != "boom" {
		t.Errorf("%v %v", es, headersOf(dead[0]))
	}
	copies := read(t, c, "orders", 3)
	id := headersOf(copies[1])["x-message-id"]
	if len(copies) != 3 || !strings.HasPrefix(id, "orders:") || headersOf(copies[2])["x-message-id"] != id {
		t.Errorf("%v", copies)
	}
}

// what waits for its handler holds the commit back, whatever comes after it.
func TestContiguousCommit(t *testing.T) {
	c := broker(t, kfake.SeedTopics(1, "single"))
	s := settings(c)
	s.Queue = "single"
	cl := client(t, c)
	for i := range 4 {
		produce(t, cl, &kgo.Record{Topic: "single", Value: fmt.Appendf(nil, `{"n":%d}`, i), Headers: []kgo.RecordHeader{{Key: "x-event-name", Value: []byte([]string{"skip", "work", "skip", "skip"}[i])}}})
	}
	th, err := engine.Init(t.TempDir() + "/t")
	if err != nil {
		t.Fatal(err)
	}
	// Events that the consumer's filter does not select are through at once.
	if err := th.Subscribe(context.Background(), engine.Subscription{Consumer: "orders", Handler: "true", Filter: event.Text("type = 'work'")}); err != nil {
		t.Fatal(err)
	}
	r := runOn(t, th)
	handled := func(c *trigger.Config) { c.Settle = trigger.SettleHandled }
	r.again(s, handled)
	r.Events(4)
	r.Until("the first commit", func() bool { return committed(t, c, "g") == 1 })
	if n := r.Tr.Health(context.Background()).Processed; n != 3 {
		t.Errorf("%d processed", n)
	}
	if err := th.Ack(context.Background(), "orders", 2); err != nil {
		t.Fatal(err)
	}
	r.Until("all commits", func() bool { return committed(t, c, "g") == 4 })
}

// Q-26, case 39: no broker.
func TestConnectTimeout(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // it accepts and says nothing
	spec, _ := adapter.Find("kafka")
	s := &adapter.Settings{Name: "x", Queue: "q", Group: "g", Keys: spec.Keys, Connection: map[string]string{"brokers": l.Addr().String(), "connect_timeout": "300ms"}}
	src, _ := newSource(s)
	if err := src.Connect(context.Background(), trigger.NoState); err == nil || !strings.Contains(err.Error(), "consumer failed to start within 300ms") {
		t.Error(err)
	}
	k, _ := newSink(s)
	if _, err := k.Connect(context.Background()); err == nil || !strings.Contains(err.Error(), "producer failed to start within 300ms") || k.cl != nil {
		t.Error(err)
	}
}

// Case 37.
func TestHealthAndClose(t *testing.T) {
	c := broker(t)
	src, _ := newSource(settings(c))
	ctx := context.Background()
	if err := src.Connect(ctx, trigger.NoState); err != nil {
		t.Fatal(err)
	}
	if h := src.Health(ctx); !h.OK {
		t.Error(h)
	}
	if err := src.Close(); err != nil || src.Health(ctx).OK {
		t.Error(err)
	}
}

func TestSASL(t *testing.T) {
	c := broker(t, kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", "u", "right"))
	s := settings(c)
	s.Connection["sasl_mechanism"], s.Connection["sasl_username"], s.Connection["sasl_password"] = "SCRAM-SHA-256", "u", "right"
	src, _ := newSource(s)
	if err := src.Connect(context.Background(), trigger.NoState); err != nil {
		t.Fatal(err)
	}
	src.Close()
	s.Connection["sasl_password"], s.Connection["connect_timeout"] = "wrong", "500ms"
	if err := src.Connect(context.Background(), trigger.NoState); err == nil || strings.Contains(err.Error(), "wrong") {
		t.Error(err)
	}
}

// Cases 86 and 87, and the transaction of the sink: what was published before is not
// published again, even by a process that has lost its progress.
func TestPublish(t *testing.T) {
	c := broker(t)
	th, err := engine.Init(t.TempDir() + "/t")
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	for i := range 10 {
		if _, err := th.Push(ctx, event.Draft{Source: "s", Type: []string{"a", "b"}[i%2], Content: fmt.Sprintf(`{"n":%d}`, i)}); err != nil {
			t.Fatal(err)
		}
	}
	publish := func(change func(*trigger.PublishConfig)) *trigger.Publisher {
		t.Helper()
		conf := trigger.NewPublishConfig()
		conf.Name, conf.Queue, conf.Filter, conf.Key, conf.MaxBatch = "out", "outbound", "type = 'a'", "string(message.n)", 2
		conf.Headers = map[string]string{"x-source": "source", "x-n": "message.n"}
		if change != nil {
			change(&conf)
		}
		s := settings(c)
		s.Queue, s.Group = conf.Queue, "thread-1-"+conf.Name
		sink, err := newSink(s)
		if err != nil {
			t.Fatal(err)
		}
		p, err := trigger.NewPublisher(ctx, th, sink, conf, nil)
		if err != nil {
			t.Fatal(err)
		}
		run, stop := context.WithCancel(ctx)
		p.OnIdle = stop
		if err := p.Run(run); err != nil {
			t.Fatal(err)
		}
		if err := sink.Close(); err != nil {
			t.Fatal(err)
		}
		return p
	}
	if p := publish(func(c *trigger.PublishConfig) { c.Name, c.Shadow = "shadow", true }); p.Shadowed != 5 || p.Published != 0 {
		t.Errorf("shadow: %+v", p)
	}
	if p := publish(nil); p.Published != 5 {
		t.Errorf("%d published", p.Published)
	}
	rs := read(t, c, "outbound", 5)
	slices.SortFunc(rs, func(a, b *kgo.Record) int { return strings.Compare(string(a.Key), string(b.Key)) })
	h := headersOf(rs[1])
	if len(rs) != 5 || string(rs[1].Value) != `{"n":2}` || h["x-source"] != "s" || h["x-n"] != "2" || h["x-event-name"] != "a" || !strings.HasSuffix(h["x-message-id"], ":3") {
		t.Errorf("%v %v", rs[1], h)
	}
	if err := th.Seek(ctx, "out", 0); err != nil {
		t.Fatal(err)
	}
	if p := publish(nil); p.Published != 0 {
		t.Errorf("%d published twice", p.Published)
	}
	if _, err := th.Push(ctx, event.Draft{Source: "s", Type: "a", Content: `{"n":99}`}); err != nil {
		t.Fatal(err)
	}
	if p := publish(nil); p.Published != 1 {
		t.Errorf("%d published", p.Published)
	}
}

// A client that is not ours writes, and reads the dead letter queue.
func TestForeignClient(t *testing.T) {
	kcat, err := exec.LookPath("kcat")
	if err != nil {
		t.Skip("kcat is not installed")
	}
	c := broker(t)
	r := start(t, settings(c), nil)
	addr := c.ListenAddrs()[0]
	in := exec.Command(kcat, "-P", "-b", addr, "-t", "orders", "-k", "key", "-H", "x-message-id=from-kcat")
	in.Stdin = strings.NewReader("{\"a\":1}\nnot json\n")
	if out, err := in.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if es := r.Events(1); !strings.Contains(es[0].Content, `"message_id":"from-kcat"`) || !strings.Contains(es[0].Content, `"message":{"a":1}`) {
		t.Errorf("%v", es)
	}
	r.Until("the dead letter", func() bool {
		out, err := exec.Command(kcat, "-C", "-b", addr, "-t", "orders.dlq", "-o", "beginning", "-e", "-q", "-f", "%h %s\n").Output()
		return err == nil && strings.Contains(string(out), "x-dlq-reason=") && strings.Contains(string(out), "not json")
	})
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		conn map[string]string
		want string
	}{
		{map[string]string{"tls": "false"}, "tls"}, {map[string]string{"security_protocol": "PLAINTEXT"}, "security_protocol"},
		{map[string]string{"sasl_username": "u"}, "sasl_username"}, {map[string]string{}, ""},
	} {
		got := check(&adapter.Settings{RequireTLS: true, Connection: c.conn})
		if (len(got) > 0) != (c.want != "") || c.want != "" && got[0].Key != c.want {
			t.Errorf("%v: %v", c.conn, got)
		}
	}
	if _, err := adapter.Find("nosuch"); err == nil || errors.As(err, new(*adapter.NotInBuildError)) || !strings.Contains(err.Error(), "supported are jetstream, kafka, mock") {
		t.Error(err)
	}
}

func TestProbeDLQ(t *testing.T) {
	src, err := newSource(settings(broker(t)))
	if err != nil {
		t.Fatal(err)
	}
	brokertest.Probe(t, src)
}
