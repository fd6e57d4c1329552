package trigger

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"thread/engine"
	"thread/event"
)

// Property 2: every field of an envelope is the envelope of its message.
func TestPropertyEnvelope(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := NewConfig()
		c.Queue, c.Parser = rapid.StringN(1, 10, -1).Draw(rt, "queue"), "binary"
		m := Message{ID: rapid.StringN(1, 20, -1).Draw(rt, "id"), Body: rapid.SliceOf(rapid.Byte()).Draw(rt, "body"),
			Headers: rapid.MapOf(rapid.StringMatching(`[a-z]{1,4}`), rapid.String()).Draw(rt, "headers"), At: time.UnixMilli(rapid.Int64Range(0, 4e12).Draw(rt, "at"))}
		e, err := c.Envelope(&m, time.Now(), nil)
		if err != nil || e.MessageID != m.ID || string(e.Payload) != string(m.Body) || fmt.Sprint(e.Headers) != fmt.Sprint(m.Headers) || !e.ReceivedAt.Equal(m.At) ||
			e.Source != c.Queue || e.TraceID != "queue-"+m.ID {
			rt.Fatalf("%+v, %v", e, err)
		}
	})
}

// Properties 3 and 8: what was sent can be taken out of the event's content again,
// and the content is one JSON object whatever the message holds.
func TestPropertyParsers(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := NewConfig()
		c.Queue, c.Adapter = "q", "mock"
		c.Parser = rapid.SampledFrom(parserTypes).Draw(rt, "parser")
		body := rapid.SliceOf(rapid.Byte()).Draw(rt, "body")
		object := rapid.MapOf(rapid.String(), rapid.String()).Draw(rt, "object")
		switch c.Parser {
		case "json":
			body, _ = json.Marshal(object)
		case "text":
			body = []byte(rapid.String().Draw(rt, "text"))
		}
		m := Message{ID: rapid.StringN(1, 9, -1).Draw(rt, "id"), Body: body, Headers: map[string]string{rapid.String().Draw(rt, "name"): rapid.String().Draw(rt, "value")}}
		e, err := c.Envelope(&m, time.Now(), nil)
		if err != nil {
			rt.Fatal(err)
		}
		d, err := c.draft(nil, "", e)
		if err != nil {
			rt.Fatal(err)
		}
		var got struct {
			Message   json.RawMessage
			Headers   map[string]string
			Source    string
			MessageID string `json:"message_id"`
			At        string `json:"received_at"`
		}
		if err := json.Unmarshal([]byte(d.Content), &got); err != nil {
			rt.Fatalf("%v: %s", err, d.Content)
		}
		if got.MessageID != m.ID || got.Source != "q" || got.At == "" || fmt.Sprint(got.Headers) != fmt.Sprint(m.Headers) {
			rt.Fatalf("%+v of %+v", got, m)
		}
		var s string
		switch c.Parser {
		case "json":
			if string(got.Message) != string(body) {
				rt.Fatalf("%s, want %s", got.Message, body)
			}
			return
		case "binary":
			_ = json.Unmarshal(got.Message, &s)
			b, err := base64.StdEncoding.DecodeString(s)
			if err != nil || string(b) != string(body) {
				rt.Fatalf("%q, want %q", b, body)
			}
			return
		}
		if err := json.Unmarshal(got.Message, &s); err != nil || s != string(body) {
			rt.Fatalf("%q, want %q", s, body)
		}
	})
}

// Property 23: no credential is logged, whatever its kind.
func TestPropertyRedact(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		secret := rapid.StringMatching(`[A-Za-z0-9]{8,20}`).Draw(rt, "secret")
		said := fmt.Sprintf(rapid.SampledFrom([]string{"password=%s", "--token %s", "Bearer %s", "-u me:%s", "Cookie: a=%s"}).Draw(rt, "form"), secret)
		var b strings.Builder
		log := slog.New(RedactHandler{slog.NewJSONHandler(&b, nil)})
		switch rapid.IntRange(0, 5).Draw(rt, "kind") {
		case 0:
			log.Info(said)
		case 1:
			log.Info("", "error", errors.New(said))
		case 2:
			log.Info("", "api_key", secret)
		case 3:
			log.Info("", slog.Group("g", "said", said))
		case 4:
			log.With("said", said).Info("", "config", map[string]any{"secret": secret, "list": []any{said}})
		case 5:
			log.WithGroup("g").Info("", "headers", map[string]string{"cookie": secret, "x": said})
		}
		if strings.Contains(b.String(), secret) || !strings.Contains(b.String(), "***") {
			rt.Fatalf("%s", b.String())
		}
	})
}

// Property 12: attempts and waits follow the formula.
func TestPropertyDelays(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := Config{BackoffBase: rapid.Float64Range(.1, 2).Draw(rt, "base"), Multiplier: rapid.Float64Range(1, 3).Draw(rt, "multiplier"), MaxRetries: rapid.IntRange(0, 5).Draw(rt, "retries")}
		want := c.BackoffBase
		for n := int64(1); n <= int64(c.MaxRetries); n++ {
			if got := c.Delay(n).Seconds(); got < want-.001 || got > want+.001 {
				rt.Fatalf("%d: %g, want %g", n, got, want)
			}
			want *= c.Multiplier
		}
		if p := c.Policy(); p.MaxAttempts != int64(c.MaxRetries)+1 {
			rt.Fatal(p)
		}
	})
}

// mixed is a message of the property tests, and what must become of it.
type mixed struct {
	id, body, name, tenant string
}

// Properties 1, 4, 7, 9, 10, 15, 17, 18, 19, 20 and 21: whatever comes, through a
// queue with keys or with positions, each message gets what it is due, and the
// events, the ledger, the counts, the log and the broker say the same.
func TestPropertyStored(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		policy := rapid.SampledFrom([]string{PolicyAck, PolicyDLQ}).Draw(rt, "policy")
		positions := rapid.Bool().Draw(rt, "positions")
		r := newRig(rt, t.TempDir()+"/t", func(c *Config, o *Options) {
			c.AckPolicy, c.Tenant.Trust, c.Concurrency = policy, true, rapid.IntRange(1, 3).Draw(rt, "concurrency")
			c.MaxBatch = rapid.IntRange(1, 5).Draw(rt, "batch")
			c.Governance.Filter = "type <> 'forbidden'"
		})
		defer r.th.Close()
		log := newLogQueue()
		if positions {
			var err error
			if r.tr, err = New(r.th, log, r.cfg, r.opts); err != nil {
				rt.Fatal(err)
			}
		}
		known := map[string]bool{}
		want := map[string]int{}
		var stored []mixed
		n := rapid.IntRange(1, 12).Draw(rt, "messages")
		for range n {
			m := mixed{id: fmt.Sprint("m", rapid.IntRange(0, 6).Draw(rt, "id")), body: rapid.SampledFrom([]string{`{"a":1}`, `[]`, `oops`}).Draw(rt, "body"),
				name: rapid.SampledFrom([]string{"", "order", "forbidden"}).Draw(rt, "name"), tenant: rapid.SampledFrom([]string{"", "a", "b"}).Draw(rt, "tenant")}
			key := m.tenant + "/" + m.id
			switch {
			case m.body != `{"a":1}`:
				want[StatusParseError]++
			case known[key]:
				want[StatusDuplicate]++
			case m.name == "forbidden":
				want[StatusRejected]++
			default:
				known[key] = true
				want[StatusStored]++
				stored = append(stored, m)
			}
			msg := Message{ID: m.id, Body: []byte(m.body), Headers: map[string]string{"X-Event-Name": m.name, HeaderTenant: m.tenant, HeaderMessageID: m.id}}
			if positions {
				log.add(msg)
			} else {
				r.mock.Enqueue(msg)
			}
		}
		r.start()
		dead := 0
		r.until("the end", func() bool {
			if !positions {
				dead = len(r.mock.Dead())
				return len(r.mock.Acked()) == n
			}
			committed, length, d, _ := log.state()
			dead = d
			return committed == length
		})
		r.stop()
		es := r.events()
		if len(es) != len(stored) {
			rt.Fatalf("%d events, want %d", len(es), len(stored))
		}
		for i, m := range stored {
			typ, tenant := m.name, m.tenant
			if typ == "" {
				typ = "queue_message"
			}
			if tenant == "" {
				tenant = DefaultTenant
			}
			if es[i].Type != typ || !strings.Contains(es[i].Content, `"message_id":"`+m.id+`"`) || !strings.Contains(es[i].Content, `"tenant_id":"`+tenant+`"`) {
				rt.Fatalf("%+v became %+v", m, es[i])
			}
		}
		rows := map[string]int{}
		for _, row := range r.ledger() {
			rows[row.Status]++
			if row.TraceID != "queue-"+row.MessageID || row.Queue != "q" || row.EventName == "" || row.TenantID == "" || row.DurationMS < 0 {
				rt.Fatalf("%+v", row)
			}
		}
		counts := r.tr.metrics.Read()
		lines := map[string]int{StatusDuplicate: r.log.count("msg=duplicate"), StatusParseError: r.log.count("msg=\"parse failure\""), StatusRejected: r.log.count("msg=rejected"), StatusStored: r.log.count("msg=stored")}
		for _, s := range []string{StatusDuplicate, StatusParseError, StatusRejected, StatusStored} {
			if rows[s] != want[s] || counts.Consumed[s] != int64(want[s]) || lines[s] != want[s] {
				rt.Fatalf("%s: %d rows, %d counted, %d logged, want %d", s, rows[s], counts.Consumed[s], lines[s], want[s])
			}
		}
		if counts.DedupHits != int64(want[StatusDuplicate]) {
			rt.Fatal(counts)
		}
		for _, stage := range []string{"message consumed", "acknowledged"} {
			if r.log.count("msg=\""+stage+"\"")+r.log.count("msg="+stage+" ") != n {
				rt.Fatalf("%s: not %d times in %s", stage, n, r.log)
			}
		}
		wantDead := want[StatusParseError]
		if policy == PolicyDLQ {
			wantDead += want[StatusRejected]
		}
		if _, _, _, faults := log.state(); dead != wantDead || len(faults) > 0 {
			rt.Fatalf("%d in the dead letter queue, want %d; %v", dead, wantDead, faults)
		}
		var out strings.Builder
		if _, err := r.tr.metrics.WriteTo(&out); err != nil || !strings.Contains(out.String(), fmt.Sprintf("queue_dedup_hits_total{queue=\"q\"} %d\n", want[StatusDuplicate])) {
			rt.Fatal(out.String())
		}
		r.sound()
	})
}

// Properties 11, 13 and 14, with 12: whatever fails how often, by whichever policy,
// attempts, dead letters, the log and the broker agree; also across a restart.
func TestPropertyHandled(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		policy := rapid.SampledFrom(ackPolicies).Draw(rt, "policy")
		retries := rapid.IntRange(0, 2).Draw(rt, "retries")
		limit := rapid.IntRange(1, 3).Draw(rt, "limit")
		positions := rapid.Bool().Draw(rt, "positions")
		restart := rapid.Bool().Draw(rt, "restart")
		r := newRig(rt, t.TempDir()+"/t", func(c *Config, o *Options) {
			c.Settle, c.AckPolicy, c.MaxRetries, c.DeliveryLimit = SettleHandled, policy, retries, limit
			c.BackoffBase = 1e-6
			o.Drain = time.Millisecond
		})
		defer r.th.Close()
		log := newLogQueue()
		if positions {
			var err error
			if r.tr, err = New(r.th, log, r.cfg, r.opts); err != nil {
				rt.Fatal(err)
			}
		}
		n := rapid.IntRange(1, 4).Draw(rt, "messages")
		fail := map[string]int{} // how often each fails
		for i := range n {
			id := fmt.Sprint("m", i)
			fail[id] = rapid.IntRange(0, 4).Draw(rt, "failures")
			msg := Message{ID: id, Body: []byte(`{}`), Headers: map[string]string{}}
			if positions {
				log.add(msg)
			} else {
				r.mock.Enqueue(msg)
			}
		}
		r.start()
		r.until("the events", func() bool { return len(r.events()) == n })
		if restart {
			r.stop()
			r.start()
		}
		attempts := map[int64]int{}
		perDelivery := retries + 1
		deliveries := 1
		if policy == PolicyRequeue {
			deliveries = limit
		}
		done := func() bool {
			c := r.tr.metrics.Read()
			final := c.Consumed[StatusSuccess]
			for i := range n {
				if fail[fmt.Sprint("m", i)] >= perDelivery*deliveries {
					final += int64(deliveries)
				} else if policy == PolicyRequeue {
					final += int64(fail[fmt.Sprint("m", i)] / perDelivery)
				}
			}
			return final == c.Consumed[StatusSuccess]+c.Consumed[StatusFailed] && c.Consumed[StatusSuccess]+int64(dying(fail, perDelivery*deliveries)) == int64(n)
		}
		for range 2 * deliveries * n {
			if done() {
				break
			}
			r.until("work or the end", func() bool {
				d, err := r.th.DueFor(context.Background(), "q", 0)
				return err == nil && d.First != 0 || done()
			})
			r.handle(func(e event.Event, _ int64) error {
				attempts[e.ID]++
				if attempts[e.ID] <= fail[fmt.Sprint("m", e.ID-1)] {
					return errors.New("boom")
				}
				return nil
			})
		}
		r.until("the end", func() bool {
			if !done() {
				return false
			}
			if positions {
				committed, length, _, _ := log.state()
				return committed == length
			}
			return policy == PolicyNack || r.mock.Idle()
		})
		r.stop()
		if es := r.events(); len(es) != n {
			rt.Fatalf("%d events, want %d", len(es), n)
		}
		for id, got := range attempts {
			want := min(fail[fmt.Sprint("m", id-1)]+1, perDelivery*deliveries)
			if got != want {
				rt.Fatalf("event %d: %d attempts, want %d", id, got, want)
			}
		}
		dead := r.mock.Dead()
		if positions {
			dead = log.dead
		}
		wantDead := 0
		if policy == PolicyDLQ || policy == PolicyRequeue {
			wantDead = dying(fail, perDelivery*deliveries)
		}
		if len(dead) != wantDead {
			rt.Fatalf("%d in the dead letter queue, want %d", len(dead), wantDead)
		}
		for _, d := range dead {
			if d.Reason.LastError != "boom" || d.Reason.FirstError != "boom" || d.Reason.Attempts < int64(perDelivery) || d.Reason.FirstAt.IsZero() {
				rt.Fatalf("%+v", d.Reason)
			}
		}
		letters := 0
		for range r.th.DeadLetters(context.Background(), engine.DeadLetterQuery{Consumer: "q"}) {
			letters++
		}
		if want := dying(fail, perDelivery); letters != want && (policy == PolicyAck || policy == PolicyNack) {
			rt.Fatalf("%d dead letters, want %d", letters, want)
		}
		if _, _, _, faults := log.state(); len(faults) > 0 {
			rt.Fatal(faults)
		}
		r.sound()
	})
}

// dying counts those that fail at least so often.
func dying(fail map[string]int, attempts int) (n int) {
	for _, f := range fail {
		if f >= attempts {
			n++
		}
	}
	return n
}

// Properties 6, 22 and 24: every order leaves the trigger in the state that its
// health tells, and a stop loses nothing.
func TestPropertyLifecycle(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := newRig(rt, t.TempDir()+"/t", nil)
		defer r.th.Close()
		running, paused := false, false
		sent := 0
		for range rapid.IntRange(1, 8).Draw(rt, "orders") {
			var err error
			switch order := rapid.SampledFrom([]string{"start", "stop", "pause", "resume", "send"}).Draw(rt, "order"); order {
			case "start":
				if err = r.tr.Start(context.Background()); running != errors.Is(err, ErrRunning) {
					rt.Fatal(err)
				}
				running = true
			case "stop":
				if err = r.tr.Stop(); running == errors.Is(err, ErrNotRunning) {
					rt.Fatal(err)
				}
				running = false
			case "pause", "resume":
				paused = order == "pause"
				if paused {
					err = r.tr.Pause(context.Background())
				} else {
					err = r.tr.Resume(context.Background())
				}
				if err != nil {
					rt.Fatal(err)
				}
			case "send":
				sent++
				r.send(fmt.Sprint("m", sent), `{}`)
			}
			h := r.tr.Health(context.Background())
			if h.Running != running || h.Paused != paused || h.ActiveWorkers < 0 || h.ActiveWorkers > 1 || !running && h.ActiveWorkers > 0 || h.AdapterHealthy != running || (h.Status == "healthy") != running {
				rt.Fatalf("running %t, paused %t: %+v", running, paused, h)
			}
		}
		if !running {
			r.start()
		}
		if err := r.tr.Resume(context.Background()); err != nil {
			rt.Fatal(err)
		}
		r.until("all events", func() bool { return len(slices.Compact(r.mock.Acked())) >= sent })
		r.stop()
		if len(r.events()) != sent {
			rt.Fatalf("%d events, want %d", len(r.events()), sent)
		}
	})
}

// Property 16: a key counts for its window from settling, and not after it.
func TestPropertyWindow(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		now := time.UnixMilli(1.7e12)
		clock := make(chan time.Time, 1)
		clock <- now
		window := rapid.IntRange(1, 1000).Draw(rt, "window")
		r := newRig(rt, t.TempDir()+"/t", func(c *Config, o *Options) {
			c.Window = float64(window)
			o.Now = func() time.Time { n := <-clock; clock <- n; return n }
		})
		defer r.th.Close()
		r.start()
		stored, events := now.Add(-time.Hour*1e4), 0
		for i := range rapid.IntRange(1, 5).Draw(rt, "messages") {
			now = now.Add(time.Duration(rapid.IntRange(0, 1500).Draw(rt, "later")) * time.Second)
			<-clock
			clock <- now
			if now.Sub(stored) >= time.Duration(window)*time.Second {
				stored = now
				events++
			}
			r.send("m", `{}`)
			r.acked(i + 1)
			if got := len(r.events()); got != events {
				rt.Fatalf("%d events, want %d", got, events)
			}
		}
		r.stop()
		r.sound()
	})
}
