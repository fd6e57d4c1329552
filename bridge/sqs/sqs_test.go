package sqs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"pgregory.net/rapid"

	"thread/bridge/adapter"
	"thread/bridge/internal/brokertest"
	"thread/bridge/internal/sqsserver"
	"thread/bridge/trigger"
	"thread/engine"
	"thread/event"
)

type broker struct {
	*sqsserver.Server
	t     *testing.T
	c     *sqs.Client
	queue string

	visibility string // "": 1s
}

func newBroker(t *testing.T, queue string, attributes map[string]string) *broker {
	t.Helper()
	b := &broker{Server: sqsserver.New(t), t: t, queue: queue}
	var err error
	if b.c, err = newClient(b.settings()); err != nil {
		t.Fatal(err)
	}
	b.create(queue, attributes)
	return b
}

func (b *broker) create(queue string, attributes map[string]string) {
	b.t.Helper()
	a := map[string]string{}
	maps.Copy(a, attributes)
	if isFIFO(queue) {
		a["FifoQueue"] = "true"
	}
	if _, err := b.c.CreateQueue(context.Background(), &sqs.CreateQueueInput{QueueName: &queue, Attributes: a}); err != nil {
		b.t.Fatal(err)
	}
}

func (b *broker) settings() *adapter.Settings {
	spec, _ := adapter.Find("sqs")
	return &adapter.Settings{Name: "orders", Queue: b.queue, Group: "g", Keys: spec.Keys, MaxBatch: 100,
		Connection: map[string]string{"region": sqsserver.Region, "endpoint": b.URL, "access_key_id": sqsserver.AccessKey, "secret_access_key": sqsserver.SecretKey, "visibility_timeout": cmp.Or(b.visibility, "1s")}}
}

func (b *broker) send(key, body string, headers ...string) {
	b.t.Helper()
	h := map[string]string{}
	for i := 0; i < len(headers); i += 2 {
		h[headers[i]] = headers[i+1]
	}
	if _, err := (&sink{s: b.settings()}).Send(context.Background(), trigger.Message{ID: fmt.Sprint(time.Now().UnixNano()), Key: key, Body: []byte(body), Headers: h}); err != nil {
		b.t.Fatal(err)
	}
}

// left is how many messages the queue has.
func (b *broker) left(queue string) int {
	b.t.Helper()
	url, err := find(context.Background(), b.c, queue)
	if err != nil {
		return -1
	}
	out, err := b.c.GetQueueAttributes(context.Background(), &sqs.GetQueueAttributesInput{QueueUrl: &url})
	if err != nil {
		b.t.Fatal(err)
	}
	n, m := 0, 0
	fmt.Sscan(out.Attributes["ApproximateNumberOfMessages"], &n)
	fmt.Sscan(out.Attributes["ApproximateNumberOfMessagesNotVisible"], &m)
	return n + m
}

func (b *broker) receive(queue string) []trigger.Message {
	b.t.Helper()
	url, err := find(context.Background(), b.c, queue)
	if err != nil {
		b.t.Fatal(err)
	}
	out, err := b.c.ReceiveMessage(context.Background(), &sqs.ReceiveMessageInput{QueueUrl: &url, MaxNumberOfMessages: 10, MessageAttributeNames: []string{"All"}, MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll}})
	if err != nil {
		b.t.Fatal(err)
	}
	var ms []trigger.Message
	for i := range out.Messages {
		ms = append(ms, message(&out.Messages[i]))
	}
	return ms
}

type run struct {
	*brokertest.Intake
	b *broker
}

func newRun(b *broker, change func(*trigger.Config)) *run {
	b.t.Helper()
	r := &run{b: b, Intake: brokertest.NewIntake(b.t, func(c *trigger.Config) {
		c.Name, c.Queue, c.Group, c.Adapter = "orders", b.queue, "g", "sqs"
		if change != nil {
			change(c)
		}
	})}
	r.Start(r.source())
	return r
}

func (r *run) source() *source {
	s := r.b.settings()
	s.Handled = r.Config.Settle == trigger.SettleHandled
	return newSource(s)
}

// Stored once each, deleted, and what is not JSON goes to a queue for the dead, which
// is made.
//
func TestStored(t *testing.T) {
	for _, queue := range []string{"orders", "orders.fifo"} {
		b := newBroker(t, queue, nil)
		key := ""
		if isFIFO(queue) {
			key = "k 1" // not a group id as it is
		}
		r := newRun(b, nil)
		b.send(key, `{"n":1}`, "X-Message-Id", "m-1", "x-event-name", "order")
		b.send(key, `oops`, "a", "b")
		b.send(key, `{"n":2}`)
		es := r.Events(2)
		r.Until("the deletions", func() bool { return b.left(queue) == 0 })
		if es[0].Type != "order" || es[0].Source != "sqs:"+queue || !strings.Contains(es[0].Content, `"message_id":"m-1"`) {
			t.Errorf("%v", es)
		}
		dlq := strings.Replace("orders-dlq"+queue[len("orders"):], "..", ".", 1)
		dead := b.receive(dlq)
		if len(dead) != 1 || string(dead[0].Body) != "oops" || !strings.Contains(dead[0].Headers["x-dlq-reason"], "JSON") || dead[0].Headers["x-dlq-deliveries"] != "1" || dead[0].Headers["a"] != "b" {
			t.Errorf("%s: %+v", queue, dead)
		}
		if n, err := (&source{}).Lag(context.Background()); n != 0 || !errors.Is(err, trigger.ErrNotKnown) {
			t.Error(n, err)
		}
		r.Stop()
	}
}

// deaf is a source whose deletions fail.
type deaf struct{ *source }

func (deaf) Ack(context.Context, []trigger.Message) error { return errors.New("no network") }

// Stored and never deleted: it is redelivered, however long after, and is known.
func TestRedelivered(t *testing.T) {
	b := newBroker(t, "orders", nil)
	r := newRun(b, func(c *trigger.Config) { c.Window = 0.001 })
	r.Stop()
	r.Start(deaf{r.source()})
	for i := range 25 {
		b.send("", fmt.Sprintf(`{"n":%d}`, i))
	}
	r.Events(25)
	r.Stop()
	if n := b.left("orders"); n != 25 {
		t.Fatalf("%d left", n)
	}
	b.Advance(time.Hour)
	r.Start(r.source())
	r.Until("the deletions", func() bool { return b.left("orders") == 0 })
	if es := r.Events(25); len(es) != 25 || r.Tr.Health(context.Background()).DedupHits != 25 {
		t.Errorf("%d events, %+v", len(es), r.Tr.Health(context.Background()))
	}
}

// A handler may take longer than the visibility timeout. What has failed is visible
// again at once and is the same event, and nothing of its group overtakes it.
func TestHandledInGroups(t *testing.T) {
	b := newBroker(t, "orders.fifo", nil)
	b.visibility = "5s" // on a busy host a process may stand still for seconds
	r := newRun(b, func(c *trigger.Config) {
		c.Settle, c.AckPolicy, c.MaxRetries = trigger.SettleHandled, trigger.PolicyRequeue, 0
	})
	for i := range 3 {
		b.send("a", fmt.Sprintf(`{"a":%d}`, i))
	}
	b.send("b", `{"b":0}`)
	if es := r.Events(2); len(es) != 2 {
		t.Fatalf("%v", es)
	}
	kept := b.Count("ChangeMessageVisibilityBatch")
	r.Until("heartbeats", func() bool { return b.Count("ChangeMessageVisibilityBatch") >= kept+4 }) // 10 s
	if h := r.Tr.Health(context.Background()); h.DedupHits != 0 {
		t.Errorf("delivered again: %+v", h)
	}
	feed := r.Thread.Feed("orders", r.Config.Policy())
	defer feed.Close()
	failed := false
	var order []string
	for len(order) < 5 {
		var d engine.Delivery
		r.Until("a delivery", func() bool {
			var err error
			if d, err = feed.Next(context.Background(), nil); err != nil {
				t.Fatal(err)
			}
			return len(d.Events) == 1
		})
		body, _, _ := strings.Cut(strings.TrimPrefix(d.Events[0].Content, `{"message":`), ",")
		v := engine.Succeeded
		if !failed && body == `{"a":0}` {
			v, failed, body = engine.Failed, true, "failed"
		}
		order = append(order, body)
		if _, err := feed.Settle(context.Background(), engine.Result{Verdict: v, Error: "boom"}); err != nil {
			t.Fatal(err)
		}
	}
	r.Until("the deletions", func() bool { return b.left("orders.fifo") == 0 })
	a := slices.DeleteFunc(slices.Clone(order), func(s string) bool { return strings.HasPrefix(s, `{"b"`) })
	if !slices.Equal(a, []string{"failed", `{"a":0}`, `{"a":1}`, `{"a":2}`}) {
		t.Errorf("%v", order)
	}
	if es := r.Events(4); len(es) != 4 {
		t.Errorf("%v", es)
	}
}

// What is refused goes where the redrive policy says.
func TestNack(t *testing.T) {
	b := newBroker(t, "orders", map[string]string{"RedrivePolicy": `{"deadLetterTargetArn":"arn:aws:sqs:eu-central-1:123456789012:graves","maxReceiveCount":"5"}`})
	b.create("graves", nil)
	r := newRun(b, func(c *trigger.Config) { c.AckPolicy, c.Governance.Filter = trigger.PolicyNack, "type <> 'bad'" })
	b.send("", `{"n":1}`, "x-event-name", "bad")
	r.Until("the move", func() bool { return b.left("orders") == 0 && b.left("graves") == 1 })
}

// The server itself takes what is received too often.
//
func TestServerRedrives(t *testing.T) {
	b := newBroker(t, "orders", map[string]string{"RedrivePolicy": `{"deadLetterTargetArn":"x:graves","maxReceiveCount":"2"}`})
	b.create("graves", nil)
	b.send("", `{}`)
	for i := range 3 {
		if n := len(b.receive("orders")); (n == 1) != (i < 2) {
			t.Errorf("receive %d: %d", i, n)
		}
		b.Advance(time.Minute)
	}
	if n := b.left("graves"); n != 1 {
		t.Errorf("%d", n)
	}
}

// Out, in order within a group, and what is sent again within 5 minutes is dropped by
// FIFO queues. One that is too large for a batch goes alone.
func TestPublish(t *testing.T) {
	for queue, doubled := range map[string]int{"out.fifo": 0, "out": 25} {
		b := newBroker(t, queue, nil)
		ctx := context.Background()
		th, err := engine.Init(t.TempDir() + "/t")
		if err != nil {
			t.Fatal(err)
		}
		for i := range 25 {
			content := fmt.Sprintf(`{"n":%d}`, i)
			if i == 7 {
				content = strings.Repeat("x", 200<<10)
			}
			if _, err := th.Push(ctx, event.Draft{Source: "s", Type: "a", Content: content}); err != nil {
				t.Fatal(err)
			}
		}
		publish := func() {
			conf := trigger.NewPublishConfig()
			conf.Name, conf.Queue = "out", b.queue
			k := &sink{s: b.settings()}
			defer k.Close()
			p, err := trigger.NewPublisher(ctx, th, k, conf, nil)
			if err != nil {
				t.Fatal(err)
			}
			life, stop := context.WithCancel(ctx)
			p.OnIdle = stop
			if err := p.Run(life); err != nil || p.Published != 25 {
				t.Fatal(err, p.Published)
			}
		}
		b.FailNext("SendMessageBatch")
		publish()
		if n := b.left(b.queue); n != 25 {
			t.Errorf("%d messages", n)
		}
		if err := th.Seek(ctx, "out", 0); err != nil {
			t.Fatal(err)
		}
		publish()
		if n := b.left(b.queue); n != 25+doubled {
			t.Errorf("%s: %d messages", queue, n)
		}
	}
}

// pack and unpack give back what came, whatever it is, within what SQS takes.
func TestPack(t *testing.T) {
	name := rapid.OneOf(rapid.StringMatching(`[a-zA-Z0-9_.-]{1,8}`), rapid.String(), rapid.SampledFrom(first), rapid.SampledFrom([]string{"AWS.x", "a..b", "."}))
	rapid.Check(t, func(t *rapid.T) {
		body := rapid.SliceOf(rapid.Byte()).Draw(t, "body")
		headers := rapid.MapOf(name, rapid.String()).Draw(t, "headers")
		delete(headers, headerMore)
		delete(headers, headerEncoding)
		text, own := pack(body, headers)
		if !plain(text) || len(own) > maxAttributes {
			t.Fatalf("%q %v", text, own)
		}
		for name, a := range own {
			if !fits(name, aws.ToString(a.StringValue)) {
				t.Errorf("%q %q", name, aws.ToString(a.StringValue))
			}
		}
		back, h, bad := unpack(text, own)
		if string(back) != string(body) || !maps.Equal(h, headers) || bad != "" {
			t.Errorf("%q %v %s, want %q %v", back, h, bad, body, headers)
		}
	})
}

func TestConnectRefused(t *testing.T) {
	b := newBroker(t, "orders", nil)
	for want, change := range map[string]func(*adapter.Settings){
		"does not exist":    func(s *adapter.Settings) { s.Queue = "other" },
		"security token":    func(s *adapter.Settings) { s.Connection["access_key_id"] = "AKIDOTHER" },
		"connection refuse": func(s *adapter.Settings) { s.Connection["endpoint"] = "http://127.0.0.1:1" },
		"credentials":       func(s *adapter.Settings) { s.Connection["access_key_id"] = "" },
	} {
		t.Setenv("AWS_ACCESS_KEY_ID", "")
		s := b.settings()
		change(s)
		k := newSource(s)
		err := k.Connect(context.Background(), trigger.NoState)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), sqsserver.SecretKey) {
			t.Errorf("%s: %v", want, err)
		}
		if k.Health(context.Background()).OK || k.Close() != nil {
			t.Error(want)
		}
	}
}

func TestCheck(t *testing.T) {
	brokertest.Checks(t, "sqs", "", map[string]string{
		"": "", "endpoint=https://h": "", "endpoint=h": "https://", "endpoint=http://u:p@h": "credentials", "wait=21s": "20s", "wait=0": "",
		"visibility_timeout=0": "1s to 12h", "visibility_timeout=13h": "1s to 12h", "access_key_id=a": "belong together", "max_in_flight=0": "positive",
		"require & endpoint=http://h": "has no TLS", "require & endpoint=https://h": "",
	})
	for q, want := range map[string]bool{"orders": true, "orders.fifo": true, "o.x": false, "": false, strings.Repeat("a", 80): true, strings.Repeat("a", 81): false,
		strings.Repeat("a", 76) + ".fifo": false, "https://sqs.eu-central-1.amazonaws.com/1/orders": true, "https://": false, "ftp://h/q": false, "a b": false} {
		if (checkQueue(q, true) == "") != want {
			t.Errorf("%q: %s", q, checkQueue(q, true))
		}
	}
}

// What has no room for the reason next to it goes to the dead with its beginning, and
// what comes behind it is stored.
func TestTooLargeToBury(t *testing.T) {
	b := newBroker(t, "orders", nil)
	r := newRun(b, nil)
	size := 256<<10 - 200
	b.send("", strings.Repeat("x", size))
	b.send("", `{"n":1}`)
	r.Events(1)
	r.Until("the deletions", func() bool { return b.left("orders") == 0 })
	dead := b.receive("orders-dlq")
	if len(dead) != 1 || len(dead[0].Body) != 64<<10 || dead[0].Headers["x-dlq-body-bytes"] != fmt.Sprint(size) {
		t.Errorf("%d dead", len(dead))
	}
}

func TestProbeDLQ(t *testing.T) {
	brokertest.Probe(t, newSource(newBroker(t, "probe", nil).settings()))
}
