package redis

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"thread/bridge/adapter"
	"thread/bridge/internal/brokertest"
	"thread/bridge/trigger"
	"thread/engine"
	"thread/event"
)

// host is the Redis of this host. With THREAD_BRIDGE_BROKERS it must be there.
const host = "127.0.0.1:6379"

// minIdle is when a consumer of a shared group that says nothing loses its entries: on a
// busy host a process may stand still for seconds.
const minIdle = 4 * time.Second

// box is one stream.
type box struct {
	cmd    *client
	stream string
	shared bool
}

func newBox(t *testing.T, shared bool) *box {
	t.Helper()
	brokertest.Needed(t, "Redis", host)
	b := &box{stream: fmt.Sprintf("t%d", time.Now().UnixNano()), shared: shared}
	b.cmd = &client{s: b.settings()}
	b.do(t, "XGROUP", "CREATE", b.stream, "g", "0", "MKSTREAM")
	t.Cleanup(func() {
		b.do(t, "DEL", b.stream, b.stream+".dlq")
		b.cmd.close()
	})
	return b
}

func (b *box) settings() *adapter.Settings {
	spec, _ := adapter.Find("redis")
	s := &adapter.Settings{Name: "orders", Queue: b.stream, Group: "g", Keys: spec.Keys, Concurrency: 1, MaxBatch: 100, Instance: "thread-x",
		Connection: map[string]string{"address": host, "connect_timeout": "5s"}}
	if b.shared {
		s.Connection["shared"], s.Connection["min_idle"] = "true", minIdle.String()
	}
	return s
}

func (b *box) do(t *testing.T, cmd string, args ...any) any {
	t.Helper()
	r, err := b.cmd.do(context.Background(), cmd, args...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// send adds an entry with an id of the server's.
func (b *box) send(t *testing.T, body string, headers ...string) {
	t.Helper()
	h := map[string]string{}
	for i := 0; i < len(headers); i += 2 {
		h[headers[i]] = headers[i+1]
	}
	b.do(t, "XADD", append([]any{b.stream, "*"}, fieldsOf("body", []byte(body), h)...)...)
}

// number adds entries with ids of numbers, which a stream that is made again has, too.
func (b *box) number(t *testing.T, from, to int) {
	t.Helper()
	for n := from; n < to; n++ {
		b.do(t, "XADD", b.stream, fmt.Sprintf("%d-0", n+1), "body", fmt.Sprintf(`{"n":%d}`, n))
	}
}

func (b *box) pending(t *testing.T, _ trigger.Source) int {
	t.Helper()
	list, err := redis.Values(b.do(t, "XINFO", "GROUPS", b.stream), nil)
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	g := groupOf(list[0])
	left, err := entriesOf(b.do(t, "XRANGE", b.stream, "("+g.last.String(), "+"), nil)
	if err != nil {
		t.Fatal(err)
	}
	return int(g.pending) + len(left)
}

func (b *box) dead(t *testing.T) (string, map[string]string) {
	t.Helper()
	list, err := entriesOf(b.do(t, "XREVRANGE", b.stream+".dlq", "+", "-", "COUNT", 1), nil)
	if err != nil || len(list) == 0 {
		return "", nil
	}
	m := list[0].content("body")
	return string(m.Body), m.Headers
}

func (b *box) broker() *brokertest.Broker {
	return &brokertest.Broker{Adapter: "redis", Settings: b.settings(), Send: b.send, Pending: b.pending, Dead: b.dead}
}

func TestStreams(t *testing.T) {
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprintf("shared %t", shared), func(t *testing.T) {
			brokertest.Cases(t, func(t *testing.T) *brokertest.Broker { return newBox(t, shared).broker() })
		})
	}
}

// A dead letter queue that refuses is found by a question, parks what cannot be parsed,
// and holds up nothing else.
func TestRefusedDLQ(t *testing.T) {
	b := newBox(t, false)
	b.do(t, "SET", b.stream+".dlq", "not a stream")
	t.Cleanup(func() { b.do(t, "DEL", b.stream+".dlq") })
	b.send(t, `oops`, "x-message-id", "m-1")
	b.send(t, `{"n":2}`, "x-message-id", "m-2")
	r := brokertest.New(t, b.broker(), nil)
	r.Events(1)
	r.Drained()
	if n := r.Health().Metrics.Parked; n != 1 {
		t.Errorf("%d parked", n)
	}
	src, err := newSource(b.settings())
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if err := src.Connect(t.Context(), trigger.NoState); err != nil {
		t.Fatal(err)
	}
	if _, err := src.ProbeDLQ(t.Context()); err == nil || !strings.Contains(err.Error(), "is a string, and not a stream") {
		t.Error(err)
	}
	b.do(t, "DEL", b.stream+".dlq")
	r.Until("the parked message", func() bool { return r.Health().Metrics.Parked == 0 })
	if body, h := b.dead(t); body != "oops" || !strings.Contains(h["x-dlq-reason"], "JSON") {
		t.Errorf("%q %v", body, h)
	}
}

// Whatever the downtime: positions, not keys, know what is stored.
//
func TestPositions(t *testing.T) {
	b := newBox(t, false)
	r := brokertest.New(t, b.broker(), func(c *trigger.Config) { c.Dedup = false })
	for i := range 250 {
		b.send(t, fmt.Sprintf(`{"n":%d}`, i))
	}
	r.Events(100)
	r.Stop()
	r.Wrap = func(s trigger.Source) trigger.Source { return brokertest.Deaf{Source: s} }
	r.Start()
	r.Events(250)
	r.Stop()
	r.Wrap = nil
	r.Start()
	r.Drained()
	if es := r.Events(250); len(es) != 250 || brokertest.Contains(es, `"n":249}`) != 1 {
		t.Errorf("%d events", len(es))
	}
}

// What became of stream and group while the trigger was down, or while it runs, and
// how many events there are then: five with the ids 1-0 to 5-0 were stored before.
func TestMadeAgain(t *testing.T) {
	for _, c := range []struct {
		name   string
		what   func(t *testing.T, b *box)
		events int
	}{
		// One that has the same id and the same fields as the last one is that one.
		{"stream, with the same entries", func(t *testing.T, b *box) { b.do(t, "DEL", b.stream); b.number(t, 0, 7) }, 5 + 2},
		{"stream, with the same ids", func(t *testing.T, b *box) {
			b.do(t, "DEL", b.stream)
			for n := range 5 {
				b.do(t, "XADD", b.stream, fmt.Sprintf("%d-0", n+1), "body", fmt.Sprintf(`{"again":%d}`, n))
			}
		}, 5 + 5},
		{"stream, with fewer", func(t *testing.T, b *box) { b.do(t, "DEL", b.stream); b.number(t, 10, 13) }, 5 + 3},
		{"stream, and another has made the group", func(t *testing.T, b *box) {
			b.do(t, "DEL", b.stream)
			b.do(t, "XGROUP", "CREATE", b.stream, "g", "0", "MKSTREAM")
			b.number(t, 20, 24)
		}, 5 + 4},
		{"group", func(t *testing.T, b *box) { b.do(t, "XGROUP", "DESTROY", b.stream, "g"); b.number(t, 5, 7) }, 5 + 2},
		{"group at the start", func(t *testing.T, b *box) {
			b.do(t, "XGROUP", "DESTROY", b.stream, "g")
			b.do(t, "XGROUP", "CREATE", b.stream, "g", "0")
			b.number(t, 5, 7)
		}, 5 + 2},
		{"group, its entries trimmed", func(t *testing.T, b *box) {
			b.do(t, "XGROUP", "DESTROY", b.stream, "g")
			b.number(t, 5, 7)
			b.do(t, "XTRIM", b.stream, "MINID", "7-0")
		}, 5 + 1},
		{"group, its last entry deleted", func(t *testing.T, b *box) {
			b.do(t, "XGROUP", "DESTROY", b.stream, "g")
			b.do(t, "XDEL", b.stream, "5-0")
			b.number(t, 5, 7)
		}, 5 + 2},
		{"nothing", func(t *testing.T, b *box) { b.number(t, 5, 7) }, 5 + 2},
	} {
		for _, live := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, live %t", c.name, live), func(t *testing.T) {
				b := newBox(t, false)
				b.number(t, 0, 5)
				r := brokertest.New(t, b.broker(), nil)
				r.Events(5)
				r.Drained()
				if !live {
					r.Stop()
				}
				c.what(t, b)
				if !live {
					r.Start()
				}
				r.Events(c.events)
				r.Drained()
				r.Stop()
				r.Start()
				b.send(t, `{"n":"last"}`)
				es := r.Events(c.events + 1)
				if len(es) != c.events+1 || !strings.Contains(es[len(es)-1].Content, "last") {
					t.Errorf("%d events, want %d: %v", len(es), c.events+1, es)
				}
			})
		}
	}
}

// What a consumer of the group has left is taken over: at once in a separate group,
// after a while in a shared one, and while others still read there.
//
func TestTakenOver(t *testing.T) {
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprintf("shared %t", shared), func(t *testing.T) {
			b := newBox(t, shared)
			for i := range 250 {
				b.send(t, fmt.Sprintf(`{"n":%d}`, i))
			}
			b.do(t, "XREADGROUP", "GROUP", "g", "dead", "COUNT", 220, "STREAMS", b.stream, ">")
			r := brokertest.New(t, b.broker(), nil)
			if shared {
				other := brokertest.New(t, b.broker(), nil)
				r.Until("all events, in two threads", func() bool {
					return r.Health().Processed+other.Health().Processed >= 250
				})
				r.Drained()
				if n := r.Health().Processed + other.Health().Processed; n != 250 {
					t.Errorf("%d events", n)
				}
				return
			}
			r.Drained()
			if es := r.Events(250); len(es) != 250 {
				t.Errorf("%d events", len(es))
			}
		})
	}
}

// In a shared group an event that is handled for long is not taken over.
func TestKept(t *testing.T) {
	b := newBox(t, true)
	b.send(t, `{}`)
	r := brokertest.New(t, b.broker(), brokertest.Handled(trigger.PolicyAck))
	other := brokertest.New(t, b.broker(), nil)
	r.Until("the event, in one of two threads", func() bool { return b.pending(t, nil) == 1 || other.Health().Processed == 1 })
	end := time.Now().Add(2*minIdle + time.Second) // longer than min_idle: time itself is what is tested
	r.Until("the end of the wait", func() bool { return time.Now().After(end) })
	if other.Health().Processed == 0 {
		r.Handle(engine.Succeeded)
	}
	r.Drained()
	if n := r.Health().Processed + other.Health().Processed; n != 1 {
		t.Errorf("%d", n)
	}
}

// What was deleted while it was pending keeps nothing up.
func TestDeletedWhilePending(t *testing.T) {
	b := newBox(t, false)
	b.number(t, 0, 3)
	b.do(t, "XREADGROUP", "GROUP", "g", "dead", "STREAMS", b.stream, ">")
	b.do(t, "XDEL", b.stream, "2-0")
	r := brokertest.New(t, b.broker(), nil)
	r.Drained()
	b.number(t, 3, 4)
	if es := r.Events(3); len(es) != 3 || !strings.Contains(es[2].Content, `"n":3`) {
		t.Errorf("%v", es)
	}
}

func TestEntries(t *testing.T) {
	b := newBox(t, false)
	b.do(t, "XADD", b.stream, "1-0", "order", "7", "x-event-name", "placed", "empty", "")
	b.do(t, "XADD", b.stream, "2-0", "body", `{"a":1}`, "n", "1", "X-Message-ID", "m-1")
	b.do(t, "XADD", b.stream, "3-0", "bad", "\xff")
	b.do(t, "XADD", b.stream, "4-0", "body", "", "n", "1")
	b.do(t, "XADD", b.stream, "*", "body", "{}")
	src, err := newSource(b.settings())
	if err == nil {
		err = src.Connect(t.Context(), trigger.NoState)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	ms, err := src.Consume(t.Context(), 10)
	if err != nil || len(ms) != 5 {
		t.Fatal(ms, err)
	}
	if m := ms[0]; string(m.Body) != `{"empty":"","order":"7"}` || len(m.Headers) != 1 || !m.Positional || !strings.HasSuffix(m.ID, ":1-0") || !m.At.IsZero() {
		t.Errorf("%+v", m)
	}
	if m := ms[1]; string(m.Body) != `{"a":1}` || m.Headers["n"] != "1" || m.ID != "m-1" || m.Positional {
		t.Errorf("%+v", m)
	}
	if ms[2].Bad == "" || ms[3].Bad != "" || len(ms[3].Body) != 0 || time.Since(ms[4].At) > time.Minute {
		t.Errorf("%+v", ms[2:])
	}
}

// Q-19, and a dry run takes nothing.
func TestMissingAndDry(t *testing.T) {
	b := newBox(t, false)
	b.do(t, "DEL", b.stream)
	s := b.settings()
	src, err := newSource(s)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if err := src.Connect(t.Context(), trigger.NoState); err == nil || !strings.Contains(err.Error(), b.stream) || !strings.Contains(err.Error(), "create") {
		t.Fatal(err)
	}
	s.Instance = ""
	if err := src.Connect(t.Context(), trigger.NoState); err == nil {
		t.Error("a validation finds no stream")
	}
	b.number(t, 0, 3)
	if err := src.Connect(t.Context(), trigger.NoState); err != nil {
		t.Fatal(err)
	}
	if ms, err := src.Consume(t.Context(), 10); err != nil || len(ms) != 3 {
		t.Error(ms, err)
	}
	if groups, _ := redis.Values(b.do(t, "XINFO", "GROUPS", b.stream), nil); len(groups) != 0 {
		t.Error("there is a group")
	}
	// With create the stream is made, and the group with it.
	b.do(t, "DEL", b.stream)
	br := b.broker()
	br.Settings.Connection["create"] = "true"
	r := brokertest.New(t, br, nil)
	b.number(t, 0, 1)
	r.Events(1)
}

func TestSeek(t *testing.T) {
	b := newBox(t, false)
	r := brokertest.New(t, b.broker(), nil)
	b.number(t, 0, 5)
	r.Events(5)
	want := 5
	b.do(t, "XADD", b.stream, "2000000000000-0", "body", "{}")
	want++
	r.Events(want)
	for _, c := range []struct {
		to   trigger.Place
		more int
	}{{trigger.Place{Name: "start"}, 6}, {trigger.Place{Name: "end"}, 0}, {trigger.Place{Name: "time", At: time.UnixMilli(2000000000000)}, 1},
		{trigger.Place{Name: "time", At: time.UnixMilli(2000000000001)}, 0}, {trigger.Place{Name: "time", At: time.Unix(-1, 0)}, 6}} {
		r.Stop()
		src, err := newSource(b.settings())
		if err != nil {
			t.Fatal(err)
		}
		ws, err := src.Seek(t.Context(), trigger.NoState, c.to)
		if err == nil {
			err = trigger.SetPositions(t.Context(), r.Thread, &r.Config, ws)
		}
		src.Close()
		if err != nil {
			t.Fatal(err)
		}
		want += c.more
		r.Start()
		r.Drained()
		if es := r.Events(want); len(es) != want {
			t.Fatalf("%v: %d events, want %d", c.to, len(es), want)
		}
	}
}

// The stream holds each event once, also after the progress was lost and when two
// publish; one with entries of others is refused.
func TestPublish(t *testing.T) {
	b := newBox(t, false)
	b.do(t, "DEL", b.stream)
	ctx := t.Context()
	th, err := engine.Init(t.TempDir() + "/t")
	if err != nil {
		t.Fatal(err)
	}
	push := func(n int) {
		for range n {
			if _, err := th.Push(ctx, event.Draft{Source: "s", Type: "a", Content: `{"body":"x"}`}); err != nil {
				t.Fatal(err)
			}
		}
	}
	push(1200)
	id, err := trigger.Identity(ctx, th)
	if err != nil {
		t.Fatal(err)
	}
	conf := trigger.NewPublishConfig()
	conf.Name, conf.Queue, conf.Headers = "out", b.stream, map[string]string{"body": "type", "x-more": "source"}
	s := b.settings()
	s.Instance = "thread-" + id
	publish := func() (int64, error) {
		k, err := newSink(s)
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close()
		p, err := trigger.NewPublisher(ctx, th, k, conf, nil)
		if err != nil {
			t.Fatal(err)
		}
		run, stop := context.WithCancel(ctx)
		p.OnIdle = stop
		return p.Published, p.Run(run)
	}
	length := func() int64 {
		n, err := redis.Int64(b.do(t, "XLEN", b.stream), nil)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for range 2 {
		if _, err := publish(); err != nil || length() != 1200 {
			t.Fatal(length(), err)
		}
		if err := th.Seek(ctx, "out", 0); err != nil {
			t.Fatal(err)
		}
	}
	first, err := entriesOf(b.do(t, "XRANGE", b.stream, "-", "+", "COUNT", 1), nil)
	if err != nil || first[0].id.String() != "1-0" || string(first[0].content("body").Body) != `{"body":"x"}` || first[0].content("body").Headers["x-more"] != "s" {
		t.Error(first, err)
	}
	// A second one that began before: what is there is refused, and no error.
	k, err := newSink(s)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	if last, err := k.Connect(ctx); last != 1200 || err != nil {
		t.Fatal(last, err)
	}
	out := func(n int64) trigger.Outgoing {
		return trigger.Outgoing{Event: n, ID: fmt.Sprintf("%s:%d", id, n), Body: []byte("{}"), Headers: map[string]string{"x-message-id": fmt.Sprintf("%s:%d", id, n)}}
	}
	if err := k.Publish(ctx, []trigger.Outgoing{out(1199), out(1200), out(1201)}); err != nil || length() != 1201 {
		t.Error(length(), err)
	}
	// Its last entry deleted: it was there.
	b.do(t, "XDEL", b.stream, "1201-0")
	if last, err := k.Connect(ctx); last != 1201 || err != nil {
		t.Error(last, err)
	}
	if err := k.Publish(ctx, []trigger.Outgoing{out(1201)}); err != nil || length() != 1200 {
		t.Error(length(), err)
	}
	b.send(t, "{}")
	if _, err := k.Connect(ctx); err == nil || !strings.Contains(err.Error(), "entries of others") {
		t.Error(err)
	}
	if err := k.Publish(ctx, []trigger.Outgoing{out(1202)}); err == nil {
		t.Error("it would be lost")
	}
}

func TestCheck(t *testing.T) {
	brokertest.Checks(t, "redis", "address=h & shared=true", map[string]string{
		"require & address=localhost":         "",
		"require & address=rediss://a:1/3":    "",
		"require & address=redis://localhost": "address: ",
		"address=http://localhost":            "address: ",
		"address=redis://a/x":                 "address: ",
		"address=:6379":                       "address: ",
		"require & tls=false":                 "tls: ",
		"username=x":                          "username: ",
		"min_idle=10ms":                       "min_idle: ",
		"body_field=":                         "body_field: ",
	})
}
