package trigger

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"thread/event"
)

var errFull = errors.New("the queue is full: password=hunter2")

func (r *rig) refuseDead(err error) {
	r.mock.mu.Lock()
	defer r.mock.mu.Unlock()
	r.mock.dlqRefuses = err
}

// aged makes what is wrong be so for longer than a trigger may be healthy with it.
func (r *rig) aged() Status {
	r.tr.metrics.set(func(m *Metrics) {
		for i := range m.wrong {
			m.wrong[i].since = m.wrong[i].since.Add(-patience)
		}
	})
	return r.tr.Health(context.Background())
}

// A dead letter queue that refuses holds nothing up: neither good messages, nor bad ones
// of later batches, nor a stop. What is parked survives a restart, and goes there
// once, with its reason.
func TestDLQRefuses(t *testing.T) {
	for _, settle := range []string{SettleStored, SettleHandled} {
		t.Run(settle, func(t *testing.T) {
			r := newRig(t, t.TempDir()+"/t", func(c *Config, o *Options) {
				c.Settle, c.AckPolicy, c.MaxRetries, o.Drain = settle, PolicyDLQ, 0, time.Hour
			})
			r.tr.tickEvery = 10 * time.Millisecond
			r.refuseDead(errFull)
			r.start()
			r.send("bad-1", `oops`, "h", "v")
			r.send("good-1", `{"n":1}`)
			r.send("bad-2", `oops`)
			n := 3
			if settle == SettleHandled {
				r.send("fails", `{"fails":true}`)
				r.until("the events", func() bool { return len(r.events()) == 2 })
				r.handle(func(e event.Event, _ int64) error {
					if strings.Contains(e.Content, "fails") {
						return errBoom
					}
					return nil
				})
				n++
			}
			r.acked(n)
			s := r.tr.Health(context.Background())
			if s.Status != "healthy" || s.Detail == nil || strings.Contains(*s.Detail, "hunter2") || s.Metrics.Parked != n-1 {
				t.Errorf("%+v", s)
			}
			if s = r.aged(); s.Status != "unhealthy" || !strings.Contains(*s.Detail, "dead letter queue") {
				t.Errorf("%+v", s)
			}
			var b strings.Builder
			if _, err := r.tr.Metrics().WriteTo(&b); err != nil || !strings.Contains(b.String(), fmt.Sprintf("queue_parked_messages{queue=\"q\"} %d\n", n-1)) ||
				strings.Contains(b.String(), "what=\"dlq\"} 0\n") || !strings.Contains(b.String(), "what=\"store\"} 0\n") {
				t.Error(b.String(), err)
			}
			r.stop()
			r.start()
			r.refuseDead(nil)
			r.until("the parked messages", func() bool { return len(r.mock.Dead()) == n-1 })
			r.until("health", func() bool { s := r.aged(); return s.Status == "healthy" && s.Metrics.Parked == 0 })
			r.stop()
			dead := r.mock.Dead()
			if len(dead) != n-1 || dead[0].Message.ID != "bad-1" || dead[0].Message.Headers["h"] != "v" || !strings.Contains(dead[0].Reason.Text, "JSON") {
				t.Errorf("%+v", dead)
			}
			if d := dead[len(dead)-1]; settle == SettleHandled && (d.Message.ID != "fails" || d.Reason.Attempts != 1 || d.Reason.LastError != Redact(errBoom.Error())) {
				t.Errorf("%+v", d)
			}
			r.sound()
		})
	}
}

// While too many are parked, the intake waits for the dead letter queue; a stop does not.
func TestTooManyParked(t *testing.T) {
	r := newRig(t, t.TempDir()+"/t", func(c *Config, o *Options) { c.MaxBatch, o.Drain = 1, time.Hour })
	r.tr.parkMost, r.tr.tickEvery, r.tr.giveUp = 2, time.Hour, time.Millisecond
	r.refuseDead(errFull)
	r.start()
	for i := range 3 {
		r.send(fmt.Sprint("bad-", i), `oops`)
	}
	r.acked(2)
	r.until("the wait", func() bool {
		r.mock.mu.Lock()
		defer r.mock.mu.Unlock()
		return r.mock.dlqRefused > 2 // bad-0, and what is parked before bad-2
	})
	if len(r.mock.Acked()) != 2 {
		t.Error(r.mock.Acked())
	}
	r.stop()
	r.refuseDead(nil)
	r.start()
	r.acked(3)
	r.stop()
	if len(r.mock.Dead()) != 3 {
		t.Errorf("%+v", r.mock.Dead())
	}
	r.sound()
}

// One message that the dead letter queue never takes holds up no others.
func TestParkedPoison(t *testing.T) {
	r := newRig(t, t.TempDir()+"/t", nil)
	r.tr.tickEvery = 10 * time.Millisecond
	r.refuseDead(errFull)
	r.start()
	for i := range 3 {
		r.send(fmt.Sprint("bad-", i), `oops`)
	}
	r.acked(3)
	r.mock.mu.Lock()
	r.mock.dlqRefuses, r.mock.dlqPoison = nil, "bad-0"
	r.mock.mu.Unlock()
	r.until("the others", func() bool { return len(r.mock.Dead()) == 2 })
	r.until("the count", func() bool { return r.tr.Health(context.Background()).Metrics.Parked == 1 })
	r.stop()
	r.sound()
}

// a consumer that no process runs, or that is not subscribed, and a thread that
// cannot be written make a trigger unhealthy; it is well again when they are.
func TestUnhealthy(t *testing.T) {
	stuck := make(chan string, 1)
	stuck <- "nothing runs it"
	r := newRig(t, t.TempDir()+"/t", func(c *Config, o *Options) {
		c.Settle = SettleHandled
		o.Stuck = func(context.Context, string, int64) (string, error) {
			why := <-stuck
			stuck <- why
			return why, nil
		}
	})
	r.tr.tickEvery = 10 * time.Millisecond
	r.start()
	r.send("m-1", `{}`)
	r.until("the consumer's trouble", func() bool { return r.tr.Health(context.Background()).Detail != nil })
	if s := r.tr.Health(context.Background()); s.Status != "healthy" || !strings.Contains(*s.Detail, "nothing runs it") {
		t.Errorf("%+v", s)
	}
	if s := r.aged(); s.Status != "unhealthy" {
		t.Errorf("%+v", s)
	}
	<-stuck
	stuck <- ""
	r.until("health", func() bool { s := r.aged(); return s.Status == "healthy" && s.Detail == nil })
	r.handle(succeeds)
	r.acked(1)
	if err := r.th.Unsubscribe(context.Background(), r.cfg.Consumer); err != nil {
		t.Fatal(err)
	}
	r.stop()

	r = newRig(t, t.TempDir()+"/t", nil)
	full := errors.New("no space left on device")
	err := r.tr.again(context.Background(), "storing messages", func() error {
		if s := r.tr.Health(context.Background()); s.Detail == nil {
			return full
		}
		r.start()
		if s := r.tr.Health(context.Background()); s.Detail != nil {
			t.Errorf("it began unhealthy: %+v", s)
		}
		r.tr.noteTrouble(troubleStore, full)
		if s := r.aged(); s.Status != "unhealthy" || !strings.Contains(*s.Detail, full.Error()) {
			t.Errorf("%+v", s)
		}
		return nil
	})
	if s := r.aged(); err != nil || s.Status != "healthy" {
		t.Errorf("%+v %v", s, err)
	}
	r.stop()
}
