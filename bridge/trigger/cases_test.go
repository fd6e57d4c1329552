package trigger

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
)

var errBoom = errors.New("boom password=hunter2")

func fails(event.Event, int64) error    { return errBoom }
func succeeds(event.Event, int64) error { return nil }

// governor answers by function.
type governor func(q *Question) (Answer, error)

func (g governor) Ask(_ context.Context, q *Question) (Answer, error) { return g(q) }
func (g governor) Close() error                                       { return nil }

func policy(p string) func(*Config, *Options) {
	return func(c *Config, _ *Options) { c.Settle, c.AckPolicy = SettleHandled, p }
}

// run starts the trigger, sends one message, handles it, waits and stops.
func (r *rig) one(fn func(event.Event, int64) error, done func() bool) (attempts int) {
	r.tb.Helper()
	r.start()
	r.send("m-1", `{"n":1}`)
	r.until("the event", func() bool { return len(r.events()) == 1 })
	attempts = r.handle(fn)
	r.until("the end", done)
	r.stop()
	return attempts
}

//
func TestLifecycle(t *testing.T) {
	r := newRig(t, t.TempDir()+"/t", nil)
	ctx := context.Background()
	if h := r.tr.Health(ctx); h.Running || h.Status != "unhealthy" || h.AdapterHealthy || h.ActiveWorkers != 0 {
		t.Errorf("before: %+v", h)
	}
	r.start()
	if err := r.tr.Start(ctx); !errors.Is(err, ErrRunning) {
		t.Errorf("started twice: %v", err)
	}
	if h := r.tr.Health(ctx); !h.Running || h.Status != "healthy" || h.ActiveWorkers != 0 || h.Paused {
		t.Errorf("running: %+v", h)
	}
	if err := r.tr.Pause(ctx); err != nil {
		t.Fatal(err)
	}
	if h := r.tr.Health(ctx); !h.Running || !h.Paused {
		t.Errorf("paused: %+v", h)
	}
	if err := r.tr.Resume(ctx); err != nil {
		t.Fatal(err)
	}
	r.send("m-1", `{}`)
	r.acked(1)
	r.stop()
	if h := r.tr.Health(ctx); h.Running || h.Processed != 1 {
		t.Errorf("stopped: %+v", h)
	}
	if err := r.tr.Stop(); !errors.Is(err, ErrNotRunning) {
		t.Errorf("stopped twice: %v", err)
	}
}

// a pause stops the intake, and outlives the process.
func TestPauseStopsIntake(t *testing.T) {
	r := newRig(t, t.TempDir()+"/t", nil)
	r.start()
	r.send("m-1", `{}`)
	r.acked(1)
	if err := SetPaused(context.Background(), r.th, "q", true); err != nil { // as another process does
		t.Fatal(err)
	}
	r.until("the pause", func() bool { return r.tr.Health(context.Background()).Paused })
	r.stop()
	r.start()
	r.send("m-2", `{}`)
	if n := len(r.events()); n != 1 {
		t.Errorf("%d events", n)
	}
	if err := r.tr.Resume(context.Background()); err != nil {
		t.Fatal(err)
	}
	r.acked(2)
	r.stop()
}

//
func TestProcessAndDedup(t *testing.T) {
	r := newRig(t, t.TempDir()+"/t", func(c *Config, _ *Options) {
		c.Settle, c.Focus, c.Tenant.Trust = SettleHandled, text("sales"), true
	})
	r.start()
	r.send("m-1", `{"order":7}`, "x-event-name", "order_placed", "x-tenant-id", "acme")
	r.until("the event", func() bool { return len(r.events()) == 1 })
	runs := r.handle(succeeds)
	r.acked(1)
	r.send("m-1", `{"order":7}`, "x-tenant-id", "acme")
	r.acked(2)
	r.stop()
	e := r.events()
	if runs != 1 || len(e) != 1 || e[0].Type != "order_placed" {
		t.Fatalf("%d runs, %v", runs, e)
	}
	for _, want := range []string{`"message":{"order":7}`, `"focus":"sales"`, `"tenant_id":"acme"`, `"message_id":"m-1"`, `"trace_id":"queue-m-1"`,
		`"source":"q"`, `"received_at":"20`, `"x-event-name":"order_placed"`} {
		if !strings.Contains(e[0].Content, want) {
			t.Errorf("no %s in %s", want, e[0].Content)
		}
	}
	rows := r.ledger()
	if len(rows) != 2 || rows[0].Status != StatusDuplicate || rows[1].Status != StatusSuccess {
		t.Fatalf("%+v", rows)
	}
	l := rows[1]
	if l.TraceID != "queue-m-1" || l.Queue != "q" || l.EventName != "order_placed" || l.TenantID != "acme" || l.DurationMS < 0 ||
		l.AgentRunID == nil || *l.AgentRunID != "q/1" || l.RetryCount != 0 || l.Error != nil {
		t.Errorf("%+v", l)
	}
	if h := r.tr.Health(context.Background()); h.DedupHits != 1 || h.Processed != 1 {
		t.Errorf("%+v", h)
	}
	r.sound()
}

//
func TestParseFailure(t *testing.T) {
	for _, p := range ackPolicies {
		r := newRig(t, t.TempDir()+"/t", policy(p))
		r.start()
		r.send("bad", `[1]`)
		r.send("good", `{}`)
		r.until("the event", func() bool { return len(r.events()) == 1 })
		r.handle(succeeds)
		r.acked(2)
		r.stop()
		dead := r.mock.Dead()
		if len(dead) != 1 || dead[0].Message.ID != "bad" || dead[0].Reason.Status != StatusParseError || !strings.Contains(dead[0].Reason.Text, "JSON object") {
			t.Errorf("%s: %+v", p, dead)
		}
		if h := r.tr.Health(context.Background()); h.Failed != 1 || h.Processed != 1 {
			t.Errorf("%s: %+v", p, h)
		}
	}
}

//
func TestExhaustedByPolicy(t *testing.T) {
	for _, p := range ackPolicies {
		r := newRig(t, t.TempDir()+"/t", func(c *Config, o *Options) {
			policy(p)(c, o)
			c.MaxRetries, c.DeliveryLimit = 2, 3
		})
		letters := func() (n int) {
			for range r.th.DeadLetters(context.Background(), engine.DeadLetterQuery{Consumer: "q"}) {
				n++
			}
			return n
		}
		switch p {
		case PolicyAck:
			n := r.one(fails, func() bool { return len(r.mock.Acked()) == 1 })
			if n != 3 || letters() != 1 || len(r.mock.Dead()) != 0 {
				t.Errorf("ack: %d attempts, %d letters", n, letters())
			}
		case PolicyNack:
			n := r.one(fails, func() bool { return len(r.mock.Nacked()) == 1 })
			if n != 3 || r.mock.Nacked()[0] != "m-1 false" || letters() != 1 {
				t.Errorf("nack: %d attempts, %v", n, r.mock.Nacked())
			}
		case PolicyDLQ:
			n := r.one(fails, func() bool { return len(r.mock.Acked()) == 1 })
			dead := r.mock.Dead()
			if n != 3 || letters() != 0 || len(dead) != 1 {
				t.Fatalf("dlq: %d attempts, %d letters, %v", n, letters(), dead)
			}
			if d := dead[0]; d.Reason.Attempts != 3 || d.Reason.FirstAt.IsZero() || d.Reason.LastAt.Before(d.Reason.FirstAt) ||
				strings.Contains(d.Reason.Text+d.Reason.FirstError+d.Reason.LastError, "hunter2") || string(d.Message.Body) != `{"n":1}` {
				t.Errorf("%+v", d)
			}
		case PolicyRequeue:
			// Three deliveries of three attempts each, of one and the same event.
			r.start()
			r.send("m-1", `{"n":1}`)
			r.until("the event", func() bool { return len(r.events()) == 1 })
			n := 0
			for range 3 {
				r.until("work", func() bool {
					d, err := r.th.DueFor(context.Background(), "q", 0)
					return err == nil && d.First != 0
				})
				n += r.handle(fails)
			}
			r.until("the dead letter queue", func() bool { return len(r.mock.Dead()) == 1 && len(r.mock.Acked()) == 1 })
			r.stop()
			if n != 9 || len(r.events()) != 1 || len(r.mock.Nacked()) != 2 || r.mock.Nacked()[0] != "m-1 true" || r.mock.Dead()[0].Reason.Deliveries != 3 {
				t.Errorf("requeue: %d attempts, %v, %+v", n, r.mock.Nacked(), r.mock.Dead())
			}
		}
		r.sound()
	}
}

// Q-14, case 5
func TestRetriesThenSucceeds(t *testing.T) {
	r := newRig(t, t.TempDir()+"/t", handled)
	n := r.one(func(_ event.Event, attempt int64) error {
		r.until("the retry", func() bool { return r.tr.metrics.Read().Retries == attempt-1 })
		if attempt < 3 {
			return errBoom
		}
		return nil
	}, func() bool { return len(r.mock.Acked()) == 1 })
	if n != 3 {
		t.Errorf("%d attempts", n)
	}
	if l := r.ledger()[0]; l.Status != StatusSuccess || l.RetryCount != 2 {
		t.Errorf("%+v", l)
	}
}

// Q-14, cases 7 and 18
func TestRetryLogs(t *testing.T) {
	r := newRig(t, t.TempDir()+"/t", func(c *Config, _ *Options) { c.Settle, c.MaxRetries = SettleHandled, 2 })
	r.one(fails, func() bool { return len(r.mock.Acked()) == 1 })
	if n := r.log.count("trigger retry"); n != 2 {
		t.Errorf("%d retries logged:\n%s", n, r.log)
	}
	for _, want := range []string{"attempt=1 limit=3 delay=1ms", "attempt=2 limit=3 delay=2ms", "trace_id=queue-m-1", "reason=\"boom password=***\""} {
		if r.log.count(want) == 0 {
			t.Errorf("no %s in\n%s", want, r.log)
		}
	}
	if h := r.tr.Health(context.Background()); h.Failed < 1 || h.Metrics.Retries != 2 {
		t.Errorf("%+v", h)
	}
}

// Q-02, case 8
func TestNewRefusesConfig(t *testing.T) {
	var bad *ConfigError
	if _, err := New(nil, NewMock(), Config{}, Options{}); !errors.As(err, &bad) || len(bad.Problems) < 7 {
		t.Errorf("%v", err)
	}
}

// Q-07, case 9: what is wrong with a message, or with one acknowledgement, ends nothing.
func TestGoesOnAfterErrors(t *testing.T) {
	r := newRig(t, t.TempDir()+"/t", nil)
	r.start()
	r.mock.FailNext("ack", errors.New("connection reset"))
	r.send("m-1", `{}`)
	r.until("the event", func() bool { return len(r.events()) == 1 })
	r.send("m-2", `{}`)
	r.acked(1)
	r.stop()
	r.start() // what the broker was not told of is redelivered
	r.acked(2)
	r.stop()
	if len(r.events()) != 2 {
		t.Errorf("%d events", len(r.events()))
	}
	if r.mock.Idle() == false {
		t.Error("the queue is not empty")
	}
}

// Q-11, case 11: while the store fails nothing is acknowledged, and it continues after.
func TestStoreFailure(t *testing.T) {
	r := newRig(t, t.TempDir()+"/t", nil)
	r.start()
	block := make(chan struct{})
	held := make(chan struct{})
	go r.th.Update(context.Background(), func(*engine.Tx) error {
		close(held)
		<-block
		return nil
	})
	<-held
	r.send("m-1", `{}`)
	if n := len(r.mock.Acked()); n != 0 {
		t.Errorf("%d acks", n)
	}
	close(block)
	r.acked(1)
	r.stop()
	if len(r.events()) != 1 {
		t.Error("not stored")
	}
}

// Q-10, cases 12, 55, 56 and 58: the window is the window of the configuration, from settling.
func TestWindow(t *testing.T) {
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	clock := make(chan time.Time, 1)
	clock <- now
	r := newRig(t, t.TempDir()+"/t", func(c *Config, o *Options) {
		c.Window = 123
		o.Now = func() time.Time { n := <-clock; clock <- n; return n }
	})
	set := func(n time.Time) { <-clock; clock <- n }
	r.start()
	for i, step := range []struct {
		after  time.Duration
		events int
	}{{0, 1}, {122 * time.Second, 1}, {123 * time.Second, 2}, {245 * time.Second, 2}, {246 * time.Second, 3}} {
		set(now.Add(step.after))
		r.send("m-1", `{}`)
		r.acked(i + 1)
		if n := len(r.events()); n != step.events {
			t.Errorf("after %s: %d events, want %d", step.after, n, step.events)
		}
	}
	r.stop()
	r.sound()
}

// A key of a message that the broker is not known to have been told of never expires.
//
func TestUnsettledKeyNeverExpires(t *testing.T) {
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	clock := make(chan time.Time, 1)
	clock <- now
	r := newRig(t, t.TempDir()+"/t", func(c *Config, o *Options) {
		c.Window = 1
		o.Now = func() time.Time { n := <-clock; clock <- n; return n }
	})
	r.start()
	r.mock.FailNext("ack", errors.New("connection reset"))
	r.send("m-1", `{}`)
	r.until("the warning", func() bool { return r.log.count("could not be told") == 1 })
	r.stop()
	<-clock
	clock <- now.Add(1000 * time.Hour)
	r.start()
	r.acked(1)
	r.stop()
	if len(r.events()) != 1 {
		t.Errorf("%d events", len(r.events()))
	}
}

// Q-14, case 13
func TestDelayFormula(t *testing.T) {
	c := Config{BackoffBase: .5, Multiplier: 3}
	for n, want := range map[int64]time.Duration{1: 500 * time.Millisecond, 2: 1500 * time.Millisecond, 3: 4500 * time.Millisecond} {
		if got := c.Delay(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
	c = Config{BackoffBase: .25, Multiplier: 2}
	if c.Delay(1) != 250*time.Millisecond || c.Delay(2) != 500*time.Millisecond { // case 83
		t.Error(c.Delay(1), c.Delay(2))
	}
}

// Q-12, cases 14 and 29
func TestGovernanceRejects(t *testing.T) {
	for _, p := range ackPolicies {
		var asked []Question
		r := newRig(t, t.TempDir()+"/t", func(c *Config, o *Options) {
			c.AckPolicy, c.DeliveryLimit = p, 3
			o.Governor = governor(func(q *Question) (Answer, error) {
				asked = append(asked, *q)
				return Answer{Reason: "not allowed, token=abc"}, nil
			})
		})
		r.start()
		r.send("m-1", `{}`, "x-event-name", "e")
		want := map[string]func() bool{
			PolicyAck:     func() bool { return len(r.mock.Acked()) == 1 },
			PolicyNack:    func() bool { return slices.Equal(r.mock.Nacked(), []string{"m-1 false"}) },
			PolicyDLQ:     func() bool { return len(r.mock.Dead()) == 1 && len(r.mock.Acked()) == 1 },
			PolicyRequeue: func() bool { return len(r.mock.Nacked()) == 2 && len(r.mock.Dead()) == 1 },
		}[p]
		r.until(p, want)
		r.stop()
		if len(r.events()) != 0 || asked[0].Source != "queue_trigger" || asked[0].Queue != "q" || asked[0].MessageID != "m-1" ||
			asked[0].TenantID != DefaultTenant || asked[0].EventName != "e" {
			t.Errorf("%s: %v %+v", p, r.events(), asked)
		}
		l := r.ledger()[0]
		if l.Status != StatusRejected || l.Error == nil || *l.Error != "rejected by governance: not allowed, token=***" {
			t.Errorf("%s: %+v", p, l)
		}
		if p == PolicyDLQ && r.mock.Dead()[0].Reason.Text != *l.Error {
			t.Errorf("%+v", r.mock.Dead())
		}
		r.sound()
	}
}

// Q-12, cases 15 and 16
func TestGovernanceUnavailable(t *testing.T) {
	for _, open := range []bool{false, true} {
		r := newRig(t, t.TempDir()+"/t", func(c *Config, o *Options) {
			c.Governance.FailOpen = open
			o.Governor = governor(func(*Question) (Answer, error) { return Answer{}, errors.New("down") })
		})
		r.start()
		r.send("m-1", `{}`)
		r.acked(1)
		r.stop()
		if got := len(r.events()) == 1; got != open {
			t.Errorf("open %t: %v", open, r.events())
		}
	}
}

// the two governors that there are.
func TestGovernors(t *testing.T) {
	script := `while read -r l; do case $l in *m-no*) echo '{"allow":false,"reason":"no"}';; *m-odd*) echo hello;; *) echo '{"allow":true}';; esac; done`
	for name, g := range map[string]Governance{
		"filter":  {Filter: "type <> 'debug'", Timeout: 5},
		"command": {Command: []string{"sh", "-c", script}, Timeout: 5},
	} {
		r := newRig(t, t.TempDir()+"/t", func(c *Config, _ *Options) { c.Governance = g })
		r.start()
		r.send("m-yes", `{}`)
		r.send("m-no", `{}`, "x-event-name", "debug")
		r.send("m-odd", `{}`, "x-event-name", "debug")
		r.send("m-after", `{}`)
		r.acked(4)
		r.stop()
		if es := r.events(); len(es) != 2 {
			t.Errorf("%s: %v", name, es)
		}
	}
}

// as many questions are asked at once as the concurrency says. Each copy of the
// program answers only once two have been asked.
func TestGovernanceAtOnce(t *testing.T) {
	dir := t.TempDir()
	script := `read -r l; : >"$0/$$"; until set -- "$0"/*; [ $# -gt 1 ]; do sleep 0.01; done; echo '{"allow":true}'; while read -r l; do echo '{"allow":true}'; done`
	r := newRig(t, t.TempDir()+"/t", func(c *Config, _ *Options) {
		c.Concurrency, c.Governance = 2, Governance{Command: []string{"sh", "-c", script, dir}, Timeout: 60}
	})
	if err := r.tr.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		r.send(fmt.Sprint("m-", i), `{}`)
	}
	r.start()
	if err := r.tr.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.acked(4)
	r.stop()
	if es := r.events(); len(es) != 4 {
		t.Errorf("%v", es)
	}
}

// a program that cannot be started, or never gives an answer, decides about no
// message: nothing is acknowledged. Once it is mended, all are decided about.
func TestGovernanceCannotStart(t *testing.T) {
	for name, script := range map[string]string{"not there": "", "not executable": "data", "ends at once": "#!/bin/sh\nexit 3\n", "says something else": "#!/bin/sh\nwhile read -r l; do echo hello; done\n"} {
		for _, open := range []bool{false, true} {
			policy := filepath.Join(t.TempDir(), "policy")
			mode := os.FileMode(0o700)
			if name == "not executable" {
				mode = 0o600
			}
			if script != "" {
				if err := os.WriteFile(policy, []byte(script), mode); err != nil {
					t.Fatal(err)
				}
			}
			r := newRig(t, t.TempDir()+"/t", func(c *Config, _ *Options) {
				c.Governance = Governance{Command: []string{policy}, Timeout: 5, FailOpen: open}
			})
			r.start()
			r.send("m-1", `{}`)
			r.send("m-2", `{}`)
			if !open {
				r.until("the trouble", func() bool { return r.tr.Health(context.Background()).Detail != nil || len(r.mock.Acked()) > 0 })
				if n := len(r.mock.Acked()); n != 0 || len(r.ledger()) != 0 {
					t.Fatalf("%s: %d acks, %v", name, n, r.ledger())
				}
				if s := r.tr.Health(context.Background()); s.Detail == nil || !strings.Contains(*s.Detail, "asking governance") {
					t.Errorf("%+v", s)
				}
				good := filepath.Join(filepath.Dir(policy), "good")
				err := errors.Join(os.WriteFile(good, []byte("#!/bin/sh\nwhile read -r l; do echo '{\"allow\":true}'; done\n"), 0o700), os.Rename(good, policy))
				if err != nil {
					t.Fatal(err)
				}
			}
			r.acked(2)
			r.stop()
			if len(r.events()) != 2 {
				t.Errorf("%s: %v", name, r.events())
			}
		}
	}
}

// Q-18, cases 19 to 24
func TestTenants(t *testing.T) {
	t.Setenv("TRIGGER_OLD", "old")
	t.Setenv("TRIGGER_NEW", "new")
	signed := Tenancy{Trust: true, SecretEnvs: []string{"TRIGGER_OLD", "TRIGGER_NEW", "TRIGGER_UNSET"}}
	for name, c := range map[string]struct {
		tenancy Tenancy
		headers []string
		want    string
	}{
		"ignored by default": {Tenancy{}, []string{"x-tenant-id", "a"}, DefaultTenant},
		"untrusted producer": {Tenancy{Trust: true, Producers: []string{"p"}}, []string{"x-tenant-id", "a", "x-producer", "x"}, DefaultTenant},
		"trusted producer":   {Tenancy{Trust: true, Producers: []string{"p"}}, []string{"x-tenant-id", "a", "X-Producer", "p"}, "a"},
		"trusted":            {Tenancy{Trust: true}, []string{"x-tenant-id", "a"}, "a"},
		"none":               {Tenancy{Trust: true}, nil, DefaultTenant},
		"no signature":       {signed, []string{"x-tenant-id", "a"}, DefaultTenant},
		"bad signature":      {signed, []string{"x-tenant-id", "a", HeaderSignature, Sign("old", "m-2", "a", "")}, DefaultTenant},
		"empty secret":       {signed, []string{"x-tenant-id", "a", HeaderSignature, Sign("", "m-1", "a", "")}, DefaultTenant},
		"new secret":         {signed, []string{"x-tenant-id", "a", HeaderSignature, Sign("new", "m-1", "a", "")}, "a"},
		"old form":           {signed, []string{"x-tenant-id", "a", HeaderSignature, oldSignature("a")}, "a"},
		"old form, a colon":  {signed, []string{"x-tenant-id", "a:b", HeaderSignature, oldSignature("a:b")}, DefaultTenant},
		"rotated secret":     {signed, []string{"x-tenant-id", "a", "x-producer", "p", HeaderSignature, Sign("old", "m-1", "a", "p")}, "a"},
	} {
		var asked string
		r := newRig(t, t.TempDir()+"/t", func(c2 *Config, o *Options) {
			c2.Tenant = c.tenancy
			o.Governor = governor(func(q *Question) (Answer, error) { asked = q.TenantID; return Answer{Allow: true}, nil })
		})
		r.start()
		r.send("m-1", `{}`, c.headers...)
		r.acked(1)
		r.stop()
		if row := r.ledger()[0]; row.TenantID != c.want || asked != c.want || !strings.Contains(r.events()[0].Content, `"tenant_id":"`+c.want+`"`) {
			t.Errorf("%s: ledger %s, governance %s, want %s", name, row.TenantID, asked, c.want)
		}
	}
}

func oldSignature(tenant string) string {
	return hex.EncodeToString(sign("new", signedTextV1("m-1", tenant, "")))
}

// Q-07, cases 75 to 78
func TestParsers(t *testing.T) {
	for _, c := range []struct{ parser, body, want string }{
		{"json", ` {"a": 1} `, `{"a": 1}`}, {"json", `[1]`, ""}, {"json", `1`, ""}, {"json", ``, ""}, {"json", "{\"a\":\"\xff\"}", ""}, {"json", `{`, ""},
		{"text", "grüß", "grüß"}, {"text", "\xff", ""}, {"binary", "\xff\x00", "\xff\x00"},
	} {
		got, err := Parse(c.parser, []byte(c.body))
		if string(got) != c.want && err == nil || (err != nil) != (c.want == "") || err != nil && !errors.Is(err, ErrParse) {
			t.Errorf("%s %q: %q, %v", c.parser, c.body, got, err)
		}
	}
}

// Q-06, case 73
func TestEnvelope(t *testing.T) {
	c := NewConfig()
	c.Queue, c.EventNameHeader = "q", "my-name"
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 7200))
	m := Message{ID: "m", Body: []byte(`{}`), At: at, Headers: map[string]string{"X-Dedup-Key": "d", "MY-NAME": "n", "x-event-name": "not this"}}
	e, err := c.Envelope(&m, time.Time{}, nil)
	if err != nil || e.DedupKey != "d" || e.EventName != "n" || e.Source != "q" || !e.ReceivedAt.Equal(at) || e.ReceivedAt.Location() != time.UTC || e.TenantID != DefaultTenant {
		t.Errorf("%+v, %v", e, err)
	}
}

// Q-25, case 72
func TestMock(t *testing.T) {
	ctx := context.Background()
	m := NewMock()
	m.Enqueue(Message{ID: "a"}, Message{ID: "b"}, Message{ID: "c"})
	if m.Health(ctx).OK {
		t.Error("healthy before Connect")
	}
	if err := m.Connect(ctx, nil); err != nil {
		t.Fatal(err)
	}
	ms, err := m.Consume(ctx, 10)
	if err != nil || len(ms) != 3 {
		t.Fatal(ms, err)
	}
	err = errors.Join(m.Ack(ctx, ms[:1]), m.Nack(ctx, ms[1], false), m.SendToDLQ(ctx, ms[2], Reason{Text: "why"}), m.Ack(ctx, ms[2:]))
	if err != nil || !slices.Equal(m.Acked(), []string{"a", "c"}) || !slices.Equal(m.Nacked(), []string{"b false"}) || m.Dead()[0].Reason.Text != "why" || !m.Idle() {
		t.Error(m.Acked(), m.Nacked(), m.Dead(), err)
	}
	if m.Close(); m.Health(ctx).OK {
		t.Error("healthy after Close")
	}
}

// Q-22, cases 65 to 71; internal/redact tests the forms.
func TestRedact(t *testing.T) {
	got := fmt.Sprint(RedactValue(map[string]any{"a": []any{map[string]any{"api_key": "hunter2"}, "Bearer hunter2"}, "token": 5, "ok": "x"}))
	if strings.Contains(got, "hunter2") || strings.Contains(got, "5") || !strings.Contains(got, "ok:x") {
		t.Error(got)
	}
}

// with ack_policy ack, the dead letter that stays holds no credential either.
func TestDeadLetterRedacted(t *testing.T) {
	r := newRig(t, t.TempDir()+"/t", func(c *Config, _ *Options) { c.Settle, c.MaxRetries = SettleHandled, 0 })
	r.start()
	r.send("m-1", `{}`)
	r.until("the event", func() bool { return len(r.events()) == 1 })
	r.handle(func(event.Event, int64) error { return errors.New("mysql --password hunter2: refused") })
	r.acked(1)
	r.stop()
	n := 0
	for d, err := range r.th.DeadLetters(t.Context(), engine.DeadLetterQuery{Consumer: r.cfg.Consumer}) {
		if n++; err != nil || d.FirstError != "mysql --password *** refused" || d.LastError != d.FirstError {
			t.Errorf("%+v %v", d, err)
		}
	}
	if n != 1 || strings.Contains(r.log.String(), "hunter2") {
		t.Error(n, r.log)
	}
}

// a flag and its value may be two words of a command.
func TestRedactWords(t *testing.T) {
	got := fmt.Sprint(RedactValue([]any{"./policy", "--password", "hunter2", "-u", "me:hunter2", "--token=hunter2", "--strict", "--api-key", "hunter2", "rules.json"}))
	if got != "[./policy --password *** -u me:*** --token=*** --strict --api-key *** rules.json]" {
		t.Error(got)
	}
}

// Q-22, case 67: what is logged is redacted, whatever its kind.
func TestLogRedacted(t *testing.T) {
	r := newRig(t, t.TempDir()+"/t", nil)
	r.tr.log.With("password", "hunter2").Info("token=hunter2", "error", errBoom, "auth", "Bearer hunter2", "config", map[string]any{"secret": "hunter2"})
	if s := r.log.String(); strings.Contains(s, "hunter2") || !strings.Contains(s, "***") {
		t.Error(s)
	}
}

// an error of the start names the queue and holds no credentials.
func TestConnectFails(t *testing.T) {
	r := newRig(t, t.TempDir()+"/t", nil)
	r.mock.FailNext("connect", errors.New("amqp://u:hunter2@h refused"))
	err := r.tr.Start(context.Background())
	var ce *ConnectionError
	if !errors.As(err, &ce) || ce.Queue != "q" || strings.Contains(err.Error(), "hunter2") || r.tr.Health(context.Background()).Running {
		t.Error(err)
	}
	r.start()
	r.stop()
}

// Q-19 (property 24 of the seed): Stop waits for handlers that run, not for what is
// stored, and not for a delivery whose process is gone.
func TestStopWaits(t *testing.T) {
	alive := true
	r := newRig(t, t.TempDir()+"/t", func(c *Config, o *Options) {
		c.Settle, o.Drain = SettleHandled, time.Hour
		o.Alive = func(context.Context, string) (bool, error) { return alive, nil }
	})
	r.start()
	r.send("m-1", `{}`)
	r.send("m-2", `{}`)
	r.until("the events", func() bool { return len(r.events()) == 2 })
	r.stop() // no handler has begun
	if len(r.mock.Acked()) != 0 || r.log.count("events=2") != 1 {
		t.Fatal(r.mock.Acked(), r.log)
	}
	r.start()
	feed := r.begin()
	r.until("the handler", func() bool { return r.tr.Health(t.Context()).ActiveWorkers == 1 })
	stopped := make(chan error, 1)
	go func() { stopped <- r.tr.Stop() }()
	select {
	case err := <-stopped:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(50 * time.Millisecond): // it waits for something that does not come
	}
	if _, err := feed.Settle(t.Context(), engine.Result{Verdict: engine.Succeeded}); err != nil {
		t.Fatal(err)
	}
	if err := <-stopped; err != nil || len(r.mock.Acked()) != 1 {
		t.Error(err, r.mock.Acked())
	}
	feed.Close()
	r.start()
	r.begin()
	r.until("the handler", func() bool { return r.tr.Health(t.Context()).ActiveWorkers == 1 })
	alive = false
	r.stop()
	r.sound()
}

// TestStopWaitsForNoLaterHandler is Q-19: a consumer that goes from event to event would
// otherwise keep a stop until the thread is empty.
func TestStopWaitsForNoLaterHandler(t *testing.T) {
	r := newRig(t, t.TempDir()+"/t", func(c *Config, o *Options) {
		c.Settle, o.Drain = SettleHandled, time.Hour
		o.Alive = func(context.Context, string) (bool, error) { return true, nil }
	})
	r.start()
	r.send("m-1", `{}`)
	r.send("m-2", `{}`)
	r.until("the events", func() bool { return len(r.events()) == 2 })
	feed := r.begin()
	r.until("the handler", func() bool { return r.tr.Health(t.Context()).ActiveWorkers == 1 })
	stopped := make(chan error, 1)
	go func() { stopped <- r.tr.Stop() }()
	r.until("the stop", func() bool { return r.log.count("handlers=1") == 1 })
	if d, err := feed.Next(t.Context(), &engine.Result{Verdict: engine.Succeeded}); err != nil || len(d.Events) != 1 {
		t.Fatal(d, err) // the second event is in flight now
	}
	if err := <-stopped; err != nil || len(r.mock.Acked()) != 1 {
		t.Error(err, r.mock.Acked())
	}
	feed.Close()
}

// begin takes a delivery of the consumer, which is in flight then.
func (r *rig) begin() *engine.Feed {
	r.tb.Helper()
	feed := r.th.Feed(r.cfg.Consumer, r.cfg.Policy())
	d, err := feed.Next(context.Background(), nil)
	if err != nil || len(d.Events) != 1 {
		r.tb.Fatalf("%v %v", d, err)
	}
	return feed
}

// a handler that runs for longer than the drain is left, and its result counts.
func TestStopGivesUp(t *testing.T) {
	r := newRig(t, t.TempDir()+"/t", func(c *Config, o *Options) { c.Settle, o.Drain = SettleHandled, time.Millisecond })
	r.start()
	r.send("m-1", `{}`)
	r.until("the event", func() bool { return len(r.events()) == 1 })
	feed := r.begin()
	r.until("the handler", func() bool { return r.tr.Health(t.Context()).ActiveWorkers == 1 })
	r.stop()
	if r.log.count("left=1") != 1 {
		t.Error(r.log)
	}
	// The event was handled while nothing ran, and its message is redelivered.
	if _, err := feed.Settle(t.Context(), engine.Result{Verdict: engine.Succeeded}); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.acked(1)
	r.stop()
	if len(r.events()) != 1 || r.ledger()[len(r.ledger())-1].Status != StatusSuccess {
		t.Errorf("%+v", r.ledger())
	}
	r.sound()
}

// active_workers counts the workers that are busy.
func TestActiveWorkers(t *testing.T) {
	r := newRig(t, t.TempDir()+"/t", func(c *Config, _ *Options) { c.Settle, c.Concurrency = SettleHandled, 2 })
	active := func() int { return r.tr.Health(t.Context()).ActiveWorkers }
	r.start()
	for i := range 3 {
		r.send(fmt.Sprint("m-", i), `{}`)
	}
	r.until("the events", func() bool { return len(r.events()) == 3 })
	if n := active(); n != 0 {
		t.Errorf("%d are busy before a handler runs", n)
	}
	feed, err := r.th.ParallelFeed(r.cfg.Consumer, engine.ParallelPolicy{Policy: r.cfg.Policy()})
	if err != nil {
		t.Fatal(err)
	}
	step := engine.Step{Begin: 2}
	for done := 0; done < 3; {
		g, err := feed.Step(t.Context(), step)
		if err != nil || len(g.Begin) != min(2, 3-done) {
			t.Fatalf("%+v %v", g, err)
		}
		r.until("the handlers", func() bool { return active() == len(g.Begin) })
		step = engine.Step{Begin: 2}
		for _, d := range g.Begin {
			step.Results = append(step.Results, engine.DeliveryResult{Number: d.Number(), Result: engine.Result{Verdict: engine.Succeeded}})
		}
		done += len(g.Begin)
	}
	if _, err := feed.Step(t.Context(), engine.Step{Results: step.Results}); err != nil {
		t.Fatal(err)
	}
	feed.Close()
	r.acked(3)
	r.until("the end", func() bool { return active() == 0 })
	r.stop()
}

// the history of attempts survives kill -9 of the trigger, each with its own reason
// and time, whether the event becomes a dead letter or succeeds.
func TestRetryHistorySurvives(t *testing.T) {
	for _, succeeds := range []bool{false, true} {
		r := newRig(t, t.TempDir()+"/t", func(c *Config, _ *Options) { c.Settle, c.AckPolicy, c.MaxRetries = SettleHandled, PolicyDLQ, 3 })
		first := func() Row { rows := r.ledger(); return rows[len(rows)-1] }
		r.start()
		r.send("m-1", `{}`)
		r.until("the event", func() bool { return len(r.events()) == 1 })
		feed := r.th.Feed(r.cfg.Consumer, r.cfg.Policy())
		try := func(result engine.Result) {
			for {
				d, err := feed.Next(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				if len(d.Events) == 1 {
					break
				}
				time.Sleep(time.Until(d.NotBefore)) // the policy's own wait
			}
			if _, err := feed.Settle(t.Context(), result); err != nil {
				t.Fatal(err)
			}
		}
		failed := func(n int) engine.Result {
			return engine.Result{Verdict: engine.Failed, ExitCode: int64(n), Error: fmt.Sprint("reason ", n)}
		}
		try(failed(1))
		r.until("the first retry", func() bool { return len(first().Attempts) == 1 })
		try(failed(2))
		r.until("the second retry", func() bool { return len(first().Attempts) == 2 })
		// What kill -9 leaves: nothing of what the trigger has in its memory.
		feed.Close()
		killed := r.tr
		killed.drain = time.Nanosecond
		r.stop()
		var err error
		if r.tr, err = New(r.th, r.mock, r.cfg, r.opts); err != nil {
			t.Fatal(err)
		}
		r.start()
		feed = r.th.Feed(r.cfg.Consumer, r.cfg.Policy())
		try(failed(3))
		want := 4
		if succeeds {
			r.until("the third retry", func() bool { return len(first().Attempts) == 3 })
			try(engine.Result{Verdict: engine.Succeeded})
			want = 3
		} else {
			try(failed(4))
		}
		r.acked(1)
		r.until("the ledger", func() bool { return first().Status != StatusStored })
		feed.Close()
		r.stop()
		row := first()
		lists := [][]Attempt{row.Attempts}
		if !succeeds {
			lists = append(lists, r.mock.Dead()[0].Reason.History)
		}
		for _, list := range lists {
			if len(list) != want || row.RetryCount != 3 {
				t.Fatalf("%+v", row)
			}
			for i, a := range list {
				if a.Number != int64(i+1) || a.Error != fmt.Sprint("reason ", i+1) || a.At.IsZero() || i > 0 && a.At.Before(list[i-1].At) {
					t.Errorf("%+v", a)
				}
			}
		}
		for n := 1; n <= 3; n++ {
			if got := r.log.count(fmt.Sprintf("attempt=%d limit=4", n)); got != 1 || r.log.count(fmt.Sprintf(`reason="reason %d"`, n)) != 1 {
				t.Errorf("attempt %d: logged %d times\n%s", n, got, r.log)
			}
		}
	}
}
